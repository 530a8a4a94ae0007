"""The plan: which shard takes which items of which dataset, as a value, before a row is read.

Every question is answered by arithmetic on the batch number, so a plan of a thousand million batches is as small
as one of ten, and any shard can be asked for in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from mixer.core.allocation import Counts
from mixer.core.exhaustion import Phase
from mixer.core.passes import Passes
from mixer.core.schedule import Schedule, Segment

State = dict[str, dict[str, int]]
"""``{"offsets": {...}, "remainder_carry": {...}}``, just what `DataBatcher.state_dict` returns."""


@dataclass(frozen=True, slots=True)
class RowRange:
    """The items ``[start, stop)`` of one dataset, counted over all passes over it.

    >>> RowRange("web", 10, 14).rows
    4
    """

    dataset: str
    start: int
    """First item, by its offset."""
    stop: int
    """One past the last item."""

    @property
    def rows(self) -> int:
        """How many items the range holds."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """What one shard is made of."""

    index: int
    path: str
    """Name of the shard's object, relative to the output."""
    first_batch: int
    batches: int
    rows: int
    ranges: tuple[RowRange, ...]
    """One range for each dataset, in the run's order; empty ranges too."""

    @property
    def stop_batch(self) -> int:
        """One past the last batch."""
        return self.first_batch + self.batches


def shard_path(index: int) -> str:
    """Return the name of a shard's object, relative to the output.

    >>> shard_path(41)
    'data/shard-00000041.parquet'
    """
    return f"data/shard-{index:08d}.parquet"


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything about a run that follows from its definition and the sizes of its datasets."""

    names: tuple[str, ...]
    """The datasets, in the order that decides ties and the order inside a batch."""
    passes: tuple[Passes, ...]
    """How each dataset is gone through."""
    phases: tuple[Phase, ...]
    """What was asked for; what the data gives of it is the schedule."""
    limits: tuple[int | None, ...]
    """Items that may be taken of each dataset; None for one without end."""
    batch_size: int
    """Items a batch."""
    batches_per_shard: int
    batches_per_row_group: int
    schedule: Schedule
    cuts: tuple[int, ...] = ()
    """Batches before which a shard ends short of its batches: the run ended there once, and was then extended."""

    @property
    def batches(self) -> int:
        """Batches of the whole run."""
        return self.schedule.batches

    @property
    def rows(self) -> int:
        """Rows of the whole run."""
        return self.schedule.items

    @property
    def sizes(self) -> tuple[int, ...]:
        """Items that each dataset holds, in one pass."""
        return tuple(passes.size for passes in self.passes)

    @property
    def repeats(self) -> bool:
        """Whether some dataset is gone through more than once."""
        taken = self.schedule.offsets_at(self.batches)
        return any(items > size for items, size in zip(taken, self.sizes, strict=True))

    @property
    def shard_count(self) -> int:
        """How many shards the run has."""
        return sum(-(-(stop - start) // self.batches_per_shard) for start, stop in self._stretches())

    def _stretches(self) -> Iterator[tuple[int, int]]:
        """Yield first batch and stop of each stretch in which only the last shard may be short."""
        return pairwise((0, *self.cuts, self.batches))

    def shard_at(self, batch: int) -> int:
        """Return the shard that batch `batch` lies in.

        Raises:
            IndexError: The run has no such batch.
        """
        return self.in_shard(batch)[0]

    def in_shard(self, batch: int) -> tuple[int, int]:
        """Return the shard that batch `batch` lies in, and which of the shard's batches it is.

        Raises:
            IndexError: The run has no such batch.
        """
        shards = 0
        for start, stop in self._stretches():
            if start <= batch < stop:
                full, place = divmod(batch - start, self.batches_per_shard)
                return shards + full, place
            shards += -(-(stop - start) // self.batches_per_shard)
        raise IndexError(f"batch {batch}: expected one from 0 to {self.batches - 1}")

    def _batches_of(self, index: int) -> tuple[int, int]:
        """Return first batch and stop of shard `index`, which the run has."""
        for start, stop in self._stretches():
            shards = -(-(stop - start) // self.batches_per_shard)
            first = start + index * self.batches_per_shard
            if index < shards:
                return first, min(first + self.batches_per_shard, stop)
            index -= shards
        raise AssertionError(f"no shard of {self.shard_count}")

    def shard(self, index: int) -> ShardSpec:
        """Return what shard `index` is made of.

        Raises:
            IndexError: The run has no such shard.
        """
        if not 0 <= index < self.shard_count:
            raise IndexError(f"shard {index}: expected one from 0 to {self.shard_count - 1}")
        first, stop = self._batches_of(index)
        starts, stops = self.schedule.offsets_at(first), self.schedule.offsets_at(stop)
        ranges = tuple(RowRange(*parts) for parts in zip(self.names, starts, stops, strict=True))
        return ShardSpec(index, shard_path(index), first, stop - first, sum(part.rows for part in ranges), ranges)

    def shards(self, start: int = 0, stop: int | None = None) -> Iterator[ShardSpec]:
        """Yield the shards ``[start, stop)`` in order; to the end of the run without `stop`."""
        for index in range(start, self.shard_count if stop is None else stop):
            yield self.shard(index)

    def counts(self, start_batch: int, stop_batch: int) -> Counts:
        """Return the items that batches ``[start_batch, stop_batch)`` take, shape ``(batches, datasets)``."""
        return self.schedule.counts(start_batch, stop_batch)

    def state_at(self, batch: int) -> State:
        """Return the state before batch `batch`: what a `DataBatcher` that made the batches before it would say."""
        return {
            "offsets": dict(zip(self.names, self.schedule.offsets_at(batch), strict=True)),
            "remainder_carry": dict(zip(self.names, self.schedule.carries_at(batch), strict=True)),
        }


def first_change(was: Plan, now: Plan) -> int | None:
    """Return the first batch of `was` that is another one, or none, in `now`; None if `now` only adds to `was`.

    Compared are rules, not only what comes of them: where a rule is another one, so are the states.
    """
    last = was.schedule.segments[-1]
    for one, other in zip_longest(was.schedule.segments, now.schedule.segments):
        if one is None:
            return None
        if other is None or not _begin_alike(one, other):
            return one.first_batch
        if other.batches < one.batches or (one is not last and other.batches != one.batches):
            return min(one.stop_batch, other.stop_batch)
    return None


def _begin_alike(one: Segment, other: Segment, joining: tuple[int, ...] = ()) -> bool:
    """Return whether two segments begin at one batch, by one rule; `joining` are offsets of datasets `other` adds."""
    begins = (one.first_batch, one.rule, one.members, (*one.offsets, *joining))
    return begins == (other.first_batch, other.rule, other.members, other.offsets)


def first_difference(was: Plan, now: Plan, stop: int) -> int | None:
    """Return the first batch before `stop` that `now` makes by another rule than `was`; None if there is none.

    `now` may have more datasets, after those of `was`.
    """
    joining = (0,) * (now.schedule.datasets - was.schedule.datasets)
    for one, other in zip_longest(was.schedule.segments, now.schedule.segments):
        if one is None or one.first_batch >= stop:
            return None
        if other is None or not _begin_alike(one, other, joining):
            return one.first_batch
        ends = [min(stop, segment.stop_batch) for segment in (one, other)]
        if ends[0] != ends[1]:
            return min(ends)
    return None
