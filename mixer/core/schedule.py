"""Which batch takes what: a run as segments, each with one set of weights, found by batch number.

A segment is a stretch of batches in which one `Allocation` holds; offsets go on across its start, carries begin
at 0 there. A run with one set of weights is one segment; exhaustion decides how many batches it has, before a
row is read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mixer.core.allocation import Allocation, Counts
from mixer.errors import NotEnoughDataError


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive batches that share one set of weights."""

    first_batch: int
    batches: int
    allocation: Allocation
    """The rule of this segment; one weight for each of `members`."""
    members: tuple[int, ...]
    """Which of the run's datasets take part, by their place in the run."""
    offsets: tuple[int, ...]
    """Items of each of the run's datasets that were taken before this segment."""

    @property
    def stop_batch(self) -> int:
        """One past the last batch."""
        return self.first_batch + self.batches


@dataclass(frozen=True, slots=True)
class Schedule:
    """The segments of a run, in order and without gaps.

    >>> schedule = single(Allocation((3, 2, 1), 4), batches=10)
    >>> schedule.counts(1, 2).tolist(), schedule.offsets_at(3), schedule.carries_at(1)
    ([[2, 2, 0]], (6, 4, 2), (0, 2, -2))
    """

    datasets: int
    """How many datasets the run has."""
    segments: tuple[Segment, ...]

    def __post_init__(self) -> None:
        expected = 0
        for segment in self.segments:
            if segment.first_batch != expected:
                raise ValueError(f"expected a segment from batch {expected}, found one from {segment.first_batch}")
            expected = segment.stop_batch

    @property
    def batches(self) -> int:
        """Batches of the whole run."""
        return self.segments[-1].stop_batch if self.segments else 0

    def _segment_at(self, batch: int) -> Segment:
        """Return the segment that holds `batch`; the end of the run belongs to the last one."""
        if not 0 <= batch <= self.batches:
            raise IndexError(f"batch {batch}: expected one from 0 to {self.batches}")
        starts = [segment.first_batch for segment in self.segments]
        return self.segments[bisect_right(starts, batch) - 1]

    def counts(self, start_batch: int, stop_batch: int) -> Counts:
        """Return the items that batches ``[start_batch, stop_batch)`` take, shape ``(batches, datasets)``."""
        counts = np.zeros((stop_batch - start_batch, self.datasets), dtype=np.int64)
        batch = start_batch
        while batch < stop_batch:
            segment = self._segment_at(batch)
            stop = min(stop_batch, segment.stop_batch)
            part = segment.allocation.counts(batch - segment.first_batch, stop - segment.first_batch)
            counts[batch - start_batch : stop - start_batch, list(segment.members)] = part
            batch = stop
        return counts

    def offsets_at(self, batch: int) -> tuple[int, ...]:
        """Return how many items of each dataset the batches before `batch` take."""
        segment = self._segment_at(batch)
        offsets = list(segment.offsets)
        taken = segment.allocation.offsets_at(batch - segment.first_batch)
        for member, items in zip(segment.members, taken, strict=True):
            offsets[member] += items
        return tuple(offsets)

    def carries_at(self, batch: int) -> tuple[int, ...]:
        """Return what the rule owes each dataset before `batch`; 0 for a dataset that takes no part there."""
        segment = self._segment_at(batch)
        carries = [0] * self.datasets
        owed = segment.allocation.carries_at(batch - segment.first_batch)
        for member, carry in zip(segment.members, owed, strict=True):
            carries[member] = carry
        return tuple(carries)


def single(allocation: Allocation, *, batches: int) -> Schedule:
    """Return the schedule of a run that keeps one set of weights."""
    datasets = len(allocation.weights)
    segment = Segment(0, batches, allocation, tuple(range(datasets)), (0,) * datasets)
    return Schedule(datasets, (segment,))


def batches_that_fit(allocation: Allocation, sizes: Sequence[int]) -> int:
    """Return the largest number of batches that no dataset is too short for.

    >>> batches_that_fit(Allocation((3, 2, 1), 4), [6, 100, 100])
    3
    """
    slack = len(sizes)  # a dataset is behind its exact share by less than the number of datasets
    above = 1 + min(
        (size + slack) * allocation.total // (allocation.batch_size * weight)
        for size, weight in zip(sizes, allocation.weights, strict=True)
    )

    def fits(batches: int) -> bool:
        return all(taken <= size for taken, size in zip(allocation.offsets_at(batches), sizes, strict=True))

    return _last_true(fits, above)


