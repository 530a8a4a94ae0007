from __future__ import annotations

import hashlib
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixer.core.lengths import Batches, checked_lengths, group_by_length, size_table
from mixer.core.order import random_keys, random_order, sorted_places

lengths = st.lists(st.integers(0, 12), max_size=60)
sizes = st.integers(1, 7)
tables = st.dictionaries(st.integers(0, 14), sizes, max_size=4)
limits = st.one_of(st.none(), st.integers(-2, 13))
worlds = st.integers(1, 4)


def listed(batches: Batches) -> list[list[int]]:
    return [
        batches.order[start:stop].tolist() for start, stop in zip(batches.offsets, batches.offsets[1:], strict=False)
    ]


def size_of(length: int, batch_size: int, table: dict[int, int]) -> int:
    """Return the size at the greatest entry that is not above the length, or the default if all are above."""
    below = [entry for entry in table if entry <= length]
    return table[max(below)] if below else batch_size


@given(lengths, sizes, tables, st.booleans(), limits, worlds, st.integers(0, 9))
def test_batches_are_what_the_rules_say(  # noqa: PLR0913, PLR0917 -- every option together
    items: list[int],
    batch_size: int,
    table: dict[int, int],
    partial: bool,
    maxlen: int | None,
    world_size: int,
    seed: int,
) -> None:
    groups = group_by_length(
        items, batch_size, length_to_size=table, include_partial=partial, maxlen=maxlen, world_size=world_size
    )
    batches = listed(groups.batches(seed, "some"))
    dropped = groups.dropped()

    def too_long(length: int) -> bool:
        return maxlen is not None and 0 < maxlen < length

    expected: list[tuple[int, int]] = []  # The length and size of each step.
    surplus = {}
    for length, count in Counter(items).items():
        if too_long(length):
            continue
        size = size_of(length, batch_size, table)
        left = count
        while left >= size * world_size:
            expected.append((length, size))
            left -= size * world_size
        if partial and left >= world_size:
            expected.append((length, left // world_size))
            left %= world_size
        if left:
            surplus[length] = left

    steps = [batches[start : start + world_size] for start in range(0, len(batches), world_size)]
    found = []
    for step in steps:
        ((length, size),) = {(items[item], len(batch)) for batch in step for item in batch}
        assert len(step) == world_size
        found.append((length, size))
    assert sorted(found) == sorted(expected)
    assert groups.steps == len(steps)

    kept = [item for batch in batches for item in batch]
    assert len(set(kept)) == len(kept)
    left_out = Counter(items[item] for item in set(range(len(items))) - set(kept))
    assert {length: count for length, count in left_out.items() if not too_long(length)} == surplus
    assert dropped.surplus_by_length == surplus
    assert dropped.surplus == sum(surplus.values())
    assert dropped.too_long == sum(map(too_long, items))
    assert dropped.kept == len(kept)
    assert dropped.items == len(items) == dropped.kept + dropped.surplus + dropped.too_long


@given(lengths, sizes, st.booleans(), worlds)
def test_without_a_name_items_come_as_stored_from_the_shortest_on(
    items: list[int], batch_size: int, partial: bool, world_size: int
) -> None:
    groups = group_by_length(items, batch_size, include_partial=partial, world_size=world_size)
    by_length = defaultdict(list)
    for item, length in enumerate(items):
        by_length[length].append(item)
    expected = []
    for _, group in sorted(by_length.items()):
        whole = len(group) // (batch_size * world_size) * batch_size * world_size
        expected += [group[start : start + batch_size] for start in range(0, whole, batch_size)]
        share = (len(group) - whole) // world_size * partial
        expected += [group[whole + rank * share : whole + (rank + 1) * share] for rank in range(world_size) if share]
    assert listed(groups.batches()) == expected


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**64 - 1)), max_size=40),
    st.integers(0, 60),
)
def test_places_are_sorted_by_code_then_by_key_then_by_place(pairs: list[tuple[int, int]], alike: int) -> None:
    # With fewer bits that differ, more keys are the same in the bits that are sorted first.
    codes = np.array([code for code, _ in pairs], dtype=np.uint16)
    keys = np.array([key >> alike for _, key in pairs], dtype=np.uint64)
    assert sorted_places(keys, codes).tolist() == np.lexsort((np.arange(len(keys)), keys, codes)).tolist()


