from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixer.core.allocation import Allocation
from mixer.core.exhaustion import Phase
from mixer.core.passes import Passes
from mixer.core.plan import Plan
from mixer.core.schedule import single


def plan(weights: tuple[int, ...], batch_size: int, batches: int, batches_per_shard: int) -> Plan:
    return Plan(
        names=tuple(f"d{place}" for place in range(len(weights))),
        passes=tuple(Passes(f"d{place}", 10**12) for place in range(len(weights))),
        phases=(Phase(weights, batches),),
        limits=(10**12,) * len(weights),
        batch_size=batch_size,
        batches_per_shard=batches_per_shard,
        batches_per_row_group=1,
        schedule=single(Allocation(weights, batch_size), batches=batches),
    )


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
