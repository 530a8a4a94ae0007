from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mixer.core.serving import Part, edges, group_reads, indices, uneven, whole_batches, within


@given(st.integers(0, 50), st.integers(1, 9), st.integers(0, 40), st.integers(0, 60), st.integers(0, 60))
def test_within_is_a_filter(start: int, step: int, numbers: int, low: int, high: int) -> None:
    rising = range(start, start + numbers, step)
    found = within(rising, low, high)
    assert list(found) == [number for number in rising if low <= number < high]


@st.composite
def shards(draw: st.DrawFn) -> tuple[list[int], int, int]:
    """Row groups of whole batches, the batch size, and the first batch; the last batch may be short."""
    batch_size = draw(st.integers(1, 7))
    groups = [count * batch_size for count in draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))]
    groups[-1] -= draw(st.integers(0, batch_size - 1))
    return groups, batch_size, draw(st.integers(0, 9))


@given(shards(), st.integers(1, 9), st.integers(0, 30), st.integers(1, 4))
def test_ranks_together_take_each_wanted_batch_once_and_each_its_rows_of_it(
    shard: tuple[list[int], int, int], world_size: int, start: int, step: int
) -> None:
    group_rows, batch_size, first_batch = shard
    rows = sum(group_rows)
    wanted = range(start, 99, step)
    taken: dict[int, dict[int, list[int]]] = {}
    for rank in range(world_size):
        part = Part(rank, world_size)
        for read in group_reads(group_rows, first_batch, batch_size, wanted):
            before = sum(group_rows[: read.group])
            picked = indices(read, batch_size, part)
            places = np.arange(read.rows)[picked] + before
            cuts = edges(read, batch_size, part)
            assert cuts[-1] == len(places)
            for batch, low, high in zip(read.batches, cuts, cuts[1:], strict=False):
                taken.setdefault(batch, {})[rank] = places[low:high].tolist()
    batches = [batch for batch in wanted if first_batch <= batch < first_batch - (-rows // batch_size)]
    assert sorted(taken) == batches
    for batch, parts in taken.items():
        begin = (batch - first_batch) * batch_size
        whole = list(range(begin, min(rows, begin + batch_size)))
        assert parts == {rank: whole[rank::world_size] for rank in range(world_size)}


@given(shards())
def test_row_groups_of_whole_batches_are_told_from_others(shard: tuple[list[int], int, int]) -> None:
    group_rows, batch_size, _ = shard
    rows = sum(group_rows)
    assert whole_batches(group_rows, batch_size, rows)
    assert not whole_batches(group_rows, batch_size, rows + 1)
    assert not whole_batches([*group_rows, 0], batch_size, rows)
    if batch_size > 1:
        assert not whole_batches([1, *group_rows], batch_size, rows + 1)


@given(st.integers(1, 40), st.integers(1, 40))
def test_what_is_said_of_uneven_parts_is_what_ranks_take(batch_size: int, world_size: int) -> None:
    counts = [Part(rank, world_size).rows(batch_size) for rank in range(world_size)]
    assert sum(counts) == batch_size
    said = uneven(batch_size, world_size)
    assert (said is None) == (len(set(counts)) == 1)
    if said is not None:
        more = counts.count(max(counts))
        assert f"ranks 0 to {more - 1} take {counts[0]} and ranks {more} to {world_size - 1} take {counts[-1]}" in said