def test_among_many_items_ties_of_the_first_bits_are_put_right() -> None:
    codes = (np.arange(300_000) % 3).astype(np.uint32)
    keys = random_keys(300_000, 5) >> np.uint64(20)
    assert np.array_equal(sorted_places(keys, codes), np.lexsort((keys, codes)))


@given(st.lists(st.integers(0, 2**62), max_size=20), sizes)
def test_lengths_may_be_far_apart(items: list[int], batch_size: int) -> None:
    groups = group_by_length(items, batch_size, include_partial=True)
    assert groups.lengths.tolist() == sorted(set(items))
    assert sorted(groups.batches(1).order.tolist()) == list(range(len(items)))


def test_more_kinds_of_lengths_than_sixteen_bits_hold_are_told_apart() -> None:
    items = np.arange(70_000) // 2
    batches = group_by_length(items, 2).batches(1, "web")
    assert len(batches) == 35_000
    pairs = items[batches.order].reshape(-1, 2)
    assert (pairs[:, 0] == pairs[:, 1]).all()
    items = np.arange(140_000) // 2
    pairs = items[group_by_length(items, 2).batches(1, "web").order].reshape(-1, 2)
    assert (pairs[:, 0] == pairs[:, 1]).all()
    assert len(pairs) == 70_000


@given(lengths, sizes, worlds, st.integers(0, 9))
def test_items_and_steps_are_shuffled_by_the_named_orders(
    items: list[int], batch_size: int, world_size: int, seed: int
) -> None:
    groups = group_by_length(items, batch_size, world_size=world_size)
    by_length = defaultdict(list)
    for item in random_order(len(items), seed, "web", "items").tolist():
        by_length[items[item]].append(item)
    step_items = batch_size * world_size
    steps = [
        group[start : start + step_items]
        for _, group in sorted(by_length.items())
        for start in range(0, len(group) - step_items + 1, step_items)
    ]
    expected = [item for step in random_order(len(steps), seed, "web", "steps").tolist() for item in steps[step]]
    assert groups.batches(seed, "web").order.tolist() == expected


def test_what_ranks_cannot_share_is_left_over() -> None:
    items = [5] * 7 + [6]
    groups = group_by_length(items, 4, world_size=2)
    assert groups.steps == 0
    assert groups.dropped().surplus_by_length == {5: 7, 6: 1}
    groups = group_by_length(items, 4, world_size=2, include_partial=True)
    assert [len(batch) for batch in listed(groups.batches(3))] == [3, 3]
    assert groups.dropped().surplus_by_length == {5: 1, 6: 1}


def test_sizes_hold_from_their_length_upward_until_the_next() -> None:
    items = np.repeat(np.arange(1, 8), 12)
    groups = group_by_length(items, 6, length_to_size={3: 4, 6: 2})
    assert groups.sizes.tolist() == [6, 6, 4, 4, 4, 2, 2]
    assert groups.whole_steps.tolist() == [2, 2, 3, 3, 3, 6, 6]


def test_no_items_make_no_batches() -> None:
    nothing: list[npt.ArrayLike] = [[], np.empty(0, dtype=np.int64), np.empty(0)]
    for none in nothing:
        groups = group_by_length(none, 4, include_partial=True, world_size=3)
        batches = groups.batches(1, "web")
        assert (groups.steps, len(batches), batches.order.tolist(), batches.offsets.tolist()) == (0, 0, [], [0])


def test_batches_and_items_come_in_every_order_equally_often() -> None:
    items = [1] * 4 + [2] * 2
    counts = Counter(tuple(map(tuple, listed(group_by_length(items, 2).batches(seed, "web")))) for seed in range(2880))
    # 4! orders of the first four items, 2 of the others, and 3 places among two batches for the third.
    assert len(counts) == 144
    chi = sum((count - 20) ** 2 / 20 for count in counts.values())
    assert abs(chi - 143) < 4 * np.sqrt(2 * 143)