def _last_true(holds: Callable[[int], bool], above: int) -> int:
    """Return the greatest number under `above` for which `holds`, which is true at 0 and turns false only once."""
    low = 0
    while above - low > 1:
        middle = (low + above) // 2
        low, above = (middle, above) if holds(middle) else (low, middle)
    return low


def shortfall(names: Sequence[str], allocation: Allocation, sizes: Sequence[int], batches: int) -> str | None:
    """Return why `batches` batches do not fit, for people, or None if they do.

    >>> print(shortfall(["a", "b"], Allocation((3, 1), 4), [5, 100], batches=4))
    dataset 'a' runs out first: batch 1 needs its items up to 6, and it has 5. Asked: 4 batches; the largest \
number that fits is 1. To give all 4, dataset 'a' would have to be gone through 2.4 times (12 of 5 items). Lower \
`batches` to 1, set `on_exhausted: stop`, lower the weight of 'a', or add data to it.
    """
    fit = batches_that_fit(allocation, sizes)
    if batches <= fit:
        return None
    needed = allocation.offsets_at(fit + 1)
    index = next(place for place, size in enumerate(sizes) if needed[place] > size)
    short = [place for place, size in enumerate(sizes) if allocation.offsets_at(batches)[place] > size]
    repetition = "; ".join(
        f"dataset {names[place]!r} would have to be gone through {_times(asked, sizes[place])}"
        for place, asked in ((place, allocation.offsets_at(batches)[place]) for place in short[:5])
    )
    more = f"; and {len(short) - 5} more" if len(short) > 5 else ""  # noqa: PLR2004 -- a line that can be read
    lower = f"Lower `batches` to {fit}, set `on_exhausted: stop`, lower" if fit else "Lower `batch_size`, lower"
    return (
        f"dataset {names[index]!r} runs out first: batch {fit} needs its items up to {needed[index]}, and it has "
        f"{sizes[index]}. Asked: {batches} batches; the largest number that fits is {fit}. To give all {batches}, "
        f"{repetition}{more}. {lower} the weight of {names[index]!r}, or add data to it."
    )


def _times(asked: int, size: int) -> str:
    """Return how often `size` items must be gone through to give `asked`, rounded up to a tenth."""
    if not size:
        return f"{asked} items, and it is empty"
    tenths = -(-asked * 10 // size)
    return f"{tenths // 10}.{tenths % 10} times ({asked} of {size} items)"


def resolve(
    names: Sequence[str], allocation: Allocation, sizes: Sequence[int], *, batches: int | None, on_exhausted: str
) -> Schedule:
    """Return the schedule of a run over datasets of `sizes` items.

    Args:
        names: The datasets, for messages.
        allocation: One weight for each dataset.
        sizes: Items of each dataset.
        batches: How many are asked for; None means as many as fit.
        on_exhausted: ``error``: all of `batches` must fit. ``stop``: the run ends with the last batch that every
            dataset can fill, and with `batches` at the latest.

    Raises:
        NotEnoughDataError: Under ``error`` the batches do not fit, or under ``stop`` not even one does.
    """
    if on_exhausted == "error" and batches is not None:
        if problem := shortfall(names, allocation, sizes, batches):
            raise NotEnoughDataError(problem)
        return single(allocation, batches=batches)
    fit = batches_that_fit(allocation, sizes)
    if not fit:
        needed = allocation.offsets_at(1)
        short = next(place for place, size in enumerate(sizes) if needed[place] > size)
        raise NotEnoughDataError(
            f"not one batch of {allocation.batch_size} can be filled: it takes {needed[short]} items of dataset "
            f"{names[short]!r}, which has {sizes[short]}. Lower `batch_size`, lower the weight of {names[short]!r}, "
            f"or add data to it."
        )
    return single(allocation, batches=fit if batches is None else min(fit, batches))
