from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixer.core.allocation import Allocation
from mixer.core.exhaustion import Phase, unfold
from mixer.core.passes import Passes
from mixer.core.plan import Plan, first_change, first_difference
from mixer.core.schedule import single


def plan(
    weights: tuple[int, ...], batch_size: int, batches: int, batches_per_shard: int, cuts: tuple[int, ...] = ()
) -> Plan:
    return Plan(
        names=tuple(f"d{place}" for place in range(len(weights))),
        passes=tuple(Passes(f"d{place}", 10**12) for place in range(len(weights))),
        phases=(Phase(weights, batches),),
        limits=(10**12,) * len(weights),
        batch_size=batch_size,
        batches_per_shard=batches_per_shard,
        batches_per_row_group=1,
        schedule=single(Allocation(weights, batch_size), batches=batches),
        cuts=cuts,
    )


def phased(*phases: Phase) -> Plan:
    """Return the plan of some phases of two datasets without end."""
    limits = (None, None)
    schedule = unfold(phases, limits, 4, redistribute=False)
    return Plan(("a", "b"), (Passes("a", 9), Passes("b", 9)), phases, limits, 4, 3, 1, schedule)


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=5).map(tuple),
    st.integers(1, 40),
    st.integers(1, 200),
    st.integers(1, 30),
)
def test_shards_cover_every_batch_once_and_each_dataset_without_gap(
    weights: tuple[int, ...], batch_size: int, batches: int, batches_per_shard: int
) -> None:
    made = plan(weights, batch_size, batches, batches_per_shard)
    shards = list(made.shards())
    assert [batch for shard in shards for batch in range(shard.first_batch, shard.stop_batch)] == list(range(batches))
    for place, name in enumerate(made.names):
        ranges = [shard.ranges[place] for shard in shards]
        assert {part.dataset for part in ranges} == {name}
        assert [part.start for part in ranges] == [0, *(part.stop for part in ranges[:-1])]
    assert all(sum(part.rows for part in shard.ranges) == shard.rows > 0 for shard in shards)
    assert {shard.rows for shard in shards[:-1]} <= {batches_per_shard * batch_size}
    assert sum(shard.rows for shard in shards) == made.rows
    assert len(shards) == made.shard_count


@given(st.lists(st.integers(1, 50), min_size=1, max_size=4).map(tuple), st.integers(1, 20), st.integers(0, 40))
def test_the_state_at_a_batch_is_where_the_shards_before_it_end(
    weights: tuple[int, ...], batch_size: int, batch: int
) -> None:
    made = plan(weights, batch_size, 40, 1)
    state = made.state_at(batch)
    stops = (
        {part.dataset: part.stop for part in made.shard(batch - 1).ranges} if batch else dict.fromkeys(made.names, 0)
    )
    assert state["offsets"] == stops
    assert list(state["remainder_carry"]) == list(made.names)


def test_a_plan_of_very_many_batches_is_as_quick_to_ask_as_a_small_one() -> None:
    made = plan((6, 3, 1), 512, 10**12, 128)
    last = made.shard(made.shard_count - 1)
    assert last.stop_batch == 10**12
    assert sum(part.stop for part in last.ranges) == 512 * 10**12


@pytest.mark.parametrize("index", [-1, 4])
def test_a_shard_that_the_run_has_not_is_refused(index: int) -> None:
    with pytest.raises(IndexError, match=f"shard {index}: expected one from 0 to 3"):
        plan((1,), 1, 10, 3).shard(index)


@given(
    st.integers(1, 200),
    st.integers(1, 30),
    st.lists(st.integers(1, 200), max_size=4, unique=True).map(sorted).map(tuple),
)
def test_a_shard_ends_at_each_cut_and_is_else_as_long_as_any(
    batches: int, batches_per_shard: int, cuts: tuple[int, ...]
) -> None:
    made = plan((2, 1), 3, batches, batches_per_shard, tuple(cut for cut in cuts if cut < batches))
    shards = list(made.shards())
    assert [shard.index for shard in shards] == list(range(made.shard_count))
    assert [batch for shard in shards for batch in range(shard.first_batch, shard.stop_batch)] == list(range(batches))
    assert set(made.cuts) <= {shard.stop_batch for shard in shards}
    for shard in shards:
        assert shard.batches == batches_per_shard or shard.stop_batch in {*made.cuts, batches}
        assert {made.shard_at(batch) for batch in range(shard.first_batch, shard.stop_batch)} == {shard.index}
    with pytest.raises(IndexError, match=f"batch {batches}: expected one from 0 to {batches - 1}"):
        made.shard_at(batches)


LEFT, EVEN = Phase((3, 1), 5), Phase((1, 1), 4)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ((LEFT, EVEN), None),
        ((LEFT, Phase((1, 1), 40)), None),
        ((LEFT, EVEN, LEFT), None),
        ((LEFT, EVEN, EVEN), None),
        ((LEFT, Phase((2, 2), 40)), 5),
        ((LEFT, Phase((1, 1), 3)), 8),
        ((LEFT, Phase((1, 1), 3), EVEN), 8),
        ((LEFT,), 5),
        ((Phase((3, 1), 6), EVEN), 5),
        ((Phase((3, 1), 4), EVEN), 4),
        ((Phase((3, 2), 5), EVEN), 0),
        ((Phase((3, 0), 5), EVEN), 0),
    ],
)
def test_the_first_batch_that_another_plan_changes_is_found(now: tuple[Phase, ...], expected: int | None) -> None:
    assert first_change(phased(LEFT, EVEN), phased(*now)) == expected


@given(st.integers(1, 60), st.integers(0, 60))
def test_the_state_where_a_run_ended_is_that_of_a_longer_one_there(batches: int, more: int) -> None:
    ended = phased(LEFT, Phase((1, 1), batches))
    for longer in (
        phased(LEFT, Phase((1, 1), batches + more)),
        phased(LEFT, Phase((1, 1), batches), Phase((5, 1), 1 + more)),
    ):
        assert first_change(ended, longer) is None
        for batch in range(ended.batches + 1):
            assert longer.state_at(batch) == ended.state_at(batch)


def test_what_comes_after_a_fork_is_no_difference_and_what_comes_before_is() -> None:
    was = phased(Phase((3, 1), 5), Phase((1, 1), 5))
    other = phased(Phase((3, 1), 5), Phase((1, 1), 2), Phase((0, 1), 9))
    assert first_difference(was, other, 7) is None
    assert first_difference(was, other, 8) == 7
    assert first_difference(was, phased(Phase((3, 1), 4), Phase((1, 1), 6)), 7) == 4
    assert first_difference(was, phased(Phase((3, 1), 5)), 7) == 5
    assert first_difference(was, phased(Phase((3, 1), 5)), 5) is None
    assert first_difference(was, phased(Phase((3, 2), 5), Phase((1, 1), 5)), 7) == 0


def test_a_dataset_that_joins_after_a_fork_is_no_difference() -> None:
    def three(*phases: Phase) -> Plan:
        schedule = unfold(phases, (None,) * 3, 4, redistribute=False)
        passes = tuple(Passes(name, 9) for name in "abc")
        return Plan(("a", "b", "c"), passes, phases, (None,) * 3, 4, 3, 1, schedule)

    was = phased(Phase((3, 1), 5), Phase((1, 1), 5))
    assert first_difference(was, three(Phase((3, 1, 0), 5), Phase((1, 1, 0), 1), Phase((1, 1, 1), 5)), 6) is None
    assert first_difference(was, three(Phase((3, 1, 0), 5), Phase((1, 1, 1), 5)), 6) == 5