def test_names_make_other_orders() -> None:
    groups = group_by_length([1] * 50, 5)
    orders = {tuple(groups.batches(*path).order.tolist()) for path in ((1,), (2,), (1, "web"), (1, "code"), ())}
    assert len(orders) == 5


def test_ten_million_items_would_take_less_than_half_a_gigabyte() -> None:
    count = 500_000
    items = np.random.default_rng(1).geometric(0.02, count)
    tracemalloc.start()
    try:
        batches = group_by_length(items, 16, include_partial=True).batches(1, "web")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(batches.order) == count
    assert peak_bytes / count < 45


def digest(batches: Batches) -> str:
    held = [batches.order.astype("<i8").tobytes(), batches.offsets.astype("<i8").tobytes()]
    return hashlib.sha256(b"".join(held)).hexdigest()[:16]


def test_batches_never_change() -> None:
    """What was batched once must come in these batches for ever: others here would continue no state of before."""
    few = group_by_length([3, 7, 3, 3, 7, 3, 3], 2)
    assert listed(few.batches(17, "lengths")) == GOLDEN_FEW
    items = np.arange(50_000) * 7919 % 97
    many = group_by_length(items, 16, length_to_size={40: 8, 80: 3}, include_partial=True, maxlen=90, world_size=3)
    assert digest(many.batches(18, "lengths")) == GOLDEN_MANY


GOLDEN_FEW = [[4, 1], [0, 2], [3, 6]]
GOLDEN_MANY = "d42f7883df98778a"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: group_by_length([1], 0), "batch_size: expected a whole number from 1, found 0"),
        (lambda: group_by_length([1], True), "batch_size: expected a whole number from 1, found True"),
        (lambda: group_by_length([1], 2, world_size=0), "world_size: expected a whole number from 1, found 0"),
        (lambda: group_by_length([1], 2, maxlen=1.5), "maxlen: expected a whole number, found 1.5"),  # type: ignore[arg-type] # tried
        (lambda: group_by_length([1], 2, include_partial=1), "include_partial: expected True or False, found 1"),  # type: ignore[arg-type] # tried
        (lambda: size_table(2, {3: 0}), r"length_to_size\[3\]: expected a whole number from 1, found 0"),
        (lambda: size_table(2, {-3: 1}), "length_to_size: a length: expected a whole number from 0, found -3"),
        (lambda: size_table(2, {"3": 1}), "length_to_size: a length: expected a whole number from 0, found '3'"),  # type: ignore[dict-item] # tried
        (lambda: size_table(2, [3]), r"length_to_size: expected a mapping of lengths to batch sizes, found \[3\]"),  # type: ignore[arg-type] # tried
        (lambda: size_table(2**31, {}), "batch_size, length_to_size: expected sizes below .*, found 2147483648 and .*"),
        (lambda: checked_lengths([3, -1, -2]), "lengths: expected whole numbers from 0, found -2 for item 2"),
        (lambda: checked_lengths([[3]]), r"lengths: expected one dimension, found the shape \(1, 1\)"),
        (lambda: checked_lengths([1.0, 2.0]), "lengths: expected whole numbers, found float64"),
        (lambda: checked_lengths([True, False]), "lengths: expected whole numbers, found bool"),
        (lambda: checked_lengths([2**63]), "lengths: expected whole numbers from 0, found 9223372036854775808 .*"),
        (lambda: checked_lengths([2**64]), "lengths: expected whole numbers, found object"),
        (lambda: checked_lengths(["a"]), "lengths: expected whole numbers, found .*"),
    ],
)
def test_a_bad_argument_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        call()


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint32, np.int64, np.uint64])
def test_lengths_may_be_of_any_integer_type(kind: npt.DTypeLike) -> None:
    items: npt.NDArray[Any] = np.array([3, 200 % 128, 3, 7], dtype=kind)
    assert listed(group_by_length(items, 2).batches()) == [[0, 2]]
