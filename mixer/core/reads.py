"""What is read of a dataset's row groups to get some of its items: by arithmetic on how they lie in the files.

Row groups are decoded whole and kept until they are passed; large ones from their beginning on, as far as needed. So in
one go each is read once a pass. Who begins in the middle of one, as after a failure or as one of several workers, reads
what lies before it once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from mixer.core.order import BlockOrder
from mixer.core.passes import Passes
from mixer.core.streams import Windows

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Reads:
    """What is read.

    >>> Reads(1, 10, 100, 1) + Reads(1, 5, 50, 2).times(3)
    Reads(row_groups=4, rows=25, bytes=250, requests=7)
    """

    row_groups: int
    """How often a row group is begun."""
    rows: int
    """Rows that are decoded, also those that are not taken."""
    bytes: int
    """Bytes of files."""
    requests: int
    """Ranged reads."""

    def __add__(self, other: Reads) -> Reads:
        return Reads(
            self.row_groups + other.row_groups,
            self.rows + other.rows,
            self.bytes + other.bytes,
            self.requests + other.requests,
        )

    def times(self, number: int) -> Reads:
        """Return so many of these."""
        return Reads(self.row_groups * number, self.rows * number, self.bytes * number, self.requests * number)


NOTHING = Reads(0, 0, 0, 0)


@dataclass(frozen=True)
class Layout:
    """How the rows of a dataset lie in row groups, all of shape ``(row groups,)``."""

    rows: Int64s
    bytes: Int64s
    """What each takes in its file."""
    requests: Int64s
    """Ranged reads that get each of them."""
    in_pieces: npt.NDArray[np.bool_]
    """Which are decoded from their beginning as far as needed, and not whole."""

    @cached_property
    def starts(self) -> Int64s:
        """First row of each row group, and one past the last row of all."""
        return np.concatenate([[0], np.cumsum(self.rows, dtype=np.int64)])

    @cached_property
    def _sums(self) -> tuple[Int64s, Int64s]:
        """Bytes and requests of all row groups before each, and of all."""
        bytes_, requests = (
            np.concatenate([[0], np.cumsum(each, dtype=np.int64)]) for each in (self.bytes, self.requests)
        )
        return bytes_, requests

    def read(self, start: int, stop: int) -> Reads:
        """Return what is read to get the stored rows ``[start, stop)``, by one who has read nothing before.

        >>> flags = np.array([False, True])
        >>> layout = Layout(np.array([10, 100]), np.array([50, 1000]), np.array([1, 10]), flags)
        >>> layout.read(5, 60)
        Reads(row_groups=2, rows=60, bytes=550, requests=6)
        """
        if start == stop:
            return NOTHING
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        last = int(np.searchsorted(self.starts, stop, side="left")) - 1
        touched = int(np.count_nonzero(self.rows[first : last + 1]))
        bytes_, requests = (int(sums[last + 1] - sums[first]) for sums in self._sums)
        rows = int(self.starts[last + 1] - self.starts[first])
        # Of the last one, if it is large, what lies behind is left out.
        if self.in_pieces[last] and (left := int(self.starts[last + 1]) - stop):
            size = int(self.rows[last])
            rows -= left
            bytes_ -= int(self.bytes[last]) * left // size
            requests -= int(self.requests[last]) * left // size
        return Reads(touched, rows, bytes_, requests)


@dataclass(frozen=True)
class WindowLayout:
    """How the windows of a stream lie in the row groups of its ids."""

    stream: Layout
    windows: Windows

    def read(self, start: int, stop: int) -> Reads:
        """Return what is read to get the windows ``[start, stop)``, by one who has read nothing before.

        >>> layout = Layout(np.array([10, 10]), np.array([50, 50]), np.array([1, 1]), np.array([False, False]))
        >>> WindowLayout(layout, Windows(context_length=4, stride=4)).read(1, 2).row_groups
        1
        """
        return self.stream.read(*self.windows.ids(start, stop, int(self.stream.starts[-1])))


def reads_of(layout: Layout | WindowLayout, passes: Passes, start: int, stop: int) -> Reads:
    """Return what is read to get the items ``[start, stop)``, counted over all passes, in one go from nothing.

    >>> layout = Layout(np.array([2, 2]), np.array([10, 10]), np.array([1, 1]), np.array([False, False]))
    >>> reads_of(layout, Passes("web", 4), 3, 4 * 10**15 + 1).row_groups
    2000000000000000
    """
    if start == stop:
        return NOTHING
    size = passes.size
    first, last = start // size, (stop - 1) // size
    if passes.full:
        # Of a copy that holds the passes one after the other, in their orders.
        return layout.read(start, stop)
    if first == last:
        return _of_pass(layout, passes, first, start - first * size, stop - first * size)
    whole = layout.read(0, size).times(last - first - 1)
    head = _of_pass(layout, passes, first, start - first * size, size)
    return head + whole + _of_pass(layout, passes, last, 0, stop - last * size)


def _of_pass(layout: Layout | WindowLayout, passes: Passes, epoch: int, start: int, stop: int) -> Reads:
    total = NOTHING
    for first, last in _stored(passes, epoch, start, stop):
        total += layout.read(first, last)
    return total


def _stored(passes: Passes, epoch: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of stored rows that are read for positions of a pass: of a shuffled one whole blocks."""
    if (start, stop) == (0, passes.size):
        # Blocks are whole row groups (or windows of many), so their order does not matter.
        yield start, stop
        return
    order = passes.order(epoch)
    if not isinstance(order, BlockOrder):
        yield start, stop
        return
    while start < stop:
        turn, _, start = order.block_at(start)
        yield order.stored_rows(turn)
