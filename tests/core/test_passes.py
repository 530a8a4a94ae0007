from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixer.core.order import full_order
from mixer.core.passes import Passes

blocks = st.lists(st.integers(1, 20), min_size=1, max_size=6).map(tuple)


@given(blocks, st.integers(0, 2**32), st.integers(1, 4))
def test_every_pass_holds_every_row_once_in_an_order_of_its_own(sizes: tuple[int, ...], seed: int, epochs: int) -> None:
    size = sum(sizes)
    numbers, rows = Passes("web", size, sizes, seed).rows(0, epochs * size)
    assert numbers.tolist() == [epoch for epoch in range(epochs) for _ in range(size)]
    for epoch in range(epochs):
        assert sorted(rows[epoch * size : (epoch + 1) * size].tolist()) == list(range(size))


@given(st.integers(1, 60), st.integers(0, 2**32), st.integers(1, 4))
def test_every_full_pass_holds_every_row_once_in_an_order_of_its_own(size: int, seed: int, epochs: int) -> None:
    numbers, rows = Passes("web", size, seed=seed, full=True).rows(0, epochs * size)
    assert numbers.tolist() == [epoch for epoch in range(epochs) for _ in range(size)]
    orders = [full_order(size, seed + epoch, "web").tolist() for epoch in range(epochs)]
    assert rows.tolist() == [row for order in orders for row in order]


@given(blocks, st.sampled_from(["stored", "block", "full"]), st.data())
def test_any_stretch_is_a_slice_of_the_whole(sizes: tuple[int, ...], shuffle: str, data: st.DataObject) -> None:
    size = sum(sizes)
    passes = Passes("web", size, sizes if shuffle == "block" else None, 17, full=shuffle == "full")
    start = data.draw(st.integers(0, 3 * size))
    stop = data.draw(st.integers(start, 3 * size))
    for part, whole in zip(passes.rows(start, stop), passes.rows(0, 3 * size), strict=True):
        assert part.tolist() == whole[start:stop].tolist()


def test_the_second_pass_has_the_order_of_the_next_seed() -> None:
    first, second = Passes("web", 9, (4, 5), 17), Passes("web", 9, (4, 5), 18)
    assert first.rows(9, 18)[1].tolist() == second.rows(0, 9)[1].tolist()


def test_an_empty_dataset_gives_nothing() -> None:
    assert Passes("web", 0).stretches(0, 0) == []
    with pytest.raises(ValueError, match="'web': it is empty"):
        Passes("web", 0).stretches(0, 1)


@given(blocks, st.sampled_from(["stored", "block", "full"]), st.integers(0, 2**32))
def test_items_and_their_rows_are_told_both_ways(sizes: tuple[int, ...], shuffle: str, seed: int) -> None:
    size = sum(sizes)
    passes = Passes("web", size, sizes if shuffle == "block" else None, seed, full=shuffle == "full")
    epochs, rows = passes.rows(0, 3 * size)
    items = [passes.item(offset) for offset in range(3 * size)]
    assert items == list(zip(epochs.tolist(), rows.tolist(), strict=True))
    assert [passes.offset(epoch, row) for epoch, row in items] == list(range(3 * size))


@pytest.mark.parametrize(("epoch", "row"), [(-1, 0), (0, -1), (2, 9)])
def test_a_row_that_no_pass_has_is_no_item(epoch: int, row: int) -> None:
    with pytest.raises(ValueError, match=f"a row from 0 to 8, found epoch {epoch}, row {row}"):
        Passes("web", 9, (4, 5)).offset(epoch, row)
