"""Named random orders that stay what they are, whatever the version of NumPy.

An order is found by its name, a path such as ``(seed, "web", "blocks")``. The sha256 of that path keys the Philox
generator, one raw 64-bit number is drawn for each item, and a stable sort of these numbers is the order. NumPy promises
to keep the raw output of its bit generators, but not what `Generator.permutation` makes of it.

The chance that two of n numbers are equal, so that their items stay in stored order, is about n**2 / 2**65.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from mixer.core.fingerprint import fingerprint

Rows = npt.NDArray[np.int64]
"""Row numbers, shape ``(rows,)``."""
Keys = npt.NDArray[np.uint64]
"""Random numbers to sort by, shape ``(items,)``."""

_STEP = 1 << 16
"""Items that are worked on at a time, so that little is needed beside them."""
_DRAWN_ITEMS = 1 << 18
"""Numbers that are drawn at a time where all are only counted."""
_FIRST_BITS = 16
"""Of numbers, by which one place of an order is looked for: of 2**32 items some 2**16 share them."""


def random_order(items: int, *path: str | int) -> Rows:
    """Return a permutation of ``0 .. items - 1`` that depends on `path` and on `items`, and on nothing else.

    >>> random_order(5, 17, "web").tolist(), random_order(5, 18, "web").tolist()
    ([3, 4, 1, 2, 0], [3, 1, 2, 0, 4])
    """
    return sorted_places(random_keys(items, *path))


def random_keys(items: int, *path: str | int, first: int = 0) -> Keys:
    """Return the numbers by which `random_order` sorts, of the items from `first` on, shape ``(items,)``.

    >>> random_keys(5, 17, "web")[3:].tolist() == random_keys(2, 17, "web", first=3).tolist()
    True
    """
    # The generator makes four numbers at a time, and can go on at any four.
    generator = np.random.Philox(key=int(fingerprint(list(path))[:32], 16)).advance(first // 4)
    drawn: Keys = generator.random_raw(first % 4 + items)
    return drawn[first % 4 :]


def sorted_places(keys: Keys, codes: npt.NDArray[np.unsignedinteger] | None = None) -> Rows:
    """Return the places of items sorted by code, then by key, then by place: ``np.lexsort((keys, codes))``, but faster.

    Args:
        keys: Random numbers, so that few of one code are alike in their first bits, shape ``(items,)``.
        codes: Small numbers, shape ``(items,)``; all alike if left out.

    >>> keys = np.array([2**63, 5, 9], dtype=np.uint64)
    >>> sorted_places(keys).tolist(), sorted_places(keys, np.array([1, 0, 1], dtype=np.uint16)).tolist()
    ([1, 2, 0], [1, 2, 0])
    """
    # Code, as much of the key as there is room for, and place are sorted as one number: no indirect sort, no gather.
    code_bits = 0 if codes is None else int(codes.max(initial=0)).bit_length()
    place_bits = len(keys).bit_length()
    packed = keys >> np.uint64(code_bits + place_bits)
    packed <<= np.uint64(place_bits)
    if codes is not None and code_bits:
        packed |= codes.astype(np.uint64) << np.uint64(64 - code_bits)
    for start in range(0, len(packed), _STEP):
        part = packed[start : start + _STEP]
        part |= np.arange(start, start + len(part), dtype=np.uint64)
    packed.sort()
    # Neighbours whose kept bits are alike differ in their places alone.
    apart = np.uint64(1 << place_bits)
    left, right = packed[:-1], packed[1:]
    found = [np.empty(0, dtype=np.int64)]
    for start in range(0, len(left), _STEP):
        differ = left[start : start + _STEP] ^ right[start : start + _STEP]
        found.append(np.flatnonzero(differ < apart) + start)
    tied = np.concatenate(found)
    packed &= apart - np.uint64(1)
    places = packed.view(np.int64)
    if len(tied):
        # Those whose kept bits are alike stand by place so far; all such runs are put right by whole keys at once.
        runs = np.union1d(tied, tied + 1)
        some = places[runs]
        by = (some, keys[some]) if codes is None else (some, keys[some], codes[some])
        places[runs] = some[np.lexsort(by)]
    return places


def full_order(rows: int, seed: int, name: str) -> Rows:
    """Return the order of all rows of a dataset among each other, in the pass that has `seed`: 8 bytes a row.

    >>> full_order(5, 17, "web").tolist()
    [1, 3, 4, 2, 0]
    """
    return random_order(rows, *full_path(seed, name))


def full_path(seed: int, name: str) -> tuple[str | int, ...]:
    """Return the name of the order of all rows of a dataset, in the pass that has `seed`.

    >>> full_path(17, "web")
    (17, 'web', 'all')
    """
    return seed, name, "all"


def blocks_of(row_groups: npt.ArrayLike, block_rows: int) -> Rows:
    """Return the sizes of blocks of whole, consecutive row groups: each is ended by the first that fills it.

    Args:
        row_groups: Rows of each row group, in stored order.
        block_rows: Rows that are enough for a block.

    >>> blocks_of([10, 10, 10, 50, 5], 20).tolist()
    [20, 60, 5]
    """
    sizes = []
    rows = 0
    for group in np.asarray(row_groups, dtype=np.int64).tolist():
        rows += group
        if rows >= block_rows:
            sizes.append(rows)
            rows = 0
    if rows:
        sizes.append(rows)
    return np.array(sizes, dtype=np.int64)


@dataclass(frozen=True)
class BlockOrder:
    """The rows of a dataset in one pass: blocks in a random order, and the rows of each in a random order of its own.

    To begin anywhere, one block is read.

    >>> order = BlockOrder((4, 2, 3), seed=17, name="web")
    >>> order.rows(0, 9).tolist() == order.rows(0, 5).tolist() + order.rows(5, 9).tolist()
    True
    """

    blocks: tuple[int, ...]
    """Rows of each block, in stored order."""
    seed: int
    """Seed of this pass; that of the next one is greater by 1."""
    name: str
    """The dataset; with one seed for all, each still has an order of its own."""
    _kept: tuple[int, Rows] | None = field(default=None, init=False, repr=False, compare=False)

    @cached_property
    def _starts(self) -> Rows:
        """First stored row of each block, in stored order."""
        return np.concatenate([[0], np.cumsum(self.blocks, dtype=np.int64)])

    @cached_property
    def _order(self) -> Rows:
        """Which block comes when."""
        return random_order(len(self.blocks), self.seed, self.name, "blocks")

    @cached_property
    def _ends(self) -> Rows:
        """Position after each block, in the order in which they come."""
        return np.cumsum(np.asarray(self.blocks, dtype=np.int64)[self._order])

    def rows(self, start: int, stop: int) -> Rows:
        """Return the stored row numbers that stand at positions ``[start, stop)`` of the pass.

        Raises:
            ValueError: The positions are not in the dataset.
        """
        total = int(self._starts[-1])
        if not 0 <= start <= stop <= total:
            raise ValueError(f"expected 0 <= start <= stop <= {total}, found start={start}, stop={stop}")
        parts = [np.empty(0, dtype=np.int64)]
        while start < stop:
            turn, first, last = self.block_at(start)
            end = min(stop, last)
            parts.append(self.stored_rows(turn)[0] + self.inside(turn)[start - first : end - first])
            start = end
        return np.concatenate(parts)

    def position(self, row: int) -> int:
        """Return the position in the pass at which the stored row `row` comes: the inverse of `rows`.

        >>> order = BlockOrder((4, 2, 3), seed=17, name="web")
        >>> [order.position(row) for row in order.rows(0, 9).tolist()]
        [0, 1, 2, 3, 4, 5, 6, 7, 8]

        Raises:
            ValueError: The dataset has no such row.
        """
        total = int(self._starts[-1])
        if not 0 <= row < total:
            raise ValueError(f"row {row}: expected one from 0 to {total - 1}")
        block = int(np.searchsorted(self._starts, row, side="right")) - 1
        turn = int(np.flatnonzero(self._order == block)[0])
        place = int(np.flatnonzero(self.inside(turn) == row - int(self._starts[block]))[0])
        return int(self._ends[turn]) - self.blocks[block] + place

    def block_at(self, position: int) -> tuple[int, int, int]:
        """Return which block holds `position`, by its turn, its first position, and one past its last."""
        turn = int(np.searchsorted(self._ends, position, side="right"))
        last = int(self._ends[turn])
        return turn, last - self.blocks[self._order[turn]], last

    def stored_rows(self, turn: int) -> tuple[int, int]:
        """Return the first stored row of the block that comes at `turn`, and one past its last."""
        block = int(self._order[turn])
        return int(self._starts[block]), int(self._starts[block + 1])

    def inside(self, turn: int) -> Rows:
        """Return the order within the block that comes at `turn`, as row numbers from its first."""
        kept = self._kept
        if kept is None or kept[0] != turn:
            block = int(self._order[turn])
            kept = (turn, random_order(self.blocks[block], self.seed, self.name, "rows", block))
            object.__setattr__(self, "_kept", kept)
        return kept[1]


@dataclass(frozen=True)
class FullOrder:
    """The rows of a dataset in one pass, all in a random order; 8 bytes a row are kept once it was asked for.

    One row, or one position, is told without the order: numbers are drawn a few at a time, and counted.

    >>> FullOrder(5, seed=17, name="web").rows(1, 4).tolist()
    [3, 4, 2]
    """

    size: int
    """Rows of the dataset."""
    seed: int
    """Seed of this pass; that of the next one is greater by 1."""
    name: str
    """The dataset; with one seed for all, each still has an order of its own."""

    @cached_property
    def _order(self) -> Rows:
        return full_order(self.size, self.seed, self.name)

    def rows(self, start: int, stop: int) -> Rows:
        """Return the stored row numbers that stand at positions ``[start, stop)`` of the pass.

        Raises:
            ValueError: The positions are not in the dataset.
        """
        if not 0 <= start <= stop <= self.size:
            raise ValueError(f"expected 0 <= start <= stop <= {self.size}, found start={start}, stop={stop}")
        return self._order[start:stop]

    def row(self, position: int) -> int:
        """Return the stored row at one position, as `rows` does; all numbers are drawn twice, and next to none kept.

        >>> [FullOrder(5, seed=17, name="web").row(position) for position in range(5)]
        [1, 3, 4, 2, 0]

        Raises:
            ValueError: The position is not in the dataset.
        """
        if not 0 <= position < self.size:
            raise ValueError(f"position {position}: expected one from 0 to {self.size - 1}")
        shift = np.uint64(64 - _FIRST_BITS)
        counts = np.zeros(1 << _FIRST_BITS, dtype=np.int64)
        for _, keys in self._drawn():
            counts += np.bincount((keys >> shift).astype(np.int64), minlength=len(counts))
        ends = np.cumsum(counts)
        first_bits = int(np.searchsorted(ends, position, side="right"))
        # All that begin alike, of which one is looked for.
        alike = []
        for start, keys in self._drawn():
            places = np.flatnonzero(keys >> shift == first_bits)
            alike.append((keys[places], start + places))
        keys, rows = (np.concatenate(parts) for parts in zip(*alike, strict=True))
        place = position - int(ends[first_bits] - counts[first_bits])
        return int(rows[np.argsort(keys, kind="stable")[place]])

    def position(self, row: int) -> int:
        """Return the position in the pass at which the stored row `row` comes; all numbers are drawn, and none kept.

        >>> [FullOrder(5, seed=17, name="web").position(row) for row in (1, 3, 4, 2, 0)]
        [0, 1, 2, 3, 4]

        Raises:
            ValueError: The dataset has no such row.
        """
        if not 0 <= row < self.size:
            raise ValueError(f"row {row}: expected one from 0 to {self.size - 1}")
        (key,) = random_keys(1, *full_path(self.seed, self.name), first=row)
        before = 0
        for start, keys in self._drawn():
            # Of equal numbers that of the row stored first comes first.
            earlier = max(0, row - start)
            before += int(np.count_nonzero(keys[:earlier] <= key) + np.count_nonzero(keys[earlier:] < key))
        return before

    def _drawn(self) -> Iterator[tuple[int, Keys]]:
        """Yield all numbers, some at a time, each time with the row of the first."""
        path = full_path(self.seed, self.name)
        for start in range(0, self.size, _DRAWN_ITEMS):
            yield start, random_keys(min(_DRAWN_ITEMS, self.size - start), *path, first=start)
