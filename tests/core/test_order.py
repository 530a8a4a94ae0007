from __future__ import annotations

import hashlib
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixer.core import order as order_module
from mixer.core.order import (
    BlockOrder,
    FullOrder,
    Keys,
    blocks_of,
    full_order,
    random_keys,
    random_order,
    sorted_places,
)

blocks = st.lists(st.integers(1, 40), min_size=1, max_size=12).map(tuple)
seeds = st.integers(0, 2**64)


@given(blocks, seeds, st.text(max_size=5))
def test_a_pass_holds_every_row_once(sizes: tuple[int, ...], seed: int, name: str) -> None:
    order = BlockOrder(sizes, seed, name)
    assert sorted(order.rows(0, sum(sizes)).tolist()) == list(range(sum(sizes)))


@given(blocks, seeds, st.data())
def test_a_pass_may_be_begun_anywhere(sizes: tuple[int, ...], seed: int, data: st.DataObject) -> None:
    total = sum(sizes)
    start = data.draw(st.integers(0, total))
    stop = data.draw(st.integers(start, total))
    whole = BlockOrder(sizes, seed, "web").rows(0, total)
    assert BlockOrder(sizes, seed, "web").rows(start, stop).tolist() == whole[start:stop].tolist()


@given(blocks, seeds)
def test_the_rows_of_a_block_stay_together(sizes: tuple[int, ...], seed: int) -> None:
    rows = BlockOrder(sizes, seed, "web").rows(0, sum(sizes))
    which = np.repeat(np.arange(len(sizes)), sizes)[rows]
    changes = np.count_nonzero(np.diff(which))
    assert changes == len(sizes) - 1


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 10)])
def test_positions_outside_of_the_dataset_are_refused(start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="expected 0 <= start <= stop <= 9"):
        BlockOrder((4, 5), 1, "web").rows(start, stop)


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 100))
def test_blocks_are_whole_row_groups_and_hold_all_rows(groups: list[int], block_rows: int) -> None:
    sizes = blocks_of(groups, block_rows).tolist()
    assert sum(sizes) == sum(groups)
    assert all(size >= block_rows for size in sizes[:-1])
    edges = set(np.cumsum(groups).tolist())
    assert set(np.cumsum(sizes, dtype=np.int64).tolist()) <= edges


@given(st.integers(0, 200), st.data())
def test_keys_may_be_drawn_from_anywhere(items: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, items))
    count = data.draw(st.integers(0, items - first))
    drawn = random_keys(count, 17, "web", first=first)
    assert drawn.tolist() == random_keys(items, 17, "web")[first : first + count].tolist()


@given(st.integers(0, 100), seeds, st.data())
def test_an_order_of_all_rows_may_be_asked_for_any_positions(rows: int, seed: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, rows))
    stop = data.draw(st.integers(start, rows))
    keys = random_keys(rows, seed, "web", "all").tolist()
    expected = sorted(range(rows), key=lambda row: (keys[row], row))
    assert FullOrder(rows, seed, "web").rows(start, stop).tolist() == expected[start:stop]


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 10)])
def test_positions_outside_of_an_order_of_all_rows_are_refused(start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="expected 0 <= start <= stop <= 9"):
        FullOrder(9, 1, "web").rows(start, stop)


def digest(order: np.ndarray[tuple[int], np.dtype[np.int64]]) -> str:
    return hashlib.sha256(order.astype("<i8").tobytes()).hexdigest()[:16]


def test_orders_never_change() -> None:
    """What was shuffled once must come in this order for ever: other numbers here would be another mix."""
    assert random_order(10, 17, "web").tolist() == GOLDEN_TEN
    assert digest(random_order(100_000, 17, "web", "blocks")) == GOLDEN_LONG
    assert digest(full_order(50_000, 18, "web")) == GOLDEN_FULL
    assert digest(BlockOrder((1000, 500, 2000, 7), 18, "b\u00fccher").rows(0, 3507)) == GOLDEN_BLOCKS


GOLDEN_FULL = "58b76edae810b3d3"
GOLDEN_TEN = [3, 4, 9, 1, 2, 0, 5, 6, 7, 8]
GOLDEN_LONG = "6bc6dfc86c388fa7"
GOLDEN_BLOCKS = "5867888a5e10b4c8"


def test_passes_datasets_and_blocks_have_orders_of_their_own() -> None:
    sizes = (50, 50, 50, 50)
    orders = [BlockOrder(sizes, seed, name).rows(0, 200).tolist() for seed in (1, 2) for name in ("web", "code")]
    assert len({tuple(order) for order in orders}) == 4
    rows = BlockOrder(sizes, 1, "web").rows(0, 200).reshape(4, 50) % 50
    assert len({tuple(part) for part in rows.tolist()}) == 4


