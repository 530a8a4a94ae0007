"""The carries at any batch of one period, without walking there one batch at a time.

Carries are kept at every `STRIDE`-th batch. To find many of them at once, the stretches between them are walked
side by side, as the rows of one array:

1. Each stretch starts from a guess. Carries at batch k are ``k*r_i mod W`` less whole multiples of W that bring
   the sum to 0; the guess takes one W from the datasets with the greatest of these residues.
2. All stretches are walked; the end of each one becomes the guess for the start of the next; those whose start
   has changed are walked again. The rule forgets: after one or two rounds nothing changes any more.
3. What is kept is proven, not guessed: from the start of the period on, a stretch counts only if its start is
   just the end of the stretch before it. The first one that is not is walked by the rule itself.

So the result is that of the rule applied to every batch, and only the time that it takes depends on the guess.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

STRIDE = 256
"""Batches between two kept states."""
_WORTHWHILE = 16
"""Fewer missing stretches than this are walked by the rule itself."""
_LANE_CELLS = 1 << 21
"""Carries walked side by side at the most."""
_MANY = 48
"""So many datasets and more are given their slots by array operations."""
_ROUNDS = 4
"""How often the guesses are mended before the rule itself walks what is left."""

Carries = npt.NDArray[np.int64]
"""Carries of several stretches, shape ``(stretches, datasets)``."""
Step = Callable[[list[int], tuple[int, ...], tuple[int, ...], int], list[int]]
"""One batch of the rule: moves carries on in place."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The constants of the rule, of weights without a common divisor."""

    base: tuple[int, ...]
    remainders: tuple[int, ...]
    total: int

    @property
    def slots(self) -> int:
        """Slots of a batch that the base quotas leave over."""
        return sum(self.remainders) // self.total

    @property
    def fits_64_bits(self) -> bool:
        """Whether carries, made unique by the dataset's number, stay far from 2**63."""
        datasets = len(self.base)
        return self.total * (datasets + 2) * datasets < 1 << 62


