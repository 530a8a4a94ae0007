"""Places of the mix and items of datasets, held to a list of all of them that is written out one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from mixer.core.allocation import Allocation
from mixer.core.exhaustion import Policy, unfold
from mixer.core.locating import Spot, batch_of, spot_at, spot_of, times_taken
from mixer.core.passes import Passes
from mixer.core.plan import Plan
from mixer.core.schedule import Schedule, Segment, single
from tests.core import rules
from tests.core.test_exhaustion import Asked, as_phases, by_hand, runs


def plan_of(  # noqa: PLR0913, PLR0917 -- what a plan is made of
    asked: Asked,
    sizes: Sequence[int],
    limits: Sequence[int | None],
    size: int,
    policy: Policy,
    shuffle: str | None,
    batches_per_shard: int,
    cuts: tuple[int, ...],
) -> Plan:
    """Return a plan; each dataset that is shuffled by block has blocks of 4 rows."""
    blocks = [(*[4] * (rows // 4), *[rows % 4] * (rows % 4 > 0)) for rows in sizes]
    passes = [
        Passes(f"d{place}", rows, blocks[place] if shuffle == "block" else None, seed=3, full=shuffle == "full")
        for place, rows in enumerate(sizes)
    ]
    schedule = unfold(as_phases(asked), limits, size, redistribute=policy == "redistribute")
    names = tuple(one.name for one in passes)
    cuts = tuple(cut for cut in cuts if cut < schedule.batches)
    return Plan(
        names, tuple(passes), tuple(as_phases(asked)), tuple(limits), size, batches_per_shard, 1, schedule, cuts
    )


def _pass(plan: Plan, place: int, epoch: int) -> tuple[int, int]:
    return epoch * plan.sizes[place], (epoch + 1) * plan.sizes[place]


def all_spots(plan: Plan, counts: list[list[int]]) -> list[Spot]:
    """Return every row of the mix, one after the other: a new shard where one is full or the run ended once."""
    spots = []
    shard, shard_row, batches_in_it = 0, 0, 0
    offsets = [0] * len(plan.names)
    rows_of = cache(lambda place, epoch: plan.passes[place].rows(*_pass(plan, place, epoch))[1].tolist())
    for batch, taken in enumerate(counts):
        if batches_in_it == plan.batches_per_shard or batch in plan.cuts:
            shard, shard_row, batches_in_it = shard + 1, 0, 0
        batches_in_it += 1
        slot = 0
        for place, items in enumerate(taken):
            for _ in range(items):
                epoch, position = divmod(offsets[place], plan.sizes[place])
                row = rows_of(place, epoch)[position]
                spots.append(Spot(batch, slot, shard, shard_row, plan.names[place], offsets[place], epoch, row))
                offsets[place] += 1
                slot += 1
                shard_row += 1
    return spots


@given(
    runs(),
    st.sampled_from(["stop", "repeat", "redistribute"]),
    st.sampled_from([None, "block", "full"]),
    st.integers(1, 4),
    st.sets(st.integers(1, 20), max_size=2).map(sorted).map(tuple),
)
@example(([((3, 2, 1), None)], [61, 24, 7], 4), "redistribute", "block", 3, (5,))
@example(([((3, 2, 1), 40)], [7, 5, 9], 4), "repeat", "full", 2, ())
@example(([((1, 0), 3), ((0, 1), 3), ((1, 1), 3)], [40, 40], 4), "stop", None, 2, (4,))
def test_every_place_is_told_its_row_and_every_row_its_places(
    run: tuple[Asked, list[int], int],
    policy: Policy,
    shuffle: str | None,
    batches_per_shard: int,
    cuts: tuple[int, ...],
) -> None:
    asked, sizes, size = run
    if policy == "repeat":
        asked = [(weights, batches or 9) for weights, batches in asked]
    limits = [None if policy == "repeat" and rows else rows for rows in sizes]
    counts = by_hand(asked, limits, size, policy)
    assume(counts)
    plan = plan_of(asked, sizes, limits, size, policy, shuffle, batches_per_shard, cuts)
    spots = all_spots(plan, counts)
    assert plan.batches == len(counts)
    assert [spot_at(plan, spot.batch, spot.slot) for spot in spots] == spots
    places = [plan.names.index(spot.dataset) for spot in spots]
    assert [spot_of(plan, place, spot.offset) for place, spot in zip(places, spots, strict=True)] == spots
    known = [spot_of(plan, place, spot.offset, spot.dataset_row) for place, spot in zip(places, spots, strict=True)]
    assert known == spots
    for place, (name, rows) in enumerate(zip(plan.names, sizes, strict=True)):
        for row in range(rows):
            there = [spot for spot in spots if (spot.dataset, spot.dataset_row) == (name, row)]
            assert times_taken(plan, place, row) == len(there)
            assert [plan.passes[place].offset(epoch, row) for epoch in range(len(there))] == [s.offset for s in there]


@given(rules.weights, rules.batch_sizes, st.integers(1, 10**9), st.data())
@example((10**18, 10**18 + 1), 7, 10**9, None)
@example((1, 10**9), 3, 10**9, None)
def test_far_into_a_long_run_the_two_ways_meet(
    weights: tuple[int, ...], batch_size: int, batches: int, data: st.DataObject | None
) -> None:
    if len(weights) > 2:
        batches = min(batches, 3 * Allocation(weights, batch_size).period, 3_000)
    schedule = single(Allocation(weights, batch_size), batches=batches)
    taken = schedule.offsets_at(batches)
    for place, items in enumerate(taken):
        for offset in {0, items // 3, items - 1, data.draw(st.integers(0, max(0, items - 1))) if data else 0}:
            if not 0 <= offset < items:
                continue
            batch = batch_of(schedule, place, offset)
            assert schedule.offsets_at(batch)[place] <= offset < schedule.offsets_at(batch + 1)[place]


def test_a_dataset_that_rests_is_not_looked_for_where_it_rests() -> None:
    rule, other = Allocation((1, 1), 2), Allocation((1,), 2)
    segments = (
        Segment(0, 3, rule, (0, 1), (0, 0, 0)),
        Segment(3, 5, other, (2,), (3, 3, 0)),
        Segment(8, 5, other, (1,), (3, 3, 10)),
        Segment(13, 5, other, (0,), (3, 13, 10)),
    )
    schedule = Schedule(3, segments)
    assert [batch_of(schedule, 0, offset) for offset in (2, 3, 12)] == [2, 13, 17]
    assert [batch_of(schedule, 1, offset) for offset in (2, 3, 12)] == [2, 8, 12]
    assert [batch_of(schedule, 2, offset) for offset in (0, 9)] == [3, 7]


def short_plan() -> Plan:
    return plan_of([((1, 1), None)], [5, 2], [5, 2], 4, "redistribute", None, 2, ())


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda: spot_at(short_plan(), 2, 0), IndexError, "batch 2: the run has batches 0 to 1"),
        (lambda: spot_at(short_plan(), -1, 0), IndexError, "batch -1: the run has batches 0 to 1"),
        (lambda: spot_at(short_plan(), 0, 4), IndexError, "slot 4: batch 0 has slots 0 to 3"),
        (lambda: spot_at(short_plan(), 1, 3), IndexError, "slot 3: batch 1 has slots 0 to 2"),
        (lambda: spot_at(short_plan(), 1, -1), IndexError, "slot -1: batch 1 has slots 0 to 2"),
        (lambda: spot_of(short_plan(), 1, 2), IndexError, "item 2 of dataset 1: the run takes 2 items of it"),
        (lambda: batch_of(short_plan().schedule, 0, -1), IndexError, "item -1 of dataset 0"),
        (lambda: times_taken(short_plan(), 1, 2), ValueError, "row 2: dataset 'd1' has rows 0 to 1"),
        (lambda: times_taken(short_plan(), 1, -1), ValueError, "row -1: dataset 'd1' has rows 0 to 1"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(
    ask: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ask()
