"""Tokenizers of the library `tiktoken`, from a ``.tiktoken`` file: a token a line, in base64, and its rank."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from typing import Any

from mixer.core.fingerprint import JSON, sha256_hex
from mixer.errors import ConfigError, InputError
from mixer.tokenizing.base import ID_MAX, Encoded, chosen

_SPACES = r"\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|" + _SPACES
_CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|" + _SPACES
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_O200K = "|".join(
    [
        *(
            rf"[^\r\n\p{{L}}\p{{N}}]?{letters}(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
            for letters in (f"{_UPPER}*{_LOWER}+", f"{_UPPER}+{_LOWER}*")
        ),
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+",
        _SPACES,
    ]
)
ENCODINGS: Mapping[str, tuple[str, int]] = {
    "gpt2": (_GPT2, 50_256),
    "r50k_base": (_GPT2, 50_256),
    "p50k_base": (_GPT2, 50_256),
    "cl100k_base": (_CL100K, 100_257),
    "o200k_base": (_O200K, 199_999),
}
"""How published encodings part a text before they look tokens up, and the id of their ``<|endoftext|>``."""
END_OF_TEXT = "<|endoftext|>"


def read_ranks(data: bytes, where: str) -> dict[bytes, int]:
    r"""Return the rank of each token in the contents of a ``.tiktoken`` file.

    Raises:
        ConfigError: They are something else; names the line.

    >>> read_ranks(b"IQ== 0\nIg== 1\n", "datasets.web.window")
    {b'!': 0, b'"': 1}
    """
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.splitlines(), start=1):
        if not line:
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise ConfigError(
                f"{where}.tokenizer: expected lines of a token in base64 and its rank, found something else in line "
                f"{number}"
            ) from None
    if not ranks or min(ranks.values()) < 0 or len(set(ranks.values())) != len(ranks):
        raise ConfigError(f"{where}.tokenizer: expected tokens with a rank of their own each, from 0")
    if max(ranks.values()) > ID_MAX:
        raise ConfigError(f"{where}.tokenizer: expected ids up to {ID_MAX:,}, found {max(ranks.values()):,}")
    return ranks


class RanksTokenizer:
    """A tokenizer of the library `tiktoken`; as many threads as there are cores encode at once."""

    def __init__(self, data: bytes, *, pattern: str | None, end_of_text: str | int | None, where: str) -> None:
        """Take the tokenizer whose ranks `data` says.

        Args:
            data: Contents of a ``.tiktoken`` file.
            pattern: Name of a published encoding, or the regular expression that parts a text.
            end_of_text: Id of the token that closes a document; the published one, if left out.
            where: The place in the config, for messages.

        Raises:
            ConfigError: The library is not there, or something is missing or wrong.
        """
        try:
            import tiktoken  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"{where}.tokenizer: needs the package `tiktoken`; pip install 'mixer[tiktoken]'"
            ) from error
        if pattern is None:
            raise ConfigError(
                f"{where}.pattern: missing; a .tiktoken file needs one of {', '.join(ENCODINGS)}, or the regular "
                f"expression that parts a text"
            )
        known = ENCODINGS.get(pattern)
        expression = known[0] if known else pattern
        self.end_of_text = chosen(end_of_text, {END_OF_TEXT: known[1]} if known else {}, (END_OF_TEXT,), where)
        ranks = read_ranks(data, where)
        _check_bytes(ranks, where)
        try:
            # The special token is never looked up; but without any the library looks for one at each character.
            self._encoding: Any = tiktoken.Encoding(
                "mixer",
                pat_str=expression,
                mergeable_ranks=ranks,
                special_tokens={END_OF_TEXT: self.end_of_text},
            )
        except ValueError as error:
            raise ConfigError(
                f"{where}.pattern: expected a regular expression, or one of {', '.join(ENCODINGS)}: {error}"
            ) from error
        self.vocabulary = max(*ranks.values(), self.end_of_text) + 1
        self.threads = os.cpu_count() or 1
        self.identity: Mapping[str, JSON] = {
            "library": "tiktoken",
            "version": tiktoken.__version__,
            "sha256": sha256_hex(data),
            "pattern": expression,
        }

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of each text.

        Raises:
            InputError: The regular expression gives up on a text.
        """
        parts = []
        for place, text in enumerate(texts):
            try:
                parts.append(self._encoding.encode_to_numpy(text, disallowed_special=()))
            except ValueError as error:
                raise InputError(f"text {place + 1} of {len(texts)}: {error}") from error
        return Encoded.of_arrays(parts)


def _check_bytes(ranks: Mapping[bytes, int], where: str) -> None:
    missing = next((byte for byte in range(256) if bytes([byte]) not in ranks), None)
    if missing is not None:
        # The library would end the thread at the first text that holds it.
        raise ConfigError(f"{where}.tokenizer: expected a token for each byte, found none for byte {missing}")
