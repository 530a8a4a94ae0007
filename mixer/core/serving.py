"""Which rows of which row group a trainer needs: by arithmetic on batch numbers, before a row is read.

Batch `b` of a run is its rows ``[b * B, (b + 1) * B)``, with `B` the batch size; only the very last batch may have
fewer. Row groups are whole batches. Of every batch rank `r` of `R` takes the rows ``r, r + R, r + 2R, ...``, so all
ranks take part in every batch, and the batch does not depend on `R`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Part:
    """The part of every batch that one of several trainers takes.

    >>> [Part(rank, 3).rows(8) for rank in range(3)], Part().rows(8)
    ([3, 3, 2], 8)
    """

    rank: int = 0
    world_size: int = 1

    def rows(self, batch_rows: int) -> int:
        """Return how many rows of a batch of `batch_rows` are its own."""
        return max(0, -(-(batch_rows - self.rank) // self.world_size))


@dataclass(frozen=True, slots=True)
class Turn:
    """Which row groups one of several workers reads: every `workers`-th of those that are needed.

    >>> [group for group in range(7) if Turn(1, 3).has(group)]
    [1, 4]
    """

    worker: int = 0
    workers: int = 1

    def has(self, group: int) -> bool:
        """Return whether the `group`-th row group that is needed is its own."""
        return group % self.workers == self.worker


@dataclass(frozen=True, slots=True)
class GroupRead:
    """What is needed of one row group."""

    group: int
    """Its place in the shard."""
    first_batch: int
    """Its first batch, whether that is needed or not."""
    rows: int
    """Its rows."""
    batches: range
    """The batches that are needed, by their numbers in the run; there are some."""


def group_reads(group_rows: Sequence[int], first_batch: int, batch_size: int, wanted: range) -> Iterator[GroupRead]:
    """Yield the row groups of a shard that hold batches of `wanted`, in order.

    Args:
        group_rows: Rows of each row group.
        first_batch: The shard's first batch.
        batch_size: Rows of a batch.
        wanted: Numbers of the batches that are needed, rising.

    >>> [(read.group, read.batches) for read in group_reads([8, 8, 3], 10, 4, range(13, 99))]
    [(1, range(13, 14)), (2, range(14, 15))]
    >>> [(read.group, list(read.batches)) for read in group_reads([8, 8, 8], 0, 4, range(1, 99, 4))]
    [(0, [1]), (2, [5])]
    """
    for group, rows in enumerate(group_rows):
        stop_batch = first_batch - (-rows // batch_size)
        batches = within(wanted, first_batch, stop_batch)
        if batches:
            yield GroupRead(group, first_batch, rows, batches)
        first_batch = stop_batch


def within(numbers: range, start: int, stop: int) -> range:
    """Return those of `numbers`, which rise, that lie in ``[start, stop)``.

    >>> within(range(1, 99, 4), 6, 14), within(range(5, 9), 0, 5)
    (range(9, 14, 4), range(5, 5))
    """
    missed = max(0, -(-(start - numbers.start) // numbers.step))
    first = numbers.start + missed * numbers.step
    return range(first, max(first, min(stop, numbers.stop)), numbers.step)


def edges(read: GroupRead, batch_size: int, part: Part) -> list[int]:
    """Return where the batches of `read` begin in the rows that `part` takes of them, and where the last one ends.

    >>> edges(GroupRead(0, 5, 10, range(5, 8)), 4, Part(1, 2))
    [0, 2, 4, 5]
    """
    found = [0]
    for batch in read.batches:
        rows = min(batch_size, read.rows - (batch - read.first_batch) * batch_size)
        found.append(found[-1] + part.rows(rows))
    return found


def indices(read: GroupRead, batch_size: int, part: Part) -> slice | Int64s:
    """Return which rows of the row group `part` takes of the batches of `read`; a slice if they lie in one piece.

    >>> indices(GroupRead(0, 5, 10, range(5, 8)), 4, Part(1, 2)).tolist()
    [1, 3, 5, 7, 9]
    >>> indices(GroupRead(0, 5, 10, range(6, 8)), 4, Part())
    slice(4, 10, None)
    """
    starts = (np.asarray(read.batches, np.int64) - read.first_batch) * batch_size
    if part.world_size == 1 and read.batches.step == 1:
        return slice(int(starts[0]), min(read.rows, int(starts[-1]) + batch_size))
    own = np.arange(part.rank, batch_size, part.world_size, dtype=np.int64)
    rows = (starts[:, None] + own[None, :]).ravel()
    return rows[rows < read.rows]


def whole_batches(group_rows: Sequence[int], batch_size: int, rows: int) -> bool:
    """Return whether row groups are whole batches, `rows` in all; the last batch of the last one may be short.

    >>> whole_batches([8, 8, 3], 4, 19), whole_batches([6, 8], 4, 14), whole_batches([8, 0], 4, 8)
    (True, False, False)
    """
    ends = np.cumsum([0, *group_rows])
    return (
        bool(ends[-1] == rows)
        and all(start < stop for start, stop in pairwise(ends.tolist()))
        and not (ends[:-1] % batch_size).any()
    )


def uneven(batch_size: int, world_size: int) -> str | None:
    """Return what trainers must know if a batch cannot be shared evenly; None if it can.

    >>> uneven(8, 3)
    'of every batch of 8 rows, ranks 0 to 1 take 3 and ranks 2 to 2 take 2'
    >>> uneven(8, 4) is None
    True
    """
    least, more = divmod(batch_size, world_size)
    if not more:
        return None
    return (
        f"of every batch of {batch_size} rows, ranks 0 to {more - 1} take {least + 1} and ranks {more} to "
        f"{world_size - 1} take {least}"
    )
