from __future__ import annotations

from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import Subset

from mixer.torch import FixedLengthBatchSampler
from mixer.torch.item_lengths import item_lengths

ROWS = [[1, 2, 3], [4], [], [5, 6], [7, 8, 9]]
LENGTHS = [3, 1, 0, 2, 3]


class Source:
    """Items by number, in a `dataset` beside it."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)


class NoTouch:
    """Items that must not be loaded."""

    def __len__(self) -> int:
        return len(ROWS)

    def __getitem__(self, index: int) -> None:
        raise AssertionError("an item was loaded")


CHUNKED = pa.chunked_array([pa.array(ROWS[:2]), pa.array([], pa.list_(pa.int64())), pa.array(ROWS[2:])])


@pytest.mark.parametrize(
    "lengths",
    [
        LENGTHS,
        tuple(LENGTHS),
        np.array(LENGTHS, dtype=np.uint16),
        torch.tensor(LENGTHS),
        torch.tensor(LENGTHS, dtype=torch.int32),
        pa.array(LENGTHS, pa.uint8()),
        pa.chunked_array([LENGTHS[:2], LENGTHS[2:]]),
        pa.array(ROWS),
        pa.array([[0], *ROWS, [0]], pa.large_list(pa.int32())).slice(1, 5),
        CHUNKED,
    ],
    ids=lambda lengths: f"{type(lengths).__name__} {getattr(lengths, 'dtype', getattr(lengths, 'type', ''))}",
)
def test_lengths_may_be_given_without_loading_an_item(lengths: Any) -> None:
    assert item_lengths(NoTouch(), lengths).tolist() == LENGTHS
    assert item_lengths(None, lengths).tolist() == LENGTHS


def test_lists_of_a_fixed_size_have_that_length() -> None:
    assert item_lengths(None, pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2))).tolist() == [2, 2]


def test_lengths_of_64_bits_are_not_copied() -> None:
    lengths = np.arange(5)
    assert np.shares_memory(item_lengths(None, lengths), lengths)
    assert np.shares_memory(item_lengths(None, torch.from_numpy(lengths)), lengths)
    assert np.shares_memory(item_lengths(None, pa.array(lengths)), lengths)


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        [np.array(row) for row in ROWS],
        [torch.tensor(row) for row in ROWS],
        [tuple(row) for row in ROWS],
        ["abc", "a", "", "ab", "abc"],
    ],
)
def test_without_lengths_every_item_is_measured(rows: list[Any]) -> None:
    assert item_lengths(Source(rows)).tolist() == LENGTHS
    assert item_lengths(rows).tolist() == LENGTHS


def test_the_items_of_a_subset_are_measured_and_not_those_of_the_whole() -> None:
    assert item_lengths(Subset(ROWS, [4, 1])).tolist() == [3, 1]  # type: ignore[arg-type] # a list will do


@pytest.mark.parametrize("name", ["ids", "count"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_column_may_be_named(name: str, inside: bool) -> None:
    table = pa.table({"ids": CHUNKED, "count": LENGTHS})
    hugging = datasets.Dataset(table)
    sources = [table, hugging, hugging.with_format("torch"), hugging.select([0, 1, 2, 3, 4])]
    for source in sources:
        assert item_lengths(Source(source) if inside else source, name).tolist() == LENGTHS
    assert item_lengths(hugging.select([4, 1]), name).tolist() == [3, 1]


@pytest.mark.parametrize(
    ("source", "lengths", "message"),
    [
        (Source(ROWS), [1, 2], "lengths: expected one for each of the 5 items, found 2"),
        (None, None, "data_source: expected items by number, .* found NoneType; give what it holds as lengths=..."),
        (5, None, "data_source: expected items by number, .* found int; give what it holds as lengths=..."),
        (torch.tensor(1.5), None, "data_source: expected items by number, .* found Tensor; give what it holds as .*"),
        (np.array(1.5), None, "data_source: expected items by number, .* found ndarray; give what it holds as .*"),
        (Source(torch.tensor(1.5)), None, "data_source: expected items by number, .* found Tensor; give what .*"),
        ([{"ids": [1]}], None, "data_source: expected each item to be one sequence, found dict as item 0; .*"),
        ([[1], ([1], 2)], None, "data_source: expected each item to be one sequence, found tuple as item 1; .*"),
        (
            [[1], torch.tensor(1)],
            None,
            "data_source: expected each item to be one sequence, found Tensor as item 1; .*",
        ),
        ([1], None, "data_source: expected each item to be one sequence, found int as item 0; .*"),
        (None, pa.array([1, None]), "lengths: expected one for each item, found 1 nulls"),
        (None, pa.array([1.5]), "lengths: expected an Arrow array of integers or of lists, found double"),
        (None, torch.tensor([1.5]), "lengths: expected whole numbers, found float32"),
        (ROWS, "ids", "lengths: expected a table of Arrow or a dataset of Hugging Face to have the column 'ids', .*"),
        (pa.table({"a": [1]}), "ids", "lengths: expected one of the columns a, found 'ids'"),
    ],
)
def test_what_has_no_lengths_is_named(source: Any, lengths: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        FixedLengthBatchSampler(source, 2, lengths=lengths)
