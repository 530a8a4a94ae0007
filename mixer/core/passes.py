"""From how many items of a dataset were taken to which of its rows these are: passes over it, each in its order.

Offsets count on over all passes, so they are never ambiguous. Pass number ``offset // rows`` is the epoch, and the rest
is a position in it; in a shuffled dataset each epoch has an order of its own, by ``seed + epoch``.

Blocks are shuffled as they are read. For all rows among each other there is a prepared copy instead, which holds one
epoch after the other, already in their orders: there the orders only say which rows these are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mixer.core.order import BlockOrder, FullOrder, Rows


@dataclass(frozen=True, slots=True)
class Stretch:
    """Positions ``[start, stop)`` of one pass."""

    epoch: int
    start: int
    stop: int


@dataclass(frozen=True)
class Passes:
    """The order in which the rows of one dataset are taken, over and over.

    >>> twice = Passes("web", 3)
    >>> twice.stretches(2, 5)
    [Stretch(epoch=0, start=2, stop=3), Stretch(epoch=1, start=0, stop=2)]
    >>> [part.tolist() for part in twice.rows(2, 5)]
    [[0, 1, 1], [2, 0, 1]]
    """

    name: str
    size: int
    """Rows of one pass."""
    blocks: tuple[int, ...] | None = None
    """Rows of each block to shuffle, in stored order; None leaves rows in stored order."""
    seed: int = 0
    """Seed of the first pass; unused if rows stay in stored order."""
    full: bool = False
    """Whether all rows are shuffled among each other, in a copy; then there are no blocks."""
    _kept: tuple[int, BlockOrder | FullOrder] | None = field(default=None, init=False, repr=False, compare=False)

    def stretches(self, start: int, stop: int) -> list[Stretch]:
        """Return the items ``[start, stop)``, counted over all passes, as stretches of single passes."""
        if start == stop:
            return []
        if not self.size:
            raise ValueError(f"dataset {self.name!r}: it is empty, and items {start} to {stop} were asked for")
        found = []
        while start < stop:
            epoch, position = divmod(start, self.size)
            end = min(self.size, position + stop - start)
            found.append(Stretch(epoch, position, end))
            start += end - position
        return found

    def order(self, epoch: int) -> BlockOrder | FullOrder | None:
        """Return the order of a pass; None if it is the stored one.

        The last one asked for is kept: of all rows among each other 8 bytes a row, and 16 while it is made.
        """
        if self.blocks is None and not self.full:
            return None
        kept = self._kept
        if kept is None or kept[0] != epoch:
            # Set as a whole, since rows and their numbers are asked for by two threads.
            seed = self.seed + epoch
            if self.blocks is None:
                kept = (epoch, FullOrder(self.size, seed, self.name))
            else:
                kept = (epoch, BlockOrder(self.blocks, seed, self.name))
            object.__setattr__(self, "_kept", kept)
        return kept[1]

    def rows(self, start: int, stop: int) -> tuple[Rows, Rows]:
        """Return of the items ``[start, stop)`` each one's epoch and stored row, two arrays of shape ``(items,)``."""
        epochs, rows = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for part in self.stretches(start, stop):
            order = self.order(part.epoch)
            stored = np.arange(part.start, part.stop) if order is None else order.rows(part.start, part.stop)
            rows.append(stored)
            epochs.append(np.full(len(stored), part.epoch, dtype=np.int64))
        return np.concatenate(epochs), np.concatenate(rows)

    def item(self, offset: int) -> tuple[int, int]:
        """Return epoch and stored row of one item.

        >>> Passes("web", 3).item(4)
        (1, 1)
        """
        (part,) = self.stretches(offset, offset + 1)
        order = self.order(part.epoch)
        if order is None:
            return part.epoch, part.start
        if isinstance(order, FullOrder):
            # The whole order is not made for one item of it.
            return part.epoch, order.row(part.start)
        return part.epoch, int(order.rows(part.start, part.stop)[0])

    def offset(self, epoch: int, row: int) -> int:
        """Return which item the stored row `row` is in a pass: the inverse of `item`.

        >>> Passes("web", 3).offset(1, 1)
        4

        Raises:
            ValueError: The dataset has no such row, or the pass is numbered below 0.
        """
        if epoch < 0 or not 0 <= row < self.size:
            raise ValueError(
                f"dataset {self.name!r}: expected an epoch from 0 and a row from 0 to {self.size - 1}, found epoch "
                f"{epoch}, row {row}"
            )
        order = self.order(epoch)
        return epoch * self.size + (row if order is None else order.position(row))
