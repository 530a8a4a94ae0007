"""Where an item of a dataset comes in the mix, and which item stands at a place of it: the plan, read both ways.

Forwards it is the state before the batch and the counts of the batch. Backwards it is their inverse: the batch that
takes an item is the largest number of batches that do not need it, which is what `batches_that_fit` finds.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from mixer.core.exhaustion import batches_that_fit
from mixer.core.plan import Plan
from mixer.core.schedule import Closing, Schedule


@dataclass(frozen=True, slots=True)
class Spot:
    """One row of the mix: where it stands, and what it is."""

    batch: int
    slot: int
    """Place in its batch, from 0."""
    shard: int
    shard_row: int
    """Place in its shard, from 0."""
    dataset: str
    offset: int
    """Which item of the dataset it is, counted over all passes."""
    epoch: int
    """In which pass over the dataset it is taken."""
    dataset_row: int
    """Its position in the dataset as stored."""


def batch_of(schedule: Schedule, place: int, offset: int) -> int:
    """Return the batch that takes item `offset` of the dataset at `place`.

    >>> from mixer.core.allocation import Allocation
    >>> from mixer.core.schedule import single
    >>> schedule = single(Allocation((3, 2, 1), 4), batches=10**12)  # in turn 2 1 1, 2 2 0, 2 1 1
    >>> [batch_of(schedule, 2, offset) for offset in (0, 1, 2, 2 * 10**11)]
    [0, 2, 3, 300000000000]

    Raises:
        IndexError: No batch does.
    """
    taken = schedule.offsets_at(schedule.batches)[place]
    if not 0 <= offset < taken:
        raise IndexError(f"item {offset} of dataset {place}: the run takes {taken} items of it, from 0")
    # The last segment that begins no later: those that take nothing of the dataset begin where the next one does.
    index = bisect_right(schedule.segments, offset, key=lambda segment: segment.offsets[place]) - 1
    segment = schedule.segments[index]
    if isinstance(segment.rule, Closing):
        return segment.first_batch
    left: list[int | None] = [None] * len(segment.members)
    left[segment.members.index(place)] = offset - segment.offsets[place]
    before = batches_that_fit(segment.rule, left, segment.batches)
    if before is None:
        raise AssertionError(f"dataset {place} ends with item {offset}")
    return segment.first_batch + before


def spot_at(plan: Plan, batch: int, slot: int) -> Spot:
    """Return what stands at place `slot` of batch `batch`.

    Raises:
        IndexError: The run has no such batch, or the batch no such slot.
    """
    if not 0 <= batch < plan.batches:
        raise IndexError(f"batch {batch}: the run has batches 0 to {plan.batches - 1}")
    counts = [int(items) for items in plan.counts(batch, batch + 1)[0]]
    if not 0 <= slot < sum(counts):
        raise IndexError(f"slot {slot}: batch {batch} has slots 0 to {sum(counts) - 1}")
    before, place = 0, 0
    while slot >= before + counts[place]:
        before += counts[place]
        place += 1
    return _spot(plan, place, batch, slot, plan.schedule.offsets_at(batch)[place] + slot - before)


def spot_of(plan: Plan, place: int, offset: int, row: int | None = None) -> Spot:
    """Return where item `offset` of the dataset at `place` stands in the mix.

    Args:
        plan: The run's.
        place: Of the dataset.
        offset: Counted over all passes.
        row: The stored row that the item is, if that is known.

    Raises:
        IndexError: The run does not take it.
    """
    batch = batch_of(plan.schedule, place, offset)
    counts = [int(items) for items in plan.counts(batch, batch + 1)[0]]
    slot = sum(counts[:place]) + offset - plan.schedule.offsets_at(batch)[place]
    return _spot(plan, place, batch, slot, offset, row)


def _spot(  # noqa: PLR0913, PLR0917 -- private; what a spot is made of
    plan: Plan, place: int, batch: int, slot: int, offset: int, row: int | None = None
) -> Spot:
    shard, batches_before = plan.in_shard(batch)
    passes = plan.passes[place]
    epoch, row = passes.item(offset) if row is None else (offset // passes.size, row)
    # Only the last batch of a run may be short, so no batch before this one is.
    return Spot(batch, slot, shard, batches_before * plan.batch_size + slot, plan.names[place], offset, epoch, row)


def times_taken(plan: Plan, place: int, row: int) -> int:
    """Return how often the run takes the stored row `row` of the dataset at `place`: once in each of so many epochs.

    Raises:
        ValueError: The dataset has no such row.
    """
    passes = plan.passes[place]
    if not 0 <= row < passes.size:
        raise ValueError(f"row {row}: dataset {passes.name!r} has rows 0 to {passes.size - 1}")
    epochs, rest = divmod(plan.schedule.offsets_at(plan.batches)[place], passes.size)
    return epochs + (rest > 0 and passes.offset(epochs, row) % passes.size < rest)
