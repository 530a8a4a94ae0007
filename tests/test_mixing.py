from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixer import mixing
from mixer.core.allocation import Counts
from mixer.errors import InputError
from mixer.mixing import LINEAGE_SCHEMA, batch_order, lineage_columns, mix

cells = st.integers(1, 4).flatmap(
    lambda datasets: st.lists(st.lists(st.integers(0, 5), min_size=datasets, max_size=datasets), min_size=1, max_size=6)
)

COLUMNS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "number": (pa.int64(), lambda n: n),
    "text": (pa.string(), lambda n: "x" * (n % 5) + str(n)),
    "raw": (pa.binary(), lambda n: bytes([n % 256]) * (n % 3)),
    "tokens": (pa.list_(pa.field("element", pa.int32())), lambda n: list(range(n % 4))),
    "maybe": (pa.list_(pa.field("element", pa.int32())), lambda n: None if n % 3 == 0 else [n, None]),
    "flag": (pa.bool_(), lambda n: None if n % 4 == 0 else n % 2 == 0),
    "nested": (
        pa.struct([("a", pa.float64()), ("b", pa.list_(pa.string()))]),
        lambda n: {"a": n / 2, "b": [str(n)] * (n % 3)},
    ),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])


def rows(first: int, count: int, dataset: int) -> list[dict[str, Any]]:
    numbers = [dataset * 1000 + first + step for step in range(count)]
    return [{name: value(number) for name, (_, value) in COLUMNS.items()} for number in numbers]


def table(first: int, count: int, dataset: int, cut: int) -> pa.Table:
    """Return rows in chunks of `cut`, none of which begins where its buffers do."""
    padded = [{name: value(7) for name, (_, value) in COLUMNS.items()}, *rows(first, count, dataset)]
    whole = pa.Table.from_pylist(padded, SCHEMA).slice(1)
    parts = [whole.slice(start, cut) for start in range(0, count, cut)]
    return pa.concat_tables(parts) if parts else whole


def by_hand(counts: list[list[int]]) -> list[tuple[int, int, int]]:
    """Return batch, dataset and position of each row."""
    taken = [0] * len(counts[0])
    places = []
    for batch, row in enumerate(counts):
        for dataset, count in enumerate(row):
            for _ in range(count):
                places.append((batch, dataset, taken[dataset]))
                taken[dataset] += 1
    return places


@given(cells, st.integers(1, 4))
def test_rows_stand_batch_by_batch_and_dataset_by_dataset_whatever_their_type(
    counts: list[list[int]], cut: int
) -> None:
    array: Counts = np.array(counts, dtype=np.int64)
    totals = array.sum(axis=0).tolist()
    mixed = mix([table(0, total, dataset, cut) for dataset, total in enumerate(totals)], array)
    expected = [rows(position, 1, dataset)[0] for _, dataset, position in by_hand(counts)]
    assert mixed.to_pylist() == expected
    assert mixed.schema == SCHEMA
    assert all(column.num_chunks <= 1 for column in mixed.columns)
    mixed.validate(full=True)


@given(cells)
def test_the_order_uses_every_row_once(counts: list[list[int]]) -> None:
    order = batch_order(np.array(counts, dtype=np.int64))
    assert sorted(order.tolist()) == list(range(sum(map(sum, counts))))


@given(cells, st.integers(0, 10**12), st.lists(st.integers(0, 10**12), min_size=4, max_size=4))
def test_lineage_says_where_each_row_comes_from(
    counts: list[list[int]], first_batch: int, first_rows: list[int]
) -> None:
    names = [f"d{place}" for place in range(len(counts[0]))]
    array: Counts = np.array(counts, dtype=np.int64)
    rows = [first + np.arange(items)[::-1] for first, items in zip(first_rows, array.sum(axis=0), strict=False)]
    epochs = [np.arange(items) % 7 for items in array.sum(axis=0)]
    columns = lineage_columns(names, array, rows, epochs, first_batch)
    assert list(columns) == LINEAGE_SCHEMA.names
    found = list(zip(*(column.to_pylist() for column in columns.values()), strict=True))
    assert found == [
        (names[dataset], rows[dataset][position], epochs[dataset][position], first_batch + batch)
        for batch, dataset, position in by_hand(counts)
    ]


@given(cells, st.integers(1, 3))
def test_columns_too_large_for_32_bit_offsets_are_mixed_in_parts(counts: list[list[int]], cut: int) -> None:
    array: Counts = np.array(counts, dtype=np.int64)
    tables = [table(0, total, dataset, cut) for dataset, total in enumerate(array.sum(axis=0).tolist())]
    whole = mix(tables, array)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixing, "COLUMN_BYTES", 400)
        assert mix(tables, array).to_pylist() == whole.to_pylist()


def test_lists_over_values_that_begin_inside_their_buffer_are_right() -> None:
    values = pa.array(range(100), pa.int32()).slice(10)
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3, 6], pa.int32()), values)
    mixed = mix([pa.table({"x": lists})], np.array([[2], [1]]))
    assert mixed["x"].to_pylist() == [[10, 11], [12], [13, 14, 15]]


def test_a_value_that_no_reader_can_address_is_named_with_its_columns() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixing, "COLUMN_BYTES", 10)
        with pytest.raises(InputError, match=r"over 2 GiB, found columns \['text'\]"):
            mix([pa.table({"text": ["x" * 100]})], np.array([[1]]))
