"""Configs from files, text and plain mappings, with every problem told at once and its place."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mixer.config import yaml_places
from mixer.config.models import MixConfig
from mixer.config.problems import dotted, problems_of, told
from mixer.errors import ConfigError

MAX_BYTES = 16 << 20
"""Longest config that is read; a hundred thousand datasets fit."""


def config_from(values: Mapping[str, Any]) -> MixConfig:
    """Return the config that a plain mapping, as from JSON or Python, describes.

    Raises:
        ConfigError: It is none; names every key in the way.

    >>> config_from({"output": "out", "batch_size": 4, "batches_per_shard": 2, "batches": 0, "datasets": {}})
    Traceback (most recent call last):
    mixer.errors.ConfigError: batches: expected a positive whole number, found 0
    datasets: expected a mapping from names to a path and a weight each, found an empty mapping
    """
    try:
        return MixConfig.model_validate(values if isinstance(values, dict) else dict(values))
    except ValidationError as error:
        raise ConfigError(told(problems_of(error))) from None


def load_config(path: str | os.PathLike[str]) -> MixConfig:
    """Return the config in the YAML file `path`, or on standard input if it is ``-``.

    Raises:
        ConfigError: The file cannot be read, or is no config; names every line in the way.
    """
    where = "standard input" if path == "-" else os.fspath(path)
    data = _read_bytes(path, where)
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{where}: expected a config of at most {MAX_BYTES:,} bytes, found more")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{where}:{line}: not UTF-8, from byte {error.start}; save the file as UTF-8") from None
    return parse_config(text, where)


def _read_bytes(path: str | os.PathLike[str], where: str) -> bytes:
    try:
        if path == "-":
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with Path(path).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{where}: no such file; `mixer init` writes a config to start from") from None
    except IsADirectoryError:
        raise ConfigError(f"{where}: is a folder; expected a config file in YAML") from None
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{where!r}: cannot be a file: {error}") from None


def parse_config(text: str, where: str) -> MixConfig:
    """Return the config that `text`, YAML, describes; `where` names it in messages.

    Raises:
        ConfigError: It is none; a line for each problem, in the order of the text.

    >>> parse_config("output: out", "mix.yaml")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    mixer.errors.ConfigError: mix.yaml:1: batch_size: missing; expected a positive whole number
    ...
    """
    try:
        document = yaml_places.read(text)
    except yaml_places.UnreadableError as error:
        raise ConfigError(f"{where}:{error.line}: {error}") from None
    if document.value is None and not document.problems:
        raise ConfigError(f"{where}: empty; `mixer init` writes a config to start from")
    problems = [(problem.line, problem.path, problem.text) for problem in document.problems]
    config = None
    try:
        config = MixConfig.model_validate(document.value)
    except ValidationError as error:
        doubted = {problem.path for problem in document.problems if problem.value_unknown}
        problems += [
            (document.line(path), path, text)
            for path, text in problems_of(error)
            if not any(path[:length] in doubted for length in range(len(path) + 1))
        ]
    if problems or config is None:
        in_order = sorted(problems, key=lambda problem: problem[0])
        raise ConfigError("\n".join(f"{where}:{line}: {dotted(path)}{text}" for line, path, text in in_order))
    return config