@dataclass
class Trajectory:
    """The carries before each batch of one period; states at every `STRIDE`-th batch are kept once found."""

    rule: Rule
    period: int
    step: Step
    _kept: list[tuple[int, ...]] = field(init=False)
    _last: tuple[int, Carries] | None = field(default=None, init=False)
    _reached: tuple[int, tuple[int, ...]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._kept = [(0,) * len(self.rule.base)]

    def carries_at(self, batch: int) -> list[int]:
        """Return the carries before batch `batch` of the period, ``0 <= batch < period``."""
        if not self.rule.slots:
            return [0] * len(self.rule.base)
        if len(self.rule.base) == 2:  # noqa: PLR2004 -- a pair
            return _of_a_pair(self.rule, batch)
        stretch, rest = divmod(batch, STRIDE)
        if stretch - len(self._kept) >= _WORTHWHILE and self.rule.fits_64_bits:
            self._find_side_by_side(stretch)
        while len(self._kept) <= stretch:
            self._kept.append(tuple(self._walk(list(self._kept[-1]), STRIDE)))
        if rest and self._in_arrays and STRIDE * len(self.rule.base) <= _LANE_CELLS:
            return [int(carry) for carry in self._walked(stretch)[rest]]
        # Who asks for a batch often asks for it again, or for the next one.
        reached = self._reached
        at, carries = reached if reached is not None else (0, self._kept[0])
        if not batch - rest <= at <= batch:
            at, carries = batch - rest, self._kept[stretch]
        walked = self._walk(list(carries), batch - at)
        # Set as a whole, since plans are asked by several threads.
        self._reached = (batch, tuple(walked))
        return walked

    def _walked(self, stretch: int) -> Carries:
        """Return the carries before each batch of a stretch, shape ``(STRIDE, datasets)``; the last one is kept.

        Who looks for a batch by halves asks for many of one stretch.
        """
        last = self._last
        if last is None or last[0] != stretch:
            keys = _Keys(self.rule, np.array([self._kept[stretch]], dtype=np.int64))
            states = np.empty((STRIDE, len(self.rule.base)), dtype=np.int64)
            for row in states:
                row[:] = keys.carries[0]
                keys.step()
            # Set as a whole, since plans are asked by several threads.
            last = self._last = (stretch, states)
        return last[1]

    def counts(self, start: int, stop: int) -> Carries:
        """Return the items that batches ``[start, stop)`` of the period take, shape ``(batches, datasets)``."""
        rule = self.rule
        carries = self.carries_at(start)
        counts = np.empty((stop - start, len(rule.base)), dtype=np.int64)
        if not self._in_arrays:
            for row in counts:
                row[:] = self.step(carries, rule.remainders, rule.base, rule.total)
            return counts
        keys = _Keys(rule, np.array([carries], dtype=np.int64))
        for row in counts:
            np.add(rule.base, keys.step()[0], out=row)
        return counts

    @property
    def _in_arrays(self) -> bool:
        """Whether a batch is quicker given out by array operations than by a heap."""
        return len(self.rule.base) >= _MANY and self.rule.fits_64_bits

    def _walk(self, carries: list[int], batches: int) -> list[int]:
        rule = self.rule
        if self._in_arrays:
            keys = _Keys(rule, np.array([carries], dtype=np.int64))
            for _ in range(batches):
                keys.step()
            return [int(carry) for carry in keys.carries[0]]
        for _ in range(batches):
            self.step(carries, rule.remainders, rule.base, rule.total)
        return carries

    def _find_side_by_side(self, stretch: int) -> None:
        """Keep the carries up to the start of `stretch`."""
        lanes = max(2, _LANE_CELLS // len(self.rule.base))
        while len(self._kept) <= stretch:
            known = len(self._kept) - 1
            starts = _guesses(self.rule, known, min(lanes, stretch - known))
            starts[0] = self._kept[-1]
            ends = _settle(self.rule, starts)
            for lane in range(len(starts)):
                proven = self._kept[-1] == tuple(starts[lane].tolist())
                end = ends[lane].tolist() if proven else self._walk(list(self._kept[-1]), STRIDE)
                self._kept.append(tuple(end))


def _of_a_pair(rule: Rule, batch: int) -> list[int]:
    """Return the carries of two datasets before `batch`, by a formula.

    One slot is left over. The first dataset gets it if its carry has grown to W/2 or more, and pays W: so its carry
    stays in ``[-W/2, W/2)``, and there is only one such number that ``batch`` remainders leave modulo W.
    """
    carry = batch * rule.remainders[0] % rule.total
    if 2 * carry >= rule.total:
        carry -= rule.total
    return [carry, -carry]


def _guesses(rule: Rule, first_stretch: int, stretches: int) -> Carries:
    """Return likely carries at the starts of `stretches` consecutive stretches."""
    residues = np.empty((stretches, len(rule.base)), dtype=np.int64)
    residues[0] = [first_stretch * STRIDE * remainder % rule.total for remainder in rule.remainders]
    stride = np.array([STRIDE * remainder % rule.total for remainder in rule.remainders], dtype=np.int64)
    for row in range(1, stretches):
        residues[row] = (residues[row - 1] + stride) % rule.total
    too_much = residues.sum(axis=1) // rule.total  # (stretches,)
    rank = np.argsort(np.argsort(-residues, axis=1, kind="stable"), axis=1)  # (stretches, datasets)
    carries: Carries = residues - rule.total * (rank < too_much[:, None])
    return carries


def _settle(rule: Rule, starts: Carries) -> Carries:
    """Walk every stretch from its start, mending `starts` in place; return where the stretches end."""
    ends = np.empty_like(starts)
    moved = np.ones(len(starts), dtype=bool)
    for _ in range(_ROUNDS):
        ends[moved] = _walk_side_by_side(rule, starts[moved])
        moved = np.zeros(len(starts), dtype=bool)
        moved[1:] = (starts[1:] != ends[:-1]).any(axis=1)
        if not moved.any():
            break
        starts_now = ends[:-1][moved[1:]]
        starts[moved] = starts_now
    else:
        ends[moved] = _walk_side_by_side(rule, starts[moved])
    return ends


def _walk_side_by_side(rule: Rule, starts: Carries) -> Carries:
    """Return the carries after `STRIDE` batches from each of `starts`, shape ``(stretches, datasets)``."""
    keys = _Keys(rule, starts)
    for _ in range(STRIDE):
        keys.step()
    return keys.carries


class _Keys:
    """Carries of several stretches, moved on together by one batch a step.

    A carry times the number of datasets, plus the place from the end, is unique: of equal carries the first wins.
    """

    def __init__(self, rule: Rule, carries: Carries) -> None:
        self._datasets = len(rule.base)
        self._slots = rule.slots
        self._remainders = np.array(rule.remainders, dtype=np.int64) * self._datasets
        self._price = rule.total * self._datasets
        self._keys = carries * self._datasets + np.arange(self._datasets - 1, -1, -1, dtype=np.int64)

    @property
    def carries(self) -> Carries:
        carries: Carries = self._keys // self._datasets
        return carries

    def step(self) -> Carries:
        """Give out the slots of one batch; return how many each dataset got, shape ``(stretches, datasets)``."""
        keys, price, slots = self._keys, self._price, self._slots
        keys += self._remainders
        if not slots:
            return np.zeros_like(keys)
        given = _greatest(keys, slots, price)
        keys -= price * given
        return given


def _greatest(keys: Carries, slots: int, price: int) -> Carries:
    """Return who gets `slots` slots, each going to the greatest key of its row, which pays for it.

    That gives them to the greatest of all bids, where a key bids for a first slot with itself, for a second with what
    it is after paying, and so on. Bids are unique, as keys are and the price is a multiple of their number.
    """
    least = np.partition(keys, keys.shape[1] - slots, axis=1)[:, keys.shape[1] - slots]  # (stretches,)
    given = (keys >= least[:, None]).astype(np.int64)
    # Mostly nobody's second bid is as great as the least of the first ones that win.
    open_rows = np.flatnonzero(keys.max(axis=1) - price > least)
    rounds = 2
    while len(open_rows):
        bids = np.concatenate([keys[open_rows] - price * paid for paid in range(rounds)], axis=1)
        least = np.partition(bids, bids.shape[1] - slots, axis=1)[:, bids.shape[1] - slots]
        won = (bids >= least[:, None]).reshape(len(open_rows), rounds, -1).sum(axis=1)
        given[open_rows] = won
        open_rows = open_rows[keys[open_rows].max(axis=1) - rounds * price > least]
        rounds += 1
    return given
