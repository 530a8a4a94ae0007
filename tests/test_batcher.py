from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixer import DataBatcher
from mixer.core.allocation import Allocation
from mixer.errors import DatasetError, ExhaustedError
from tests.core.rules import batch_sizes, weights

Item = tuple[str, int]


class Datasets:
    """Items that say their dataset and position; every pull and opening is counted, and any can be made to fail."""

    def __init__(self, sizes: dict[str, int] | None = None) -> None:
        self.sizes = sizes or {}
        self.pulls: Counter[str] = Counter()
        self.opened: list[tuple[str, int]] = []
        self.broken: set[Item] = set()
        self.closed: set[str] = set()

    def get_iterator(self, name: str, offset: int = 0) -> Iterator[Item]:
        if name in self.closed:
            raise ConnectionError("registry is down")
        self.opened.append((name, offset))
        return self._items(name, offset)

    def _items(self, name: str, offset: int) -> Iterator[Item]:
        position = offset
        while position < self.sizes.get(name, 10**30):
            if (name, position) in self.broken:
                raise ConnectionError(f"cannot read {position}")
            self.pulls[name] += 1
            yield name, position
            position += 1


def named(weights: tuple[int, ...]) -> dict[str, int]:
    return {f"d{place}": weight for place, weight in enumerate(weights)}


def attempt(batcher: DataBatcher[Item]) -> tuple[list[Item], DatasetError | None]:
    """Return the next batch, or why there is none."""
    try:
        return batcher.next_batch(), None
    except DatasetError as error:
        return [], error


@given(weights, st.integers(1, 300), st.integers(0, 12))
def test_batches_are_those_of_the_allocation_grouped_in_order(
    weights: tuple[int, ...], batch_size: int, batches: int
) -> None:
    datasets = Datasets()
    batcher = DataBatcher(datasets, named(weights), batch_size)
    rule = Allocation(weights, batch_size)
    offsets = [0] * len(weights)
    for counts in rule.counts(0, batches).tolist():
        expected = []
        for place, count in enumerate(counts):
            expected += [(f"d{place}", offsets[place] + step) for step in range(count)]
            offsets[place] += count
        assert batcher.next_batch() == expected
    assert list(batcher.state_dict()["offsets"].values()) == list(rule.offsets_at(batches))
    assert list(batcher.state_dict()["remainder_carry"].values()) == list(rule.carries_at(batches))
    assert all(datasets.pulls[name] == offset for name, offset in batcher.state_dict()["offsets"].items())


@given(weights, st.integers(1, 60), st.integers(0, 6), st.integers(1, 6))
def test_a_restored_batcher_emits_the_future_of_an_unbroken_one_without_replay(
    weights: tuple[int, ...], batch_size: int, before: int, after: int
) -> None:
    whole = DataBatcher(Datasets(), named(weights), batch_size)
    for _ in range(before):
        whole.next_batch()
    state = json.loads(json.dumps(whole.state_dict(), sort_keys=True))
    datasets = Datasets()
    restored = DataBatcher(datasets, named(weights), batch_size)
    restored.load_state_dict(state)
    future = [restored.next_batch() for _ in range(after)]
    assert future == [whole.next_batch() for _ in range(after)]
    assert restored.state_dict() == whole.state_dict()
    assert all(
        datasets.pulls[name] == restored.state_dict()["offsets"][name] - state["offsets"][name]
        for name in state["offsets"]
    )
    assert all(offset == state["offsets"][name] for name, offset in datasets.opened)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=4).map(tuple), st.integers(1, 12), st.data())
