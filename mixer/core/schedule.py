"""Which batch takes what: a run as segments, each with one rule, found by batch number.

A segment is a stretch of batches in which one `Allocation` holds, or one batch in which datasets run out, whose
counts are told (`Closing`). Offsets go on across its start. A run with one set of weights is one segment; phases and
exhaustion (`mixer.core.exhaustion`) make more of them, before a row is read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from mixer.core.allocation import Allocation, Counts


@dataclass(frozen=True, slots=True)
class Closing:
    """One batch in which datasets run out: what each member gives to it, as `mixer.core.exhaustion` has decided.

    >>> closing = Closing(items=(1, 3))
    >>> closing.counts(0, 1).tolist(), closing.offsets_at(1), closing.carries_at(1)
    ([[1, 3]], (1, 3), (0, 0))
    """

    items: tuple[int, ...]
    """Items of each member."""

    def counts(self, start_batch: int, stop_batch: int) -> Counts:
        """Return the items of batches ``[start_batch, stop_batch)``, shape ``(batches, members)``; it has but one."""
        return np.array([self.items], dtype=np.int64)[start_batch:stop_batch]

    def offsets_at(self, batch: int) -> tuple[int, ...]:
        """Return what each member has given before its only batch (0) or after it (1)."""
        return self.items if batch else (0,) * len(self.items)

    def exact_at(self, batch: int) -> tuple[Fraction, ...]:
        """Return what `offsets_at` says: here nothing is rounded."""
        return tuple(map(Fraction, self.offsets_at(batch)))

    def carries_at(self, batch: int) -> tuple[int, ...]:  # noqa: ARG002 -- as an `Allocation` is asked
        """Return what each member is owed: nothing, as all debts end with it."""
        return (0,) * len(self.items)


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive batches that share one rule."""

    first_batch: int
    batches: int
    rule: Allocation | Closing
    """What its batches take of each of `members`."""
    members: tuple[int, ...]
    """Which of the run's datasets take part, by their place in the run."""
    offsets: tuple[int, ...]
    """Items of each of the run's datasets that were taken before this segment."""
    phase: int = 0
    """Which of the run's phases it is part of: for a batch that the next one fills up, the one in which it began."""

    @property
    def stop_batch(self) -> int:
        """One past the last batch."""
        return self.first_batch + self.batches


@dataclass(frozen=True)
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

    @cached_property
    def items(self) -> int:
        """Items of the whole run; fewer than full batches hold if the last one is short."""
        return sum(self.offsets_at(self.batches)) if self.segments else 0

    def _segment_before(self, batch: int) -> Segment:
        """Return the segment whose end, or middle, is the state before `batch`.

        At the edge of two segments it is the former: what is appended to a run changes no state of its past.
        """
        if not 0 <= batch <= self.batches:
            raise IndexError(f"batch {batch}: expected one from 0 to {self.batches}")
        return self.segments[max(0, bisect_left(self._starts, batch) - 1)]

    @cached_property
    def _starts(self) -> list[int]:
        return [segment.first_batch for segment in self.segments]

    def counts(self, start_batch: int, stop_batch: int) -> Counts:
        """Return the items that batches ``[start_batch, stop_batch)`` take, shape ``(batches, datasets)``."""
        counts = np.zeros((stop_batch - start_batch, self.datasets), dtype=np.int64)
        batch = start_batch
        while batch < stop_batch:
            segment = self.segments[bisect_right(self._starts, batch) - 1]
            stop = min(stop_batch, segment.stop_batch)
            part = segment.rule.counts(batch - segment.first_batch, stop - segment.first_batch)
            counts[batch - start_batch : stop - start_batch, list(segment.members)] = part
            batch = stop
        return counts

    def offsets_at(self, batch: int) -> tuple[int, ...]:
        """Return how many items of each dataset the batches before `batch` take."""
        segment = self._segment_before(batch)
        offsets = list(segment.offsets)
        taken = segment.rule.offsets_at(batch - segment.first_batch)
        for member, items in zip(segment.members, taken, strict=True):
            offsets[member] += items
        return tuple(offsets)

    def carries_at(self, batch: int) -> tuple[int, ...]:
        """Return what the rule owes each dataset before `batch`; 0 for a dataset that takes no part there.

        The unit is 1/W item, with W the sum of the weights of the segment that ends there or goes on. The next one
        begins without debts, whatever stands here.
        """
        segment = self._segment_before(batch)
        carries = [0] * self.datasets
        owed = segment.rule.carries_at(batch - segment.first_batch)
        for member, carry in zip(segment.members, owed, strict=True):
            carries[member] = carry
        return tuple(carries)

    def exact_at(self, batch: int) -> tuple[Fraction, ...]:
        """Return the exact share of each dataset in the items before `batch`; what it got is a whole number near it.

        >>> single(Allocation((3, 2, 1), 4), batches=10).exact_at(1)
        (Fraction(2, 1), Fraction(4, 3), Fraction(2, 3))
        """
        exact = [Fraction(0)] * self.datasets
        for segment in self.segments:
            items = segment.rule.exact_at(max(0, min(batch - segment.first_batch, segment.batches)))
            for member, share in zip(segment.members, items, strict=True):
                exact[member] += share
        return tuple(exact)

    def unit_at(self, batch: int) -> int:
        """Return W, in whose parts of an item the carries before `batch` are: the sum of the weights there."""
        rule = self._segment_before(batch).rule
        return rule.total if isinstance(rule, Allocation) else 1


def single(allocation: Allocation, *, batches: int) -> Schedule:
    """Return the schedule of a run that keeps one set of weights."""
    datasets = len(allocation.weights)
    segment = Segment(0, batches, allocation, tuple(range(datasets)), (0,) * datasets)
    return Schedule(datasets, (segment,))
