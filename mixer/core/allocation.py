"""The rule: how many items each dataset gives to each batch, exactly, for any batch, without what came before.

With weights ``w_i``, ``W = sum(w)`` and batch size ``B``, each dataset has a base quota ``B*w_i // W`` and a
remainder ``r_i = B*w_i % W``. Per batch its carry grows by ``r_i``; each slot that the base quotas leave over
goes to the dataset with the greatest carry (the first on ties), which pays ``W``. This is the largest-remainder
method (Hamilton's) applied to every batch, with the rounding carried over instead of forgotten.

Two consequences make any batch reachable directly. Items so far are ``(batch*B*w_i - c_i) / W``, so the carries
alone are the state. And carries repeat with a period, so only the batch number within a period matters; the
carries at every 256th batch of it are found once, on demand, and the rest is at most 255 steps of the rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from heapq import heapify, heapreplace

import numpy as np
import numpy.typing as npt

from mixer.core import trajectory

Counts = npt.NDArray[np.int64]
"""Items by batch and dataset, shape ``(batches, datasets)``."""

_SHORT_PERIOD_BATCHES = 1024
_TABLE_CELLS = 1 << 18
"""A short period of up to this many counts is kept whole; finding it takes some milliseconds."""


def allocate(carries: list[int], remainders: tuple[int, ...], base: tuple[int, ...], total: int) -> list[int]:
    """Return what one batch takes of each dataset, and move `carries` on by one batch.

    Args:
        carries: What the rule owes each dataset, in units of ``1/total`` item; changed in place.
        remainders: ``B*w % total`` of each dataset.
        base: ``B*w // total`` of each dataset.
        total: The sum of the weights.

    >>> carries = [0, 0, 0]  # weights 3:2:1, batches of 4
    >>> [allocate(carries, (0, 2, 4), (2, 1, 0), 6) for _ in range(3)]
    [[2, 1, 1], [2, 2, 0], [2, 1, 1]]
    >>> carries
    [0, 0, 0]
    """
    counts = list(base)
    for index, remainder in enumerate(remainders):
        carries[index] += remainder
    slots = sum(remainders) // total
    if not slots:
        return counts
    # The greatest carry first, and of equal ones the first dataset.
    heap = [(-carry, index) for index, carry in enumerate(carries)]
    heapify(heap)
    for _ in range(slots):
        negated, index = heap[0]
        counts[index] += 1
        carries[index] -= total
        heapreplace(heap, (negated + total, index))
    return counts


@dataclass(frozen=True)
class Allocation:
    """The counts, offsets and carries of every batch of one set of weights.

    >>> rule = Allocation((3, 2, 1), 4)
    >>> rule.period, rule.counts(0, 3).tolist()
    (3, [[2, 1, 1], [2, 2, 0], [2, 1, 1]])
    >>> rule.offsets_at(10**12 + 1), rule.carries_at(10**12 + 1)
    ((2000000000002, 1333333333335, 666666666667), (0, -2, 2))
    """

    weights: tuple[int, ...]
    """A positive integer for each dataset, in the order that decides ties."""
    batch_size: int
    """Items a batch, at least 1."""

    def __post_init__(self) -> None:
        if not self.weights:
            raise ValueError("weights: expected at least one, found none")
        for index, weight in enumerate(self.weights):
            if type(weight) is not int or weight < 1:
                raise ValueError(f"weights[{index}]: expected a positive integer, found {weight!r}")
        if type(self.batch_size) is not int or self.batch_size < 1:
            raise ValueError(f"batch_size: expected a positive integer, found {self.batch_size!r}")

    @cached_property
    def total(self) -> int:
        """The sum of the weights, W."""
        return sum(self.weights)

    @cached_property
    def divisor(self) -> int:
        """The greatest common divisor of the weights; the rule depends on the weights divided by it only."""
        return math.gcd(*self.weights)

    @cached_property
    def period(self) -> int:
        """After this many batches every carry is 0 again, and the counts repeat."""
        total = self.total // self.divisor
        return total // math.gcd(self.batch_size, total)

    @cached_property
    def _rule(self) -> trajectory.Rule:
        weights = [weight // self.divisor for weight in self.weights]
        total = self.total // self.divisor
        shares = [divmod(self.batch_size * weight, total) for weight in weights]
        return trajectory.Rule(
            base=tuple(whole for whole, _ in shares), remainders=tuple(rest for _, rest in shares), total=total
        )

    @cached_property
    def _trajectory(self) -> trajectory.Trajectory:
        return trajectory.Trajectory(self._rule, period=self.period, step=allocate)

    @cached_property
    def _one_period(self) -> Counts | None:
        if self.period > _SHORT_PERIOD_BATCHES or self.period * len(self.weights) > _TABLE_CELLS:
            return None
        return self._walk(0, self.period)

    def _walk(self, start: int, stop: int) -> Counts:
        """Return the counts of batches ``[start, stop)`` of one period, by applying the rule to each."""
        if self.batch_size >= 1 << 63:
            raise OverflowError(f"batch_size: counts must fit in 64 bits, found {self.batch_size}")
        return self._trajectory.counts(start, stop)

    def counts(self, start_batch: int, stop_batch: int) -> Counts:
        """Return the items that batches ``[start_batch, stop_batch)`` take, shape ``(batches, datasets)``.

        Raises:
            ValueError: The bounds are negative or the wrong way round.
            OverflowError: `batch_size` does not fit in 64 bits.
        """
        if not 0 <= start_batch <= stop_batch:
            raise ValueError(f"expected 0 <= start_batch <= stop_batch, found {start_batch} and {stop_batch}")
        if self._one_period is not None:
            first = start_batch % self.period
            return self._one_period[(first + np.arange(stop_batch - start_batch)) % self.period]
        parts = []
        while start_batch < stop_batch:
            first = start_batch % self.period
            batches = min(stop_batch - start_batch, self.period - first)
            parts.append(self._walk(first, first + batches))
            start_batch += batches
        return np.concatenate(parts) if parts else np.empty((0, len(self.weights)), dtype=np.int64)

    def carries_at(self, batch: int) -> tuple[int, ...]:
        """Return what the rule owes each dataset before batch `batch`, in units of 1/W item."""
        if batch < 0:
            raise ValueError(f"batch: expected a number from 0, found {batch}")
        return tuple(carry * self.divisor for carry in self._trajectory.carries_at(batch % self.period))

    def offsets_at(self, batch: int) -> tuple[int, ...]:
        """Return how many items of each dataset the batches before `batch` take."""
        exact = batch * self.batch_size
        return tuple(
            (exact * weight - carry) // self.total
            for weight, carry in zip(self.weights, self.carries_at(batch), strict=True)
        )

    def exact_at(self, batch: int) -> tuple[Fraction, ...]:
        """Return the exact share of each dataset in the items of the batches before `batch`.

        >>> Allocation((3, 2, 1), 4).exact_at(1)
        (Fraction(2, 1), Fraction(4, 3), Fraction(2, 3))
        """
        return tuple(Fraction(batch * self.batch_size * weight, self.total) for weight in self.weights)

    def shares(self) -> tuple[tuple[int, int], ...]:
        """Return the share of each dataset as an exact fraction in lowest terms.

        >>> Allocation((2, 4), 1).shares()
        ((1, 3), (2, 3))
        """
        common = [math.gcd(weight, self.total) for weight in self.weights]
        return tuple(
            (weight // divisor, self.total // divisor) for weight, divisor in zip(self.weights, common, strict=True)
        )