def chi_square(counts: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> float:
    """Return the statistic of a table that should be flat, as its distance from the expected value in deviations."""
    expected = counts.sum() / counts.size
    free = (counts.shape[0] - 1) * (counts.shape[1] - 1)
    return float((((counts - expected) ** 2 / expected).sum() - free) / np.sqrt(2 * free))


def test_every_item_comes_at_every_position_equally_often() -> None:
    items, rounds = 12, 6000
    places = np.zeros((items, items), dtype=np.int64)
    for seed in range(rounds):
        places[np.arange(items), random_order(items, seed, "web")] += 1
    assert abs(chi_square(places)) < 4


def test_blocks_and_the_rows_in_them_come_at_every_position_equally_often() -> None:
    sizes, rounds = (3, 3, 3, 3), 6000
    blocks_at, rows_at = np.zeros((4, 4), dtype=np.int64), np.zeros((3, 3), dtype=np.int64)
    for seed in range(rounds):
        rows = BlockOrder(sizes, seed, "web").rows(0, 12)
        np.add.at(blocks_at, (np.arange(4), rows[::3] // 3), 1)
        np.add.at(rows_at, (np.tile(np.arange(3), 4), rows % 3), 1)
    assert abs(chi_square(blocks_at)) < 4
    assert abs(chi_square(rows_at)) < 4


def test_neighbours_are_parted() -> None:
    """In a random order the numbers of neighbours are a third of the range apart on average, up or down alike."""
    order = random_order(200_000, 3, "web")
    steps = np.diff(order)
    assert abs(np.abs(steps).mean() / (200_000 / 3) - 1) < 0.01
    assert abs(np.count_nonzero(steps > 0) / len(steps) - 0.5) < 0.005


@given(blocks, seeds, st.text(max_size=5))
def test_the_position_of_a_row_is_where_it_comes(sizes: tuple[int, ...], seed: int, name: str) -> None:
    order = BlockOrder(sizes, seed, name)
    assert [order.position(row) for row in order.rows(0, sum(sizes)).tolist()] == list(range(sum(sizes)))


@pytest.mark.parametrize("order", [BlockOrder((4, 5), 1, "web"), FullOrder(9, 1, "web")])
@pytest.mark.parametrize("row", [-1, 9])
def test_rows_outside_of_the_dataset_have_no_position(order: BlockOrder | FullOrder, row: int) -> None:
    with pytest.raises(ValueError, match=f"row {row}: expected one from 0 to 8"):
        order.position(row)


@pytest.mark.parametrize("position", [-1, 9])
def test_no_row_stands_outside_of_an_order_of_all_rows(position: int) -> None:
    with pytest.raises(ValueError, match=f"position {position}: expected one from 0 to 8"):
        FullOrder(9, 1, "web").row(position)


@given(st.integers(1, 30), seeds, st.integers(1, 35), st.integers(1, 8), st.integers(0, 63))
def test_one_row_of_an_order_of_all_is_told_both_ways_as_in_the_whole(
    rows: int, seed: int, at_a_time: int, first_bits: int, alike: int
) -> None:
    def with_fewer_bits(items: int, *path: str | int, first: int = 0) -> Keys:
        # In their first bits, or in their last ones, so that many are equal, or look so at first.
        keys = random_keys(items, *path, first=first)
        return keys >> np.uint64(alike) if alike % 2 else keys & np.uint64(2**64 - 2**alike)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order_module, "_DRAWN_ITEMS", at_a_time)
        patch.setattr(order_module, "_FIRST_BITS", first_bits)
        patch.setattr(order_module, "random_keys", with_fewer_bits)
        order = FullOrder(rows, seed, "web")
        whole = order.rows(0, rows).tolist()
        assert [order.row(position) for position in range(rows)] == whole
        assert [order.position(row) for row in whole] == list(range(rows))


def test_one_row_of_a_long_order_is_told_in_little_memory() -> None:
    rows = 3_000_000
    order = FullOrder(rows, 17, "web")
    tracemalloc.start()
    found = [(position, order.row(position)) for position in (0, 1_234_567, rows - 1)]
    assert [order.position(row) for _, row in found] == [position for position, _ in found]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # A byte of each row would be more.
    assert most < 12 << 20
    assert [int(order.rows(position, position + 1)[0]) for position, _ in found] == [row for _, row in found]


@given(st.lists(st.integers(0, 2**64 - 1), max_size=40), st.integers(0, 60))
def test_an_order_is_a_stable_sort_of_its_numbers(drawn: list[int], alike: int) -> None:
    # With fewer bits that differ, more of them are the same in the bits that are sorted first.
    keys = np.array([key >> alike for key in drawn], dtype=np.uint64)
    assert sorted_places(keys).tolist() == np.argsort(keys, kind="stable").tolist()


@pytest.mark.parametrize("items", [65_535, 65_536, 65_537, 65_538, 200_000])
def test_an_order_of_many_is_a_stable_sort_of_its_numbers(items: int) -> None:
    keys = random_keys(items, 17, "web", "all")
    assert np.array_equal(full_order(items, 17, "web"), np.argsort(keys, kind="stable"))
    # Of so few bits each number is there many times, also on both sides of what is worked on at a time.
    few = keys >> np.uint64(52)
    assert np.array_equal(sorted_places(few), np.argsort(few, kind="stable"))