def test_a_failure_in_a_batch_loses_nothing_and_repeats_nothing(
    weights: tuple[int, ...], batch_size: int, data: st.DataObject
) -> None:
    names = list(named(weights))
    datasets = Datasets()
    batcher = DataBatcher(datasets, named(weights), batch_size)
    unbroken = DataBatcher(Datasets(), named(weights), batch_size)
    for _ in range(6):
        failure = data.draw(st.sampled_from(["none", "item", "registry"]))
        name = data.draw(st.sampled_from(names))
        state = batcher.state_dict()
        if failure == "item":
            datasets.broken = {(name, state["offsets"][name] + data.draw(st.integers(0, batch_size)))}
        elif failure == "registry":
            datasets.closed = {name}
            batcher.load_state_dict(state)
        batch, error = attempt(batcher)
        if error is not None:
            assert repr(name) in str(error)
            assert "offset" in str(error)
            assert isinstance(error.__cause__, ConnectionError)
            assert batcher.state_dict() == state
            datasets.broken, datasets.closed = set(), set()
            batch = batcher.next_batch()
        assert batch == unbroken.next_batch()
        datasets.broken, datasets.closed = set(), set()


def test_items_pulled_for_a_failed_batch_are_not_pulled_again() -> None:
    datasets = Datasets()
    datasets.broken = {("b", 0)}
    batcher = DataBatcher(datasets, {"a": 1, "b": 1}, 6)
    with pytest.raises(DatasetError, match="dataset 'b' failed at offset 0: ConnectionError: cannot read 0"):
        batcher.next_batch()
    datasets.broken = set()
    assert batcher.next_batch() == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("b", 2)]
    assert datasets.pulls == {"a": 3, "b": 3}


def test_items_pulled_for_a_failed_batch_are_forgotten_by_a_restore() -> None:
    datasets = Datasets()
    datasets.broken = {("b", 0)}
    batcher = DataBatcher(datasets, {"a": 1, "b": 1}, 2)
    with pytest.raises(DatasetError):
        batcher.next_batch()
    batcher.load_state_dict({"offsets": {"a": 5, "b": 7}, "remainder_carry": {"a": 0, "b": 0}})
    assert batcher.next_batch() == [("a", 5), ("b", 7)]


def test_an_interrupt_in_a_batch_loses_nothing() -> None:
    class Interrupting(Datasets):
        def _items(self, name: str, offset: int) -> Iterator[Item]:
            for item in super()._items(name, offset):
                if item == ("b", 1) and not self.closed:
                    self.closed = {"nothing"}
                    raise KeyboardInterrupt
                yield item

    batcher = DataBatcher(Interrupting(), {"a": 1, "b": 1}, 4)
    with pytest.raises(KeyboardInterrupt):
        batcher.next_batch()
    assert batcher.next_batch() == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]


def test_a_dataset_that_ran_out_is_named_and_goes_on_once_it_has_more() -> None:
    datasets = Datasets({"b": 3})
    batcher = DataBatcher(datasets, {"a": 1, "b": 1}, 4)
    batcher.next_batch()
    state = batcher.state_dict()
    with pytest.raises(ExhaustedError, match=r"dataset 'b' ended at offset 3.*takes 2 items from offset 2"):
        batcher.next_batch()
    assert batcher.state_dict() == state
    datasets.sizes = {}
    assert batcher.next_batch() == [("a", 2), ("a", 3), ("b", 2), ("b", 3)]


def test_opening_one_dataset_moves_no_other_and_each_is_opened_once() -> None:
    datasets = Datasets()
    batcher = DataBatcher(datasets, {"a": 3, "b": 2, "c": 1}, 4)
    for _ in range(5):
        batcher.next_batch()
    assert sorted(datasets.opened) == [("a", 0), ("b", 0), ("c", 0)]


def test_a_dataset_without_a_slot_is_not_touched() -> None:
    datasets = Datasets()
    DataBatcher(datasets, {"a": 10**19, "b": 1}, 3).next_batch()
    assert datasets.opened == [("a", 0)]


def test_huge_weights_are_exact() -> None:
    batcher = DataBatcher(Datasets(), {"a": 10**19, "b": 10**19 + 1}, 3)
    batches = [Counter(name for name, _ in batcher.next_batch()) for _ in range(4)]
    assert [batch["a"] for batch in batches] == [1, 2, 1, 2]
    assert sum(batcher.state_dict()["remainder_carry"].values()) == 0


