"""What happens when a dataset ends: phases and sizes into segments, decided before a row is read.

A run is a list of phases, each with weights of its own. Within one, batches follow the rule until a dataset cannot
give its quota. Then, by policy:

- ``error``: nothing is planned; the message says what is short.
- ``stop``: the run ends with the batch before.
- ``repeat``: a dataset has no end, or ends after a number of epochs, which is an error like the first.
- ``redistribute``: that dataset gives what it has left and retires. What is missing in the batch is shared among the
  others by the rule, from carries of 0, as a batch of that size; who cannot give that either retires as well. The next
  batch begins a new segment with the weights that are left. Only the last batch of the run may be short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mixer.core.allocation import Allocation
from mixer.core.schedule import Closing, Schedule, Segment
from mixer.errors import NotEnoughDataError

Policy = Literal["error", "stop", "repeat", "redistribute"]


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of batches with one set of weights."""

    weights: tuple[int, ...]
    """A weight for each of the run's datasets; 0 for those that take no part."""
    batches: int | None = None
    """How many batches; None, for the last phase only, means as many as the data fills."""

    def __post_init__(self) -> None:
        if not any(self.weights):
            raise ValueError("a phase needs a dataset with a weight of at least 1")

    @property
    def members(self) -> tuple[int, ...]:
        """The datasets that take part, by their place in the run."""
        return tuple(place for place, weight in enumerate(self.weights) if weight)

    def rule(self, members: Sequence[int], batch_size: int) -> Allocation:
        """Return the rule among `members`, in batches of `batch_size`."""
        return Allocation(tuple(self.weights[place] for place in members), batch_size)


