from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixer.preparation.cutting import Cuts, cut, row_bytes, value_bytes
from tests.preparation.rows import drawn
from tests.preparation.test_external import TYPES

texts = st.lists(st.none() | st.binary(max_size=40), max_size=60)


def pieces_of(table: pa.Table, edges: list[int]) -> list[pa.Table]:
    stops = sorted({min(edge, table.num_rows) for edge in edges} | {table.num_rows})
    return [table.slice(start, stop - start) for start, stop in zip([0, *stops], stops, strict=False)]


def in_plain_words(sizes: list[int], cuts: Cuts) -> list[list[int]]:
    """Return the rows of each row group of each part."""
    parts: list[list[int]] = []
    group = group_bytes = part_bytes = 0
    groups: list[int] = []
    for size in sizes:
        group, group_bytes = group + 1, group_bytes + size
        if group_bytes >= cuts.row_group_bytes or group >= cuts.row_group_rows:
            groups.append(group)
            part_bytes += group_bytes
            group = group_bytes = 0
        if part_bytes >= cuts.part_bytes:
            parts.append(groups)
            groups, part_bytes = [], 0
    if group:
        groups.append(group)
    return [*parts, groups] if groups else parts


@given(texts, st.lists(st.integers(0, 60), max_size=8), st.integers(1, 200), st.integers(1, 9), st.integers(1, 600))
def test_rows_are_cut_by_what_they_take_and_not_by_how_they_come(
    values: list[bytes | None], edges: list[int], group_bytes: int, group_rows: int, part_bytes: int
) -> None:
    table = pa.table({"t": pa.array(values, pa.binary())})
    cuts = Cuts(group_bytes, group_rows, part_bytes)
    parts = list(cut(pieces_of(table, edges), cuts))
    sizes = [16 + len(value or b"") for value in values]
    assert [[group.num_rows for group in part] for part in parts] == in_plain_words(sizes, cuts)
    groups = [group for part in parts for group in part]
    assert [value for group in groups for value in group["t"].to_pylist()] == values
    assert {group["t"].num_chunks for group in groups} <= {1}
    # Whoever goes on after a part cuts as if nothing had been before.
    for number in range(len(parts)):
        done = sum(group.num_rows for part in parts[:number] for group in part)
        assert list(cut([table.slice(done)], cuts)) == parts[number:]


@pytest.mark.parametrize("kind", TYPES.values(), ids=TYPES)
def test_what_a_row_takes_is_the_same_in_any_table(kind: pa.DataType) -> None:
    column = drawn(np.random.default_rng(3), kind, 300)
    sizes = value_bytes(column)
    assert value_bytes(column.slice(37, 100)).tolist() == sizes[37:137].tolist()
    assert value_bytes(column.take(pa.array(range(299, -1, -1)))).tolist() == sizes[::-1].tolist()
    assert (
        row_bytes(pa.table({"a": pa.chunked_array([column[:11], column[11:]]), "b": column})).tolist()
        == (2 * sizes).tolist()
    )
    # Near to what Arrow says, and never far below it: memory is bounded by it.
    assert sizes.sum() >= 0.6 * column.nbytes


def test_what_lies_below_a_null_is_not_counted() -> None:
    lists = pa.ListArray.from_arrays(pa.array([0, 5, 6], pa.int32()), pa.array(range(6)), mask=pa.array([True, False]))
    struct = pa.StructArray.from_arrays([pa.array(["long text", "b"])], ["t"], mask=pa.array([True, False]))
    assert value_bytes(lists).tolist() == [16, 24]
    assert value_bytes(struct).tolist() == [16, 17]
