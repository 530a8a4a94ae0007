"""What follows from a plan by arithmetic and is asked before a run: where datasets and phases end, what ranks get."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from mixer.core.plan import Plan
from mixer.core.schedule import Schedule, Segment

MOST_RANKS = 1024


def ending_batches(plan: Plan) -> tuple[int | None, ...]:
    """Return for each dataset the batch that takes the last item it may give; None if something of it is left."""
    taken = plan.schedule.offsets_at(plan.batches)
    ending = [place for place, limit in enumerate(plan.limits) if limit is not None and limit == taken[place] > 0]
    found: list[int | None] = [None] * len(plan.limits)
    for place, batch in first_reaching(plan.schedule, {place: taken[place] for place in ending}).items():
        found[place] = batch
    return tuple(found)


def first_reaching(schedule: Schedule, items: dict[int, int]) -> dict[int, int]:
    """Return for each dataset in `items`, by its place, the first batch after which so many items of it are taken.

    Args:
        schedule: A schedule that comes to all of them.
        items: A number from 1 for each dataset that is asked for.

    >>> from mixer.core.allocation import Allocation
    >>> from mixer.core.schedule import single
    >>> first_reaching(single(Allocation((3, 2, 1), 4), batches=10), {0: 6, 2: 2})
    {0: 2, 2: 2}
    """
    found: dict[int, int] = {}
    by_segment: dict[int, dict[int, int]] = {}
    for place, number in items.items():
        # The last one that begins with fewer.
        later = bisect_left(schedule.segments, number, key=lambda segment: segment.offsets[place])
        by_segment.setdefault(later - 1, {})[place] = number
    for segment, here in by_segment.items():
        found |= _within(schedule.segments[segment], here)
    return {place: found[place] for place in items}


def _after(segment: Segment, batches: int) -> dict[int, int]:
    """Return the items taken of every dataset after so many batches of a segment."""
    taken = dict(enumerate(segment.offsets))
    for member, more in zip(segment.members, segment.rule.offsets_at(batches), strict=True):
        taken[member] += more
    return taken


def _within(segment: Segment, items: dict[int, int]) -> dict[int, int]:
    """Return `first_reaching` of datasets that come to it in `segment`; those that end together are sought together."""
    found: dict[int, int] = {}
    # Of those in a stretch, none is there at its beginning, and all are at its end.
    stretches = [(0, segment.batches, items)]
    while stretches:
        low, high, here = stretches.pop()
        if not here:
            continue
        if high - low == 1:
            found |= dict.fromkeys(here, segment.first_batch + low)
            continue
        middle = (low + high) // 2
        taken = _after(segment, middle)
        reached = {place: number for place, number in here.items() if taken[place] >= number}
        stretches += [
            (low, middle, reached),
            (middle, high, {place: number for place, number in here.items() if place not in reached}),
        ]
    return found


def phase_stops(plan: Plan) -> tuple[int, ...]:
    """Return for each phase one past its last batch; a phase that the data cuts off is short, or has none."""
    stops = [0] * len(plan.phases)
    for segment in plan.schedule.segments:
        stops[segment.phase] = segment.stop_batch
    return tuple(accumulate(stops, max))


@dataclass(frozen=True, slots=True)
class Ranks:
    """What each of some trainers gets, two ways: rows ``r, r+R, ...`` of every batch, or whole shards ``r, r+R, ...``.

    >>> ranks = Ranks.of(3, batch_rows=8, shards=9)
    >>> ranks.batch_rows, ranks.batch_divides, ranks.shards, ranks.shards_divide
    ((2, 3), False, (3, 3), True)
    """

    ranks: int
    batch_rows: tuple[int, int]
    """Least and most rows of a full batch that a rank gets."""
    shards: tuple[int, int]
    """Least and most shards that a rank gets if it takes whole ones."""

    @classmethod
    def of(cls, ranks: int, *, batch_rows: int, shards: int) -> Ranks:
        """Return what `ranks` trainers get of batches of so many rows and of so many shards."""
        return cls(ranks, _dealt(batch_rows, ranks), _dealt(shards, ranks))

    @property
    def batch_divides(self) -> bool:
        """Whether every rank gets as many rows of a batch."""
        return self.batch_rows[0] == self.batch_rows[1]

    @property
    def shards_divide(self) -> bool:
        """Whether every rank gets as many shards."""
        return self.shards[0] == self.shards[1]


def _dealt(things: int, ranks: int) -> tuple[int, int]:
    return things // ranks, -(-things // ranks)


def common_ranks(plan: Plan) -> tuple[Ranks, ...]:
    """Return what 2, 4, 8, ... trainers get, as long as there are rows of a batch, or shards, for so many."""
    sizes = [2]
    while 2 * sizes[-1] <= min(MOST_RANKS, max(plan.batch_size, plan.shard_count)):
        sizes.append(2 * sizes[-1])
    return tuple(Ranks.of(size, batch_rows=plan.batch_size, shards=plan.shard_count) for size in sizes)


@dataclass(frozen=True, slots=True)
class Memory:
    """An estimate of the most memory that a run takes, in bytes, by what takes it.

    It is the sum of what may lie in memory at one moment:

    - `base_bytes`: the interpreter, Arrow and its allocator.
    - `source_bytes`: of each dataset the row group, or the piece of a large one, that is decoded just now; of a
      shuffled dataset also its block, which for a moment is there twice, as stored and as shuffled.
    - `block_bytes`: rows on their way: a row group of the run that is read ahead, the one before it, its rows in their
      new order, and these rows once more as encoded pages.
    - `shard_bytes`: a shard under encoding, in a buffer that grows by doubling, its copy when it is whole, and the
      shard before it, which is put meanwhile.
    """

    base_bytes: int
    source_bytes: int
    block_bytes: int
    shard_bytes: int

    @property
    def bytes(self) -> int:
        """The sum."""
        return self.base_bytes + self.source_bytes + self.block_bytes + self.shard_bytes


BASE_BYTES = 120 << 20
"""What a process takes that has imported mixer and Arrow, and has read and written a little."""
_BLOCKS = 4
_SHARDS = 4


def memory_of(*, decoded_bytes: Sequence[int], shuffled_bytes: Sequence[int], block: int, shard: int) -> Memory:
    """Return the estimate; every number is of bytes.

    Args:
        decoded_bytes: For each dataset, what is decoded of it at once.
        shuffled_bytes: For each dataset, its largest block to shuffle; 0 if it is not shuffled.
        block: The rows of a row group of the run, decoded.
        shard: A shard's file.

    >>> memory_of(decoded_bytes=[8, 8], shuffled_bytes=[0, 5], block=10, shard=3).bytes - BASE_BYTES
    78
    """
    return Memory(BASE_BYTES, sum(decoded_bytes) + 2 * sum(shuffled_bytes), _BLOCKS * block, _SHARDS * shard)