def batches_that_fit(rule: Allocation, left: Sequence[int | None], most: int | None = None) -> int | None:
    """Return the largest number of batches that no dataset is too short for; None if there is none.

    Args:
        rule: One weight for each dataset.
        left: Items of each; None for one without end.
        most: So many are enough; what would be after them is not looked for.

    >>> batches_that_fit(Allocation((3, 2, 1), 4), [6, 100, None])
    3
    """
    ending = [place for place, items in enumerate(left) if items is not None]
    if not ending:
        return most
    sizes = {place: items for place, items in enumerate(left) if items is not None}
    # No dataset is ahead of its exact share by a whole item, nor behind by the number of datasets or more.
    surely, too_many = (
        min((sizes[place] + slack) * rule.total // (rule.batch_size * rule.weights[place]) for place in ending)
        for slack in (0, len(left))
    )

    if most is not None:
        if surely >= most:
            return most
        too_many = min(too_many, most)

    def fits(batches: int) -> bool:
        taken = rule.offsets_at(batches)
        return all(taken[place] <= items for place, items in sizes.items())

    return _last_true(fits, surely, too_many + 1)


def _last_true(holds: Callable[[int], bool], low: int, above: int) -> int:
    """Return the greatest number under `above` for which `holds`, which is true at `low` and turns false only once."""
    while above - low > 1:
        middle = (low + above) // 2
        low, above = (middle, above) if holds(middle) else (low, middle)
    return low


@dataclass
class _Unfolding:
    """A schedule in the making: what was taken so far, and who has retired."""

    phases: Sequence[Phase]
    limits: Sequence[int | None]
    batch_size: int
    segments: list[Segment] = field(default_factory=list)
    taken: list[int] = field(init=False)
    retired: set[int] = field(default_factory=set)
    batches: int = 0

    def __post_init__(self) -> None:
        self.taken = [0] * len(self.limits)

    @property
    def schedule(self) -> Schedule:
        return Schedule(len(self.limits), tuple(self.segments))

    def left(self, place: int) -> int | None:
        """Return how many items a dataset has left; None if it has no end."""
        limit = self.limits[place]
        return None if limit is None else limit - self.taken[place]

    def living(self, phase: int) -> tuple[int, ...]:
        """Return the members of a phase that have not retired."""
        return tuple(place for place in self.phases[phase].members if place not in self.retired)

    def add(self, phase: int, rule: Allocation | Closing, members: Sequence[int], batches: int) -> None:
        """Add a segment of a phase."""
        self.segments.append(Segment(self.batches, batches, rule, tuple(members), tuple(self.taken), phase))
        self.batches += batches
        for place, items in zip(members, rule.offsets_at(batches), strict=True):
            self.taken[place] += items

    def unfold(self, *, redistribute: bool) -> None:
        """Make the segments; without `redistribute` they end before the first batch that does not fit."""
        for number, phase in enumerate(self.phases):
            asked = phase.batches
            while members := self.living(number):
                rule = phase.rule(members, self.batch_size)
                fit = batches_that_fit(rule, [self.left(place) for place in members], asked)
                if fit is None:
                    raise ValueError("a run over datasets without end: expected a number of batches, found none")
                if fit:
                    self.add(number, rule, members, fit)
                asked = None if asked is None else asked - fit
                if asked == 0:
                    break
                if not redistribute:
                    return
                given = self.close(number, dict(zip(members, rule.counts(fit, fit + 1)[0].tolist(), strict=True)))
                if any(given.values()):
                    self.add(number, Closing(tuple(given.values())), tuple(given), 1)
                    asked = None if asked is None else asked - 1
                if asked == 0:
                    break

    def close(self, number: int, quotas: dict[int, int]) -> dict[int, int]:
        """Return what each dataset gives to a batch in which some cannot give their quota, and retire those.

        Args:
            number: The phase.
            quotas: What the rule asks of each living member of it.
        """
        given = dict.fromkeys(quotas, 0)
        while True:
            for place, quota in quotas.items():
                left = self.left(place)
                can = quota if left is None else min(quota, left - given.get(place, 0))
                given[place] = given.get(place, 0) + can
                if can < quota:
                    self.retired.add(place)
            missing = self.batch_size - sum(given.values())
            # If nobody of this phase is left, the next one begins by filling this batch up.
            while not (others := self.living(number)) and number + 1 < len(self.phases):
                number += 1
            if not missing or not others:
                return dict(sorted(given.items()))
            shares = self.phases[number].rule(others, missing).counts(0, 1)[0].tolist()
            quotas = dict(zip(others, shares, strict=True))


def unfold(phases: Sequence[Phase], limits: Sequence[int | None], batch_size: int, *, redistribute: bool) -> Schedule:
    """Return the segments of a run as far as the data goes.

    Args:
        phases: What is asked for; only the last one may leave its batches open.
        limits: Items of each dataset; None for one without end.
        batch_size: Items of a batch.
        redistribute: Whether the others fill up what a dataset cannot give, until all is used; if not, the run ends
            before the first batch that does not fit.

    >>> two = unfold([Phase((1, 1))], [5, 2], 4, redistribute=True)
    >>> two.counts(0, two.batches).tolist()
    [[2, 2], [3, 0]]
    """
    unfolding = _Unfolding(phases, limits, batch_size)
    unfolding.unfold(redistribute=redistribute)
    return unfolding.schedule


def resolve(  # noqa: PLR0913 -- what is asked, of what there is, by which policy
    names: Sequence[str],
    phases: Sequence[Phase],
    limits: Sequence[int | None],
    batch_size: int,
    *,
    policy: Policy,
    sizes: Sequence[int] | None = None,
) -> Schedule:
    """Return the schedule of a run.

    Args:
        names: The datasets, for messages.
        phases: What is asked for; only the last one may leave its batches open.
        limits: Items of each dataset that may be taken: its size, or with ``repeat`` that times its epochs; None for
            one without end.
        batch_size: Items of a batch.
        policy: What happens if a dataset runs out, see the top of this module.
        sizes: Items that each dataset holds, for messages; as `limits` without it.

    Raises:
        NotEnoughDataError: Under ``error`` and ``repeat`` the batches do not fit; under any policy, not one item does.
    """
    schedule = unfold(phases, limits, batch_size, redistribute=policy == "redistribute")
    asked = [phase.batches for phase in phases if phase.batches is not None]
    if len(asked) == len(phases) and schedule.batches < sum(asked) and policy in {"error", "repeat"}:
        raise NotEnoughDataError(shortfall(names, phases, limits, batch_size, schedule.batches, sizes))
    if not schedule.batches:
        raise NotEnoughDataError(_not_one_batch(names, phases[0], limits, batch_size))
    return schedule


def largest(phases: Sequence[Phase], limits: Sequence[int | None], batch_size: int) -> tuple[int, int] | None:
    """Return how many batches fit if the last phase went on and nothing were repeated or shared out, and who is short.

    None if no dataset would ever be.

    >>> largest([Phase((3, 1), 1)], [5, 100], 4)
    (1, 0)
    """
    endless = [*phases[:-1], Phase(phases[-1].weights)]
    if all(limits[place] is None for place in endless[-1].members):
        whole = unfold(endless[:-1], limits, batch_size, redistribute=False) if len(endless) > 1 else None
        if whole is None or whole.batches == sum(phase.batches or 0 for phase in endless[:-1]):
            return None
    fit = unfold(endless, limits, batch_size, redistribute=False).batches
    before = sum(phase.batches or 0 for phase in phases[:-1])
    asked = [*phases[:-1], Phase(phases[-1].weights, max(1, fit + 1 - before))]
    needed = unfold(asked, [None] * len(limits), batch_size, redistribute=False).offsets_at(fit + 1)
    return fit, next(place for place, limit in enumerate(limits) if limit is not None and needed[place] > limit)


def shortfall(  # noqa: PLR0913, PLR0917 -- as above
    names: Sequence[str],
    phases: Sequence[Phase],
    limits: Sequence[int | None],
    batch_size: int,
    fit: int,
    sizes: Sequence[int] | None = None,
) -> str:
    """Return why more than `fit` batches do not fit, for people.

    >>> print(shortfall(["a", "b"], [Phase((3, 1), 4)], [5, 100], 4, fit=1))
    dataset 'a' runs out first: batch 1 needs its items up to 6, and it has 5. Asked: 4 batches; the largest number \
that fits is 1. To give all 4, dataset 'a' would have to be gone through 2.4 times (12 of 5 items). Lower `batches` \
to 1, set `on_exhausted` to `stop`, `repeat` or `redistribute`, lower the weight of 'a', or add data to it.
    """
    whole = unfold(phases, [None] * len(limits), batch_size, redistribute=False)
    needed, asked = whole.offsets_at(fit + 1), whole.offsets_at(whole.batches)
    first = next(place for place, limit in enumerate(limits) if limit is not None and needed[place] > limit)
    holds = [limit or 0 for limit in limits] if sizes is None else sizes
    short = [place for place, limit in enumerate(limits) if limit is not None and asked[place] > limit]
    repetition = "; ".join(_repetition(names[place], asked[place], holds[place]) for place in short[:5])
    more = f"; and {len(short) - 5} more" if len(short) > 5 else ""  # noqa: PLR2004 -- a line that can be read
    is_capped = limits[first] != holds[first]
    has = f"it has {holds[first]}"
    if is_capped:
        why = "its `max_rows`, its `max_epochs`, or the epochs that its prepared copy holds"
        has = f"it may give {limits[first]}, by {why} (a pass over it has {holds[first]})"
    policies = "`stop` or `redistribute`" if is_capped else "`stop`, `repeat` or `redistribute`"
    ways = f"set `on_exhausted` to {policies}, {'raise its `max_rows` or `max_epochs`, ' if is_capped else ''}lower"
    lower = f"Lower `batches` to {fit}, {ways}" if fit else f"Lower `batch_size`, {ways}"
    return (
        f"dataset {names[first]!r} runs out first: batch {fit} needs its items up to {needed[first]}, and "
        f"{has}. Asked: {whole.batches} batches; the largest number that fits is {fit}. To give all "
        f"{whole.batches}, {repetition}{more}. {lower} the weight of {names[first]!r}, or add data to it."
    )


def _not_one_batch(names: Sequence[str], phase: Phase, limits: Sequence[int | None], batch_size: int) -> str:
    members = phase.members
    needed = phase.rule(members, batch_size).offsets_at(1)
    short = next(
        (place, items)
        for place, items in zip(members, needed, strict=True)
        if (limit := limits[place]) is not None and items > limit
    )
    name, size = names[short[0]], limits[short[0]]
    return (
        f"not one batch of {batch_size} can be filled: it takes {short[1]} items of dataset {name!r}, which has "
        f"{size}. Lower `batch_size`, lower the weight of {name!r}, or add data to it."
    )


def _repetition(name: str, asked: int, size: int) -> str:
    """Return how often a dataset of `size` items must be gone through to give `asked`, rounded up to a tenth."""
    if not size:
        return f"dataset {name!r} would have to give {asked} items, and it is empty"
    tenths = -(-asked * 10 // size)
    times = f"{tenths // 10}.{tenths % 10} times ({asked} of {size} items)"
    return f"dataset {name!r} would have to be gone through {times}"