@pytest.mark.parametrize(
    ("weights", "batch_size"),
    [
        ({}, 1),
        ({"a": 0}, 1),
        ({"a": -1}, 1),
        ({"a": True}, 1),
        ({"a": 1.0}, 1),
        ({"a": "1"}, 1),
        ({"a": None}, 1),
        ({"a": 1}, 0),
        ({"a": 1}, -3),
        ({"a": 1}, True),
        ({"a": 1}, 2.0),
        ({"a": 1}, "2"),
    ],
)
def test_bad_weights_and_batch_sizes_are_value_errors(weights: Any, batch_size: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        DataBatcher(Datasets(), weights, batch_size)


GOOD = {"offsets": {"a": 4, "b": 2}, "remainder_carry": {"a": 1, "b": -1}}


@pytest.mark.parametrize(
    "state",
    [
        None,
        [],
        {},
        {"offsets": GOOD["offsets"]},
        {**GOOD, "seed": 1},
        {**GOOD, "offsets": {"a": 1}},
        {**GOOD, "offsets": {"a": 1, "b": 1, "c": 1}},
        {**GOOD, "offsets": {"a": 1, "c": 1}},
        {**GOOD, "offsets": {"a": -1, "b": 1}},
        {**GOOD, "offsets": {"a": True, "b": 1}},
        {**GOOD, "offsets": {"a": 1.0, "b": 1}},
        {**GOOD, "offsets": {"a": "1", "b": 1}},
        {**GOOD, "offsets": [1, 1]},
        {**GOOD, "offsets": None},
        {**GOOD, "remainder_carry": {"a": 0}},
        {**GOOD, "remainder_carry": {"a": 0, "b": False}},
        {**GOOD, "remainder_carry": {"a": 0, "b": 0.0}},
        {**GOOD, "remainder_carry": {"a": 0, "b": 0, 3: 0}},
    ],
)
def test_a_bad_checkpoint_is_a_value_error_and_changes_nothing(state: Any) -> None:
    batcher = DataBatcher(Datasets(), {"a": 2, "b": 1}, 5)
    unbroken = DataBatcher(Datasets(), {"a": 2, "b": 1}, 5)
    batcher.next_batch()
    unbroken.next_batch()
    before = batcher.state_dict()
    with pytest.raises(ValueError, match="state"):
        batcher.load_state_dict(state)
    assert batcher.state_dict() == before
    assert batcher.next_batch() == unbroken.next_batch()


def test_states_and_weights_are_copies() -> None:
    weights = {"a": 2, "b": 1}
    batcher = DataBatcher(Datasets(), weights, 3)
    weights["a"], weights["c"] = 100, 1
    assert batcher.next_batch() == [("a", 0), ("a", 1), ("b", 0)]
    given_state = copy.deepcopy(GOOD)
    batcher.load_state_dict(given_state)
    given_state["offsets"]["a"] = 77
    taken = batcher.state_dict()
    taken["remainder_carry"]["b"] = 99
    assert batcher.state_dict() == GOOD


def test_carries_of_any_sign_and_size_are_taken() -> None:
    batcher = DataBatcher(Datasets(), {"a": 1, "b": 1}, 3)
    batcher.load_state_dict({"offsets": {"b": 0, "a": 0}, "remainder_carry": {"b": 10**20, "a": -(10**20)}})
    assert batcher.next_batch() == [("a", 0), ("b", 0), ("b", 1)]


@given(weights, batch_sizes)
def test_each_batch_is_full(weights: tuple[int, ...], batch_size: int) -> None:
    batcher = DataBatcher(Datasets(), named(weights), batch_size)
    assert [len(batcher.next_batch()) for _ in range(3)] == [batch_size] * 3
