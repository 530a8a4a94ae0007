"""What a stage asks of a tokenizer, and what documents are once they are encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mixer.core.fingerprint import JSON
from mixer.errors import ConfigError, InputError

Ids = npt.NDArray[np.unsignedinteger[Any]]
"""Token ids, shape ``(ids,)``."""
Int64s = npt.NDArray[np.int64]

ID_MAX = 2**31 - 1
"""Greatest id: windows hold them as 32-bit signed integers."""
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Encoded:
    """The ids of some consecutive documents."""

    ids: Ids
    """Of all of them, one document after the other."""
    ends: Int64s
    """Where each document ends in `ids`, shape ``(documents,)``."""

    @classmethod
    def of(cls, documents: Sequence[Sequence[int]]) -> Encoded:
        """Return documents that are lists of ids from 0 to 2**32 - 1.

        Raises:
            TypeError, ValueError, OverflowError: Some document is something else.

        >>> Encoded.of([[5, 6], [], [7]]).ends.tolist()
        [2, 2, 3]
        """
        ends = _ends(documents)
        count = int(ends[-1]) if len(ends) else 0
        return cls(np.fromiter(chain.from_iterable(documents), np.uint32, count), ends)

    @classmethod
    def of_arrays(cls, documents: Sequence[Ids]) -> Encoded:
        """Return documents that are arrays of 32-bit ids.

        >>> Encoded.of_arrays([np.array([5, 6], np.uint32), np.array([7], np.uint32)]).ids.tolist()
        [5, 6, 7]
        """
        return cls(np.concatenate([np.empty(0, np.uint32), *documents]), _ends(documents))

    def closed(self, end_of_text: int) -> Encoded:
        """Return the documents, each with `end_of_text` behind it.

        >>> Encoded.of([[5, 6], [], [7]]).closed(9).ids.tolist()
        [5, 6, 9, 9, 7, 9]
        """
        ends = self.ends + np.arange(1, len(self.ends) + 1)
        ids = np.empty(len(self.ids) + len(ends), dtype=self.ids.dtype)
        theirs = np.ones(len(ids), dtype=np.bool_)
        theirs[ends - 1] = False
        ids[theirs] = self.ids
        ids[ends - 1] = end_of_text
        return Encoded(ids, ends)

    def document_of(self, place: int) -> int:
        """Return which document the id at `place` is in, counted from 0."""
        return int(np.searchsorted(self.ends, place, side="right"))

    def documents_of(self, start: int, stop: int) -> Int64s:
        """Return which document each of the ids ``[start, stop)`` is in, shape ``(stop - start,)``.

        >>> Encoded.of([[5, 6], [], [7]]).documents_of(1, 3).tolist()
        [0, 2]
        """
        first, last = self.document_of(start), int(np.searchsorted(self.ends, stop, side="left")) + 1
        edges: Int64s = np.concatenate([[start], np.clip(self.ends[first:last], start, stop)])
        lengths = edges[1:] - edges[:-1]
        return np.repeat(np.arange(first, first + len(lengths)), lengths)


def _ends(documents: Sequence[Sized]) -> Int64s:
    return np.cumsum([len(document) for document in documents], dtype=np.int64)


class Tokenizer(Protocol):
    """Something that encodes text. It may be used by as many threads at once as it says."""

    @property
    def identity(self) -> Mapping[str, JSON]:
        """Everything that decides which ids a text becomes: kind, contents' hash, version of the library."""
        ...

    @property
    def vocabulary(self) -> int:
        """One more than the greatest id; the end-of-text id counts in."""
        ...

    @property
    def end_of_text(self) -> int:
        """The id that closes each document; no text becomes it."""
        ...

    @property
    def threads(self) -> int:
        """How many threads may call `encode` at once, and gain by it."""
        ...

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return each text's ids as if it were encoded alone: what looks like a special token is ordinary text.

        Raises:
            InputError: A text cannot be encoded.
        """
        ...


def checked(encoded: Encoded, *, vocabulary: int, end_of_text: int | None, where: str, first: int) -> Encoded:
    """Return `encoded`, whose ids are all below `vocabulary`, and none of them `end_of_text`.

    Args:
        encoded: Documents as they came.
        vocabulary: One more than the greatest id.
        end_of_text: The id that no document holds; None if any may be there.
        where: The dataset, for messages.
        first: Number of the first document.

    Raises:
        InputError: There is another id; names the document.
    """
    ids = encoded.ids
    if len(ids) and int(ids.max()) >= vocabulary:
        place = int(np.argmax(ids >= vocabulary))
        raise InputError(
            f"{where}, document {first + encoded.document_of(place):,}: expected ids below {vocabulary:,}, found "
            f"{int(ids[place]):,}; say how many ids there are in `vocabulary`, or mend the document"
        )
    if end_of_text is not None and len(places := np.flatnonzero(ids == end_of_text)):
        document = encoded.document_of(int(places[0]))
        raise InputError(
            f"{where}, document {first + document:,}: holds the end-of-text id {end_of_text} itself, which is to close "
            f"each document exactly once; leave it out there, or name another `end_of_text`"
        )
    return encoded


def chosen(asked: str | int | None, tokens: Mapping[str, int], known: Sequence[str], where: str) -> int:
    """Return the end-of-text id that is asked for: an id, a token of the vocabulary, or the only one of those `known`.

    Raises:
        ConfigError: There is no such token, or there are several to choose from.

    >>> chosen(None, {"a": 0, "</s>": 2}, ("<|endoftext|>", "</s>"), "datasets.web.window")
    2
    """
    if isinstance(asked, int):
        return asked
    if asked is not None:
        if asked not in tokens:
            raise ConfigError(
                f"{where}.end_of_text: the tokenizer has no token {asked[:_SHOWN]!r}; name one that it has"
            )
        return tokens[asked]
    found = [token for token in known if token in tokens]
    if len(found) != 1:
        what = f"several tokens that may be it ({', '.join(found)})" if found else f"none of {', '.join(known)}"
        raise ConfigError(
            f"{where}.end_of_text: missing, and the tokenizer has {what}; name the token that closes a document, or "
            f"its id"
        )
    return tokens[found[0]]
