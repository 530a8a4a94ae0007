"""Tables brought to the output schema: every value stays what it is, and nothing is copied without need."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer.errors import SchemaError
from mixer.schemas import conform, conforming, merge

Forms = tuple[list[pa.DataType], st.SearchStrategy[Any]]
"""Types that may be mixed, and values that every one of them has."""

TEXT = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3)]
MOMENTS = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))  # noqa: DTZ001 - unzoned on purpose
SECONDS = MOMENTS.map(lambda moment: moment.replace(microsecond=0))

LEAVES: list[Forms] = [
    ([pa.bool_()], st.booleans()),
    (TEXT, st.text("aé語\0😀 ", max_size=3)),
    (BYTES, st.binary(min_size=3, max_size=3)),
    ([pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.dictionary(pa.int8(), pa.int8())], st.integers(-128, 127)),
    ([pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()], st.integers(0, 255)),
    ([pa.uint8(), pa.int8(), pa.int32(), pa.uint32(), pa.float16(), pa.float32(), pa.float64()], st.integers(0, 127)),
    ([pa.float16(), pa.float32(), pa.float64()], st.floats(width=16, allow_nan=False)),
    (
        [pa.decimal32(5, 2), pa.decimal64(12, 4), pa.decimal128(20, 3), pa.decimal256(30, 2)],
        st.integers(-99_999, 99_999).map(lambda number: Decimal(number).scaleb(-2)),
    ),
    ([pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")], SECONDS),
    (
        [pa.timestamp("s", "UTC"), pa.timestamp("us", "Europe/Rome"), pa.timestamp("ns", "+02:00")],
        SECONDS.map(lambda moment: moment.replace(tzinfo=dt.UTC)),
    ),
    ([pa.date32(), pa.date64()], st.dates()),
    (
        [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")],
        st.times().map(lambda time: time.replace(microsecond=0)),
    ),
    (
        [pa.duration(unit) for unit in ("s", "ms", "us", "ns")],
        st.integers(-(10**9), 10**9).map(lambda seconds: dt.timedelta(seconds=seconds)),
    ),
]


def listed(forms: Forms) -> Forms:
    kinds, values = forms
    made = [
        make(kind)
        for kind in kinds[:3]
        for make in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view, lambda kind: pa.list_(kind, 2))
    ]
    return made, st.lists(st.none() | values, min_size=2, max_size=2)


def in_struct(forms: tuple[Forms, Forms]) -> Forms:
    (kinds, values), (others, other_values) = forms
    made = [pa.struct({"a": kind, "é": other}) for kind in kinds[:4] for other in others[:4]]
    made += [pa.struct({"é": other, "a": kind}) for kind in kinds[:2] for other in others[:2]]
    return made, st.fixed_dictionaries({"a": st.none() | values, "é": st.none() | other_values})


def nested(inner: st.SearchStrategy[Forms]) -> st.SearchStrategy[Forms]:
    return inner.map(listed) | st.tuples(inner, inner).map(in_struct)


@st.composite
def columns(draw: st.DrawFn) -> list[pa.ChunkedArray]:
    """Some columns of different types that may be mixed, all in chunks and slices."""
    kinds, values = draw(st.recursive(st.sampled_from(LEAVES), nested, max_leaves=3))
    made = []
    for kind in draw(st.lists(st.sampled_from([*kinds, pa.null()]), min_size=1, max_size=3)):
        rows = st.none() if pa.types.is_null(kind) else st.none() | values
        chunks = []
        for chunk in draw(st.lists(st.lists(rows, max_size=4), max_size=3)):
            start = draw(st.integers(0, len(chunk)))
            chunks.append(pa.array(chunk, kind).slice(start, draw(st.integers(0, len(chunk)))))
        made.append(pa.chunked_array(chunks, kind))
    return made


@given(columns())
@settings(deadline=None)
def test_every_value_comes_out_as_it_was(found: list[pa.ChunkedArray]) -> None:
    tables = [pa.table({"x": column}) for column in found]
    files = [(f"{index}.parquet", table.schema) for index, table in enumerate(tables)]
    schema = merge({"web": files}).schema
    assert merge({"web": files}).schema.equals(schema, check_metadata=True)
    for table in tables:
        output = conform(table, schema)
        output.validate(full=True)
        assert output.schema.equals(schema, check_metadata=True)
        assert output.to_pylist() == table.to_pylist()
        assert conform(output, schema) is output


@given(columns())
@settings(deadline=None)
def test_the_output_does_not_depend_on_the_order_of_files(found: list[pa.ChunkedArray]) -> None:
    files = [(f"{index}.parquet", pa.schema({"x": column.type})) for index, column in enumerate(found)]
    forth, back = merge({"web": files}).schema, merge({"web": files[::-1]}).schema
    # Fields of structs follow the first file; beside their order the types are equal.
    assert "".join(sorted(str(forth.field("x").type))) == "".join(sorted(str(back.field("x").type)))


def to(table: pa.Table, kind: pa.DataType) -> pa.Table:
    return conform(table, pa.schema({"x": kind}))


def test_columns_are_picked_by_name_and_the_rest_is_left_out() -> None:
    table = pa.table({"a": [1], "b": ["x"], "c": [2.5]})
    assert conform(table, pa.schema({"c": pa.float64(), "a": pa.int64()})).to_pylist() == [{"c": 2.5, "a": 1}]


@pytest.mark.parametrize("names", [["a", "a"], ["b", "c"]])
def test_a_column_that_is_missing_or_doubled_is_refused(names: list[str]) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=names)
    with pytest.raises(SchemaError, match=f"column 'a': expected once, found {names.count('a')} times"):
        conform(table, pa.schema({"a": pa.int64()}))


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.list_(pa.field("item", pa.int32(), nullable=False)), pa.struct({"a": pa.list_(pa.int8())})]
)
def test_equal_values_are_passed_on_without_a_copy(kind: pa.DataType) -> None:
    values = {"string": ["abc", "d"], "list": [[1, 2], [3]]}.get(
        str(kind).split("<", maxsplit=1)[0], [{"a": [1]}, {"a": [2]}]
    )
    table = pa.table({"x": pa.array(values, kind)})
    schema = merge({"web": [("a", table.schema)]}).schema
    before = pa.total_allocated_bytes()
    output = conform(table, schema)
    last = [column.chunk(0) for column in (table["x"], output["x"])]
    assert last[0].buffers()[-1].address == last[1].buffers()[-1].address
    assert pa.total_allocated_bytes() - before < 1024  # offsets and bitmaps at most


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array([1], pa.int64()), pa.int32()),
        (pa.array([1], pa.int64()), pa.float64()),
        (pa.array([1.0]), pa.int64()),
        (pa.array([1.0]), pa.float32()),
        (pa.array(["1"]), pa.int64()),
        (pa.array([1]), pa.string()),
        (pa.array([b"a"]), pa.string()),
        (pa.array([0], pa.timestamp("us")), pa.timestamp("us", "UTC")),
        (pa.array([0], pa.timestamp("us")), pa.timestamp("ms")),
        (pa.array([Decimal("1.5")], pa.decimal128(5, 2)), pa.decimal128(4, 2)),
        (pa.array([{"a": 1}]), pa.struct({"a": pa.int64(), "b": pa.int64()})),
        (pa.array([{"a": 1, "b": 2}]), pa.struct({"a": pa.int64()})),
        (pa.array([[1]], pa.list_(pa.int64())), pa.list_(pa.int8())),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), pa.list_(pa.int64())),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_a_type_that_merge_would_not_bring_there_is_refused_whatever_the_values(
    array: pa.Array, kind: pa.DataType
) -> None:
    with pytest.raises(SchemaError, match=r"column 'x.*'.*; plan the run again"):
        to(pa.table({"x": array}), kind)


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array([2**53], pa.timestamp("s")), pa.timestamp("ns")),
        (pa.array([1], pa.date64()), pa.date32()),
        (pa.array([2**62], pa.duration("s")), pa.duration("ms")),
    ],
)
def test_a_value_that_the_finer_type_cannot_hold_is_refused_and_not_changed(array: pa.Array, kind: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"column 'x': a value of type .* does not fit"):
        to(pa.table({"x": array}), kind)


def test_instants_stay_the_same_across_zones() -> None:
    rome = dt.datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Rome"))
    output = to(pa.table({"x": pa.array([rome], pa.timestamp("us", "Europe/Rome"))}), pa.timestamp("us", "UTC"))
    assert output["x"].to_pylist() == [dt.datetime(2026, 7, 1, 10, tzinfo=dt.UTC)]


def test_a_uuid_is_its_bytes() -> None:
    output = to(pa.table({"x": pa.array([bytes(range(16)), None], pa.uuid())}), pa.binary())
    assert output["x"].to_pylist() == [bytes(range(16)), None]


def test_values_beneath_a_null_are_not_looked_at() -> None:
    """A parent that is null may hide anything, such as a time that does not fit."""
    hidden = pa.StructArray.from_arrays([pa.array([2**53, 1], pa.timestamp("s"))], ["t"], mask=pa.array([True, False]))
    output = to(pa.table({"x": hidden}), pa.struct({"t": pa.timestamp("ns")}))
    assert output["x"].to_pylist()[0] is None
    fixed = pa.FixedSizeListArray.from_arrays(pa.array([2**53, 1], pa.timestamp("s")), 1, mask=pa.array([True, False]))
    output = to(pa.table({"x": fixed}), pa.list_(pa.field("element", pa.timestamp("ns"))))
    assert output["x"].is_valid().to_pylist() == [False, True]


LONG = [
    pa.array(["abcd", None, "efgh", "ij"], pa.large_string()),
    pa.array(["abcd", "abcd", "abcd", None]).dictionary_encode(),
    pa.array([["abcd", "e"], None, ["fgh"], []], pa.list_(pa.large_string())),
    pa.array([[1, 2, 3], [4, 5], [6], None], pa.large_list(pa.int8())),
    pa.array([{"a": "abcd"}, {"a": "efgh"}, None, {"a": "i"}], pa.struct({"a": pa.large_string()})),
]


@pytest.mark.parametrize("array", LONG, ids=lambda array: str(array.type))
def test_a_chunk_too_long_for_32_bits_comes_out_in_several(array: pa.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conforming, "MAX_CHUNK_OFFSET", 5)
    table = pa.table({"x": array})
    output = conform(table, merge({"web": [("a", table.schema)]}).schema)
    assert output["x"].num_chunks > 1
    assert output["x"].to_pylist() == array.to_pylist()
    # The second half begins beyond what 32 bits could address; it is still right alone.
    tail = conform(table.slice(2), output.schema)
    assert tail["x"].to_pylist() == array.to_pylist()[2:]


def test_the_end_of_a_chunk_beyond_32_bits_is_read_where_it_lies() -> None:
    data = np.zeros(2**31 + 3, dtype=np.uint8)  # pages that nobody writes to take no memory
    data[-3:] = list(b"abc")
    offsets = np.array([0, 2**30, 2**31, 2**31 + 1, 2**31 + 3], dtype=np.int64)
    array = pa.Array.from_buffers(pa.large_string(), 4, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    for tail in (array.slice(2), pa.LargeListArray.from_arrays(pa.array([2, 4], pa.int64()), array)):
        table = pa.table({"x": tail})
        output = conform(table, merge({"web": [("a", table.schema)]}).schema)
        assert output["x"].to_pylist() in (["a", "bc"], [["a", "bc"]])


@pytest.mark.parametrize("array", LONG, ids=lambda array: str(array.type))
def test_one_value_too_long_for_32_bits_is_refused(array: pa.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conforming, "MAX_CHUNK_OFFSET", 1)
    with pytest.raises(SchemaError, match="column 'x': one value holds more than 1 bytes or elements"):
        conform(pa.table({"x": array}), merge({"web": [("a", pa.schema({"x": array.type}))]}).schema)


def test_empty_tables_conform() -> None:
    for kind in (
        pa.large_list(pa.large_string()),
        pa.null(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_view(pa.int8()),
    ):
        table = pa.table({"x": pa.array([], kind)})
        schema = merge({"web": [("a", table.schema)]}).schema
        assert conform(table, schema).num_rows == 0
        assert conform(table.schema.empty_table(), schema).schema.equals(schema, check_metadata=True)


def test_many_rows_of_nested_slices_conform() -> None:
    rows = 10_000
    array = pa.array(
        [[{"a": str(row)}] * (row % 3) for row in range(rows)], pa.large_list(pa.struct({"a": pa.large_string()}))
    )
    table = pa.table({"x": array}).slice(17, rows - 40)
    output = conform(table, merge({"web": [("a", table.schema)]}).schema)
    assert output["x"].to_pylist() == table["x"].to_pylist()
    assert np.array_equal(output["x"].is_valid().to_numpy(), np.ones(rows - 40, dtype=bool))
