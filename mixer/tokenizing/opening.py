"""From what a config says of a tokenizer to the tokenizer."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from mixer.config.fields import WindowConfig
from mixer.errors import ConfigError, InputError
from mixer.storage.inputs import find_inputs, read_range
from mixer.tokenizing.base import Tokenizer
from mixer.tokenizing.function import FunctionTokenizer, is_import_path
from mixer.tokenizing.hugging import HuggingTokenizer
from mixer.tokenizing.ranks import RanksTokenizer

MAX_BYTES = 512 << 20
"""Longest tokenizer that is read; the largest published ones have some tens of MB."""


def open_tokenizer(name: str, window: WindowConfig) -> Tokenizer:
    """Return the tokenizer of dataset `name`, which has one.

    Raises:
        ConfigError: It is not there, or is something else, or what it needs is not said.
        StoreError: A remote store refused, or did not answer.
    """
    where = f"datasets.{name}.window"
    path = window.tokenizer
    if path is None:
        raise ValueError(f"{where}: expected a tokenizer")
    tokenizer: Tokenizer
    if is_import_path(path):
        _unused(window, where, "pattern")
        tokenizer = FunctionTokenizer(
            path,
            vocabulary=window.vocabulary,
            end_of_text=window.end_of_text,
            version=window.version,
            where=where,
        )
    elif path.endswith(".tiktoken"):
        _unused(window, where, "vocabulary", "version")
        data = _read(path, where)
        tokenizer = RanksTokenizer(data, pattern=window.pattern, end_of_text=window.end_of_text, where=where)
    elif path.endswith(".json"):
        _unused(window, where, "pattern", "vocabulary", "version")
        tokenizer = HuggingTokenizer(_read(path, where), end_of_text=window.end_of_text, where=where)
    else:
        raise ConfigError(
            f"{where}.tokenizer: expected a file named *.json or *.tiktoken, or a function as `module:function`, found "
            f"{path!r}"
        )
    return tokenizer


def _unused(window: WindowConfig, where: str, *fields: str) -> None:
    for field in fields:
        value: Any = getattr(window, field)
        if value is not None:
            raise ConfigError(
                f"{where}.{field}: says nothing of such a tokenizer as {window.tokenizer!r}; leave it out"
            )


def _read(path: str, where: str) -> bytes:
    try:
        files = find_inputs(path, (PurePosixPath(path).suffix,)).files
    except InputError as error:
        raise ConfigError(f"{where}.tokenizer: {error}") from error
    if len(files) != 1:
        raise ConfigError(f"{where}.tokenizer: expected one file, found {len(files)} at {path!r}")
    if files[0].bytes > MAX_BYTES:
        raise ConfigError(f"{where}.tokenizer: expected at most {MAX_BYTES:,} bytes, found {files[0].bytes:,}")
    return read_range(files[0], 0, files[0].bytes)
