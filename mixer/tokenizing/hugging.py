"""Tokenizers of the library `tokenizers`, from the ``tokenizer.json`` that it saves."""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mixer.core.fingerprint import JSON, sha256_hex
from mixer.errors import ConfigError, InputError
from mixer.tokenizing.base import Encoded, Ids, chosen
from mixer.tokenizing.pieces import Pieces, joined

KNOWN_ENDS = (
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<|eos|>",
    "<|end\u2581of\u2581sentence|>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)
"""What tokenizers call the token that closes a document."""


class HuggingTokenizer:
    """A tokenizer of the library `tokenizers`; it encodes on all cores by itself, unless TOKENIZERS_PARALLELISM is off.

    A very long text is encoded in pieces, since the library takes about 150 bytes of memory for each one of
    text; see `mixer.tokenizing.pieces` for why the ids are the same.
    """

    threads = 2
    """The second one prepares and takes apart what the library is given, while it works for the first."""

    def __init__(
        self,
        data: bytes,
        *,
        end_of_text: str | int | None,
        where: str,
        pieces: Pieces = Pieces(),  # noqa: B008 - a frozen value
    ) -> None:
        """Take the tokenizer that `data` says.

        Args:
            data: Contents of a ``tokenizer.json``.
            end_of_text: The token that closes a document, or its id; None for the one that it is known to have.
            where: The place in the config, for messages.
            pieces: How long texts are cut.

        Raises:
            ConfigError: The library is not there, `data` is no tokenizer, or it has no such token.
        """
        try:
            import tokenizers  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"{where}.tokenizer: needs the package `tokenizers`; pip install 'mixer[tokenizers]'"
            ) from error
        try:
            self._tokenizer: Any = tokenizers.Tokenizer.from_str(data.decode())
        except Exception as error:  # the library raises nothing narrower
            raise ConfigError(f"{where}.tokenizer: expected a tokenizer.json, found something else: {error}") from error
        # A saved tokenizer may cut texts or fill them up; a document is all of its ids, and no others.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        tokens = self._tokenizer.get_vocab(with_added_tokens=True)
        self.end_of_text = chosen(end_of_text, tokens, KNOWN_ENDS, where)
        self.vocabulary = max(max(tokens.values(), default=0), self.end_of_text) + 1
        self.identity: Mapping[str, JSON] = {
            "library": "tokenizers",
            "version": tokenizers.__version__,
            "sha256": sha256_hex(data),
        }
        self._pieces = pieces

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of each text.

        Raises:
            InputError: The library gives up on one of them.
        """
        try:
            return self._encoded(texts)
        except Exception as error:  # the library raises nothing narrower
            raise _failed(len(texts), error) from error
        except BaseException as error:
            # What ends its own code at once, as a regular expression that takes too long does, is no `Exception`.
            if type(error).__name__ != "PanicException":
                raise
            raise _failed(len(texts), error) from error

    def _encoded(self, texts: Sequence[str]) -> Encoded:
        long = {place for place, text in enumerate(texts) if len(text) > self._pieces.longest}
        short = iter(self._ids([text for place, text in enumerate(texts) if place not in long]))
        parts = [self._long(text) if place in long else next(short) for place, text in enumerate(texts)]
        return Encoded.of_arrays(parts)

    def _ids(self, texts: list[str]) -> list[Ids]:
        found = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        # The quickest way out of a list of integers, by far.
        return [np.frombuffer(array("I", one.ids), np.uint32) for one in found]

    def _long(self, text: str) -> Ids:
        """Return the ids of a long text, encoded in pieces as many at once as there are cores."""
        at_once = os.cpu_count() or 1
        places = self._pieces.places(len(text))
        parts: list[Ids] = []
        before: Any = None
        for first in range(0, len(places), at_once):
            some = places[first : first + at_once]
            found = self._tokenizer.encode_batch([text[start:stop] for start, stop in some], add_special_tokens=False)
            for (start, _), one in zip(some, found, strict=True):
                piece = (np.frombuffer(array("I", one.ids), np.uint32), _starts(one, start))
                before = piece if before is None else joined(before, piece, parts)
                if before is None:
                    # Nowhere do neighbours agree, so what lies far apart belongs together.
                    return self._ids([text])[0]
        parts.append(before[0])
        return np.concatenate(parts)


def _failed(texts: int, error: BaseException) -> InputError:
    return InputError(f"the tokenizer fails on one of {texts} texts: {error}")


def _starts(encoding: Any, start: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return where each token begins in the whole text, of which this piece begins at `start`."""
    offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    starts: np.ndarray[Any, np.dtype[np.int64]] = offsets[:, 0] + start
    return starts
