"""Long texts in pieces that overlap, and their ids put together where neighbouring pieces agree.

Tokenizers look at a text's surroundings only so far: at a word, a line, a run of spaces. Two pieces that both hold a
stretch of text so encode it differently near their edges at the most. They are joined at the place in the middle
of what they share where `agree` tokens before it and after it are the same ones at the same places. Where there is no
such place, the text cannot be cut, and is encoded whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mixer.tokenizing.base import Ids, Int64s

Piece = tuple[Ids, Int64s]
"""The ids of a piece, and where in the whole text each of their tokens begins; both of shape ``(ids,)``."""

AGREE = 64
"""Tokens on each side of a joint that are the same in both pieces."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """How long texts are cut.

    >>> Pieces(characters=10, shared=4).places(23)
    [(0, 10), (6, 16), (12, 22), (18, 23)]
    """

    longest: int = 1 << 20
    """Characters of the longest text that is not cut."""
    characters: int = 1 << 18
    """Length of a piece."""
    shared: int = 1 << 13
    """Characters that a piece has in common with the next one."""

    def places(self, length: int) -> list[tuple[int, int]]:
        """Return where the pieces of a text of `length` characters begin and end."""
        step = self.characters - self.shared
        last = max(0, -(-(length - self.characters) // step))
        return [(start, min(length, start + self.characters)) for start in range(0, last * step + 1, step)]


def joined(first: Piece, second: Piece, done: list[Ids]) -> Piece | None:
    """Join two pieces: append what is before the joint to `done`, and return the rest; None if there is no joint.

    >>> done = []
    >>> first = np.arange(300, dtype=np.uint32), np.arange(0, 900, 3)
    >>> rest = joined(first, (np.arange(100, 400, dtype=np.uint32), np.arange(300, 1200, 3)), done)
    >>> np.concatenate([*done, rest[0]]).tolist() == list(range(400))
    True
    """
    (ids, starts), (more_ids, more_starts) = first, second
    if not len(more_starts):
        return None
    low = int(np.searchsorted(starts, more_starts[0]))
    # Where each of the first piece's tokens would stand in the second.
    at = np.searchsorted(more_starts, starts[low:])
    there = at < len(more_starts)
    places, at = low + np.flatnonzero(there), at[there]
    # Several tokens may begin at one place (a character of several bytes): of these the first is found.
    alone = np.concatenate([[True], starts[places[1:]] != starts[places[1:] - 1]]) if len(places) else there[:0]
    same = (starts[places] == more_starts[at]) & (ids[places] == more_ids[at]) & alone
    for candidate in _from_middle(np.flatnonzero(same)):
        here, other = int(places[candidate]), int(at[candidate])
        before, behind = slice(here - AGREE, here + AGREE), slice(other - AGREE, other + AGREE)
        if (
            min(here, other) >= AGREE
            and here + AGREE <= len(ids)
            and other + AGREE <= len(more_ids)
            and np.array_equal(ids[before], more_ids[behind])
            and np.array_equal(starts[before], more_starts[behind])
        ):
            done.append(ids[:here])
            return more_ids[other:], more_starts[other:]
    return None


def _from_middle(places: Int64s) -> list[int]:
    """Return `places`, those in the middle first.

    >>> _from_middle(np.array([10, 11, 12, 13]))
    [12, 11, 13, 10]
    """
    order = np.argsort(np.abs(2 * np.arange(len(places)) - len(places)), kind="stable")
    found: list[int] = places[order].tolist()
    return found
