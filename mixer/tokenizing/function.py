"""Tokenizers that are a function of the user's: from many texts to as many lists of ids."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mixer.core.fingerprint import JSON, sha256_hex
from mixer.errors import ConfigError, InputError
from mixer.tokenizing.base import ID_MAX, Encoded

_IMPORT_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")

Function = Callable[[list[str]], Sequence[Sequence[int]]]


def is_import_path(text: str) -> bool:
    """Return whether `text` is like ``package.module:function``.

    >>> is_import_path("words.simple:encode"), is_import_path("s3://bucket/tokenizer.json"), is_import_path("C:/a.json")
    (True, False, False)
    """
    return _IMPORT_PATH.fullmatch(text) is not None


class FunctionTokenizer:
    """A function that encodes; one thread calls it, and it may use as many as it likes.

    Which function it was is told by the version that the user gives it, or else by the hash of its module's file. What
    that imports is not looked at: whoever changes it gives another version.
    """

    threads = 1

    def __init__(
        self,
        path: str,
        *,
        vocabulary: int | None,
        end_of_text: str | int | None,
        version: str | None,
        where: str,
    ) -> None:
        """Import the function at `path`, ``module:function``.

        Args:
            path: The function.
            vocabulary: One more than the greatest id.
            end_of_text: The id that closes a document; the function itself gives no such id.
            version: What tells the function apart from what it was; None for the hash of its module's file.
            where: The place in the config, for messages.

        Raises:
            ConfigError: It cannot be imported, or something is not said.
        """
        if vocabulary is None:
            raise ConfigError(f"{where}.vocabulary: missing; a function does not tell how many ids there are")
        if not isinstance(end_of_text, int):
            raise ConfigError(
                f"{where}.end_of_text: expected the id that closes a document, found {end_of_text!r}; a function does "
                f"not tell which it is"
            )
        self.end_of_text = end_of_text
        self.vocabulary = max(vocabulary, end_of_text + 1)
        self._path = path
        self._function = _imported(path, where)
        self.identity: Mapping[str, JSON] = {
            "function": path,
            "version": version if version is not None else _source_hash(path, where),
        }

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of each text.

        Raises:
            InputError: The function fails, or returns something else than lists of ids for as many texts.
        """
        try:
            found = list(self._function(list(texts)))
        except Exception as error:
            raise InputError(f"{self._path} failed: {type(error).__name__}: {error}") from error
        if len(found) != len(texts):
            raise InputError(f"{self._path}: expected {len(texts)} lists for as many texts, found {len(found)}")
        try:
            return Encoded.of(found)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(
                f"{self._path}: expected lists of whole numbers from 0 to {ID_MAX:,}, found something else: {error}"
            ) from error


def _imported(path: str, where: str) -> Function:
    module, _, name = path.partition(":")
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{where}.tokenizer: {path!r} cannot be imported: {error}; check its spelling, and that Python finds the "
            f"module (PYTHONPATH)"
        ) from error
    if not callable(found):
        raise ConfigError(f"{where}.tokenizer: expected a function, found {path!r}, a {type(found).__name__}")
    return found


def _source_hash(path: str, where: str) -> str:
    spec = importlib.util.find_spec(path.partition(":")[0])
    origin = spec.origin if spec is not None and spec.has_location else None
    if origin is None:
        raise ConfigError(f"{where}.version: missing; {path!r} is in no file whose hash could tell which it is")
    return "sha256:" + sha256_hex(Path(origin).read_bytes())
