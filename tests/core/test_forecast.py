from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mixer.core.exhaustion import Phase, Policy, resolve
from mixer.core.forecast import Ranks, common_ranks, ending_batches, first_reaching, memory_of, phase_stops
from mixer.core.passes import Passes
from mixer.core.plan import Plan
from mixer.errors import NotEnoughDataError


def plan_of(phases: list[Phase], sizes: list[int], batch_size: int, policy: Policy, **changes: Any) -> Plan:
    names = tuple(f"d{place}" for place in range(len(sizes)))
    return Plan(
        names=names,
        passes=tuple(Passes(name, size) for name, size in zip(names, sizes, strict=True)),
        phases=tuple(phases),
        limits=tuple(sizes),
        batch_size=batch_size,
        schedule=resolve(names, phases, sizes, batch_size, policy=policy),
        **{"batches_per_shard": 3, "batches_per_row_group": 1, **changes},
    )


@st.composite
def plans(draw: st.DrawFn) -> tuple[Plan, Policy]:
    datasets = draw(st.integers(1, 4))
    weights = st.lists(st.integers(0, 5), min_size=datasets, max_size=datasets).filter(any)
    phases = [Phase(tuple(each), draw(st.integers(1, 6))) for each in draw(st.lists(weights, min_size=1, max_size=3))]
    phases[-1] = Phase(phases[-1].weights, draw(st.none() | st.integers(1, 40)))
    sizes = draw(st.lists(st.integers(0, 30), min_size=datasets, max_size=datasets))
    policy: Policy = draw(st.sampled_from(["stop", "redistribute"]))
    try:
        return plan_of(phases, sizes, draw(st.integers(1, 9)), policy), policy
    except NotEnoughDataError:
        assume(False)
        raise


@given(plans())
def test_a_dataset_ends_in_the_batch_that_takes_its_last_item(case: tuple[Plan, Policy]) -> None:
    plan, _ = case
    taken = np.cumsum(plan.counts(0, plan.batches), axis=0)
    for place, ending in enumerate(ending_batches(plan)):
        full = np.flatnonzero(taken[:, place] == plan.sizes[place]) if plan.sizes[place] else np.array([], np.int64)
        assert ending == (int(full[0]) if len(full) else None)


@given(plans(), st.data())
def test_the_first_batch_after_which_so_many_items_are_taken_is_found(
    case: tuple[Plan, Policy], data: st.DataObject
) -> None:
    plan, _ = case
    taken = np.cumsum(plan.counts(0, plan.batches), axis=0)
    items = {place: data.draw(st.integers(1, most)) for place, most in enumerate(map(int, taken[-1])) if most}
    expected = {place: int(np.argmax(taken[:, place] >= number)) for place, number in items.items()}
    assert first_reaching(plan.schedule, items) == expected


def test_an_end_far_away_is_found_without_counting_up_to_it() -> None:
    plan = plan_of([Phase((3, 1), 10**15)], [3 * 10**15, 10**15 + 1], 4, "error")
    assert ending_batches(plan) == (10**15 - 1, None)


@pytest.mark.parametrize(
    ("sizes", "policy", "stops"),
    [
        ([100, 100], "stop", (3, 8)),
        ([100, 3], "stop", (3, 4)),  # the second phase takes 2 of the second dataset a batch
        ([9, 100], "stop", (2, 2)),  # the first one ends in the first phase already
        # 9 items in batches of 4: the third batch is filled up by the second phase, and belongs to the first.
        ([9, 100], "redistribute", (3, 8)),
    ],
)
def test_phases_end_where_they_are_said_to_or_where_the_data_ends(
    sizes: list[int], policy: Policy, stops: tuple[int, ...]
) -> None:
    phases = [Phase((1, 0), 3 if policy == "stop" else 5), Phase((1, 1), 5)]
    assert phase_stops(plan_of(phases, sizes, 4, policy)) == stops


@given(plans())
def test_phases_follow_each_other_to_the_end_of_the_run(case: tuple[Plan, Policy]) -> None:
    plan, _ = case
    stops = phase_stops(plan)
    assert list(stops) == sorted(stops)
    assert stops[-1] == plan.batches
    assert len(stops) == len(plan.phases)
    for before, stop, phase in zip((0, *stops), stops, plan.phases, strict=False):
        assert phase.batches is None or stop - before <= phase.batches


@given(st.integers(1, 40), st.integers(1, 100), st.integers(1, 100))
def test_ranks_get_what_dealing_out_gives(ranks: int, rows: int, shards: int) -> None:
    found = Ranks.of(ranks, batch_rows=rows, shards=shards)
    for things, (least, most) in ((rows, found.batch_rows), (shards, found.shards)):
        dealt = [len(range(rank, things, ranks)) for rank in range(ranks)]
        assert (least, most) == (min(dealt), max(dealt))
    assert found.batch_divides == (rows % ranks == 0)
    assert found.shards_divide == (shards % ranks == 0)


def test_as_many_ranks_are_told_of_as_have_something_to_do() -> None:
    plan = plan_of([Phase((1,), 30)], [1000], 12, "error")  # 10 shards
    assert [ranks.ranks for ranks in common_ranks(plan)] == [2, 4, 8]
    plan = plan_of([Phase((1,), 1)], [10**6], 10**5, "error")
    assert [ranks.ranks for ranks in common_ranks(plan)][-1] == 1024


def test_a_shuffled_block_is_there_twice_for_a_moment() -> None:
    plain = memory_of(decoded_bytes=[5], shuffled_bytes=[0], block=1, shard=1)
    assert memory_of(decoded_bytes=[5], shuffled_bytes=[100], block=1, shard=1).bytes - plain.bytes == 200


def test_a_batch_that_the_next_phase_fills_up_belongs_to_the_one_in_which_it_began() -> None:
    plan = plan_of([Phase((0, 1), 1), Phase((1, 0))], [2, 0], 1, "redistribute")
    assert phase_stops(plan) == (1, 2)
