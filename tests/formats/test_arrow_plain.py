"""Arrow types that Parquet does not have: values come out in another form, or the column is named and refused."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer.errors import InputError, SchemaError
from mixer.formats.arrow_plain import levels, plain_type, plain_values
from mixer.formats.options import MAX_DEPTH
from tests.formats.making import arrow, read, written
from tests.formats.test_arrow import TABLE
from tests.profiles import sized


def runs_of(values: pa.Array, lengths: list[int]) -> pa.Array:
    ends = pa.array([sum(lengths[: place + 1]) for place in range(len(lengths))], pa.int32())
    return pa.RunEndEncodedArray.from_arrays(ends, values)


TEXTS = pa.array(["a", None, "c", "a"])
NUMBERS = pa.array([[1], None, [], [2, None, 3]], pa.list_view(pa.int32()))
OVER_EACH_OTHER = pa.ListViewArray.from_arrays(
    pa.array([2, 0, 1, 0], pa.int32()), pa.array([1, 2, 2, 0], pa.int32()), pa.array([7, 8, 9], pa.int32())
)
FORMS = {
    "runs of a dictionary": runs_of(TEXTS.dictionary_encode(), [3, 1, 1, 2]),
    "runs of views": runs_of(TEXTS.cast(pa.string_view()), [1, 5, 1, 1]),
    "runs of lists": runs_of(pa.array([[1, 2], None, []]), [2, 2, 3]),
    "maps of a dictionary": pa.MapArray.from_arrays(
        pa.array([0, 1, None, 4], pa.int32()),
        pa.array(["x", "y", "x", "y"]).dictionary_encode(),
        pa.array([1, 2, 3, 4]),
    ),
    "a dictionary of views": pa.DictionaryArray.from_arrays(
        pa.array([1, None, 0, 2], pa.uint32()), TEXTS.cast(pa.string_view())
    ),
    "lists of a dictionary of views": pa.ListArray.from_arrays(
        pa.array([0, 3, 3, 4], pa.int32()),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, None], pa.int8()), pa.array([b"x", b"y"], pa.binary_view())),
    ),
    "list views": NUMBERS,
    "list views over each other": OVER_EACH_OTHER,
    "large list views": pa.array(NUMBERS.to_pylist(), pa.large_list_view(pa.int32())),
    "list views of a dictionary": pa.ListViewArray.from_arrays(
        pa.array([1, 0], pa.int32()), pa.array([3, 2], pa.int32()), TEXTS.dictionary_encode()
    ),
    "a struct of runs": pa.StructArray.from_arrays(
        [runs_of(TEXTS, [1, 1, 1, 2]), pa.array(range(5))], ["r", "n"], mask=pa.array([False, True, False, False, True])
    ),
    "lists of runs": pa.ListArray.from_arrays(pa.array([0, 1, 1, 6], pa.int32()), runs_of(TEXTS, [2, 1, 1, 2])),
    "large lists of list views": pa.LargeListArray.from_arrays(pa.array([0, 3, 4]), NUMBERS),
    "lists of one length of list views": pa.FixedSizeListArray.from_arrays(
        pa.concat_arrays([NUMBERS, NUMBERS]), 2, mask=pa.array([False, True, False, False])
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_stream", [False, True], ids=["file", "stream"])
def test_every_form_comes_out_as_its_values(tmp_path: Path, form: str, is_stream: bool) -> None:
    table = pa.table({"c": FORMS[form]})
    found = read(written(tmp_path, "a.arrow", arrow(table, is_stream=is_stream)))
    assert found.rows == table.to_pylist()
    pq.write_table(pa.Table.from_pylist(found.rows, found.schema), io.BytesIO())


@given(st.sampled_from(sorted(FORMS)), st.integers(0, 8), st.integers(0, 8))
@settings(max_examples=sized(short=60, long=1000))
def test_a_slice_comes_out_as_its_own_values(form: str, start: int, rows: int) -> None:
    array = FORMS[form].slice(min(start, len(FORMS[form])), rows)
    found = plain_values(array, plain_type(array.type))
    found.validate(full=True)
    assert found.to_pylist() == array.to_pylist()
    assert found.type.equals(plain_type(array.type), check_metadata=True)


@pytest.mark.parametrize(
    ("kind", "plain"),
    [
        (pa.timestamp("s"), pa.timestamp("ms")),
        (pa.timestamp("s", "Europe/Berlin"), pa.timestamp("ms", "Europe/Berlin")),
        (pa.time32("s"), pa.time32("ms")),
    ],
    ids=str,
)
def test_whole_seconds_are_milliseconds_in_the_type_too(tmp_path: Path, kind: pa.DataType, plain: pa.DataType) -> None:
    table = pa.table({"c": pa.array([0, None, 80_000], kind)})
    found = read(written(tmp_path, "a.arrow", arrow(table, is_stream=True)))
    assert found.schema.field("c").type == plain
    assert found.rows == table.to_pylist()
    # What a reader of the prepared copy finds is what was told of it.
    out = io.BytesIO()
    pq.write_table(table, out)
    assert pq.read_schema(io.BytesIO(out.getvalue())).field("c").type == plain


def test_a_time_that_has_no_place_in_parquet_is_an_error_that_names_the_column(tmp_path: Path) -> None:
    table = pa.table({"n": [1, 2], "when": pa.array([0, 2**62], pa.timestamp("s"))})
    with pytest.raises(SchemaError, match=r"a\.arrow, rows from 1: column 'when' is timestamp\[s\] and cannot be .*ms"):
        read(written(tmp_path, "a.arrow", arrow(table, is_stream=True)))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.map_(pa.string(), pa.timestamp("s")), [("k", 2**62)]),
        (pa.list_(pa.struct({"a": pa.timestamp("s")})), [{"a": 2**62}]),
    ],
    ids=str,
)
def test_so_is_a_time_inside_of_another_value(tmp_path: Path, kind: pa.DataType, value: Any) -> None:
    table = pa.table({"when": pa.array([None, value], kind)})
    with pytest.raises(SchemaError, match=r"a\.arrow, rows from 1: column 'when' is .* cannot be brought to .*ms"):
        read(written(tmp_path, "a.arrow", arrow(table, is_stream=True)))


def test_maps_of_runs_are_refused_by_name(tmp_path: Path) -> None:
    runs = pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), pa.array(["x", "y"]), runs_of(TEXTS[:2], [1, 1]))
    with pytest.raises(SchemaError, match=r"column 'm' is map<.* and cannot be brought to map<string, string>"):
        read(written(tmp_path, "a.arrow", arrow(pa.table({"m": runs}), is_stream=True)))


def deep(kind: pa.DataType, structs: int, lists: int) -> pa.DataType:
    for _ in range(lists):
        kind = pa.list_(kind)
    for _ in range(structs):
        kind = pa.struct({"a": kind})
    return kind


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (pa.month_day_nano_interval(), "Unhandled type"),
        (pa.list_(pa.struct([])), "no child field"),
        (pa.decimal128(5, -2), "Scale must be a non-negative integer"),
        (pa.struct({"in": pa.decimal128(5, -2)}), "Scale must be a non-negative integer"),
        (pa.binary(0), "Invalid FIXED_LEN_BYTE_ARRAY length: 0"),
        (pa.list_(pa.int32(), 0), "lists of the fixed length 0"),
        (pa.list_(pa.list_(pa.int32(), 0)), "lists of the fixed length 0"),
        (deep(pa.int8(), MAX_DEPTH, 0), f"more than {MAX_DEPTH} levels"),
        (deep(pa.int8(), 0, MAX_DEPTH // 2), f"more than {MAX_DEPTH} levels"),
        (deep(pa.map_(pa.string(), pa.int8()), MAX_DEPTH - 2, 0), f"more than {MAX_DEPTH} levels"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_column_that_parquet_cannot_hold_is_an_error_that_names_it(
    tmp_path: Path, kind: pa.DataType, why: str
) -> None:
    schema = pa.schema({"good": pa.int8(), "odd": kind, "t": pa.string()})
    data = arrow(schema.empty_table(), is_stream=True)
    with pytest.raises(SchemaError, match=rf"a\.arrow: column 'odd' is .*, which Parquet cannot hold \(.*{why}.*write"):
        read(written(tmp_path, "a.arrow", data))


@pytest.mark.parametrize(
    ("structs", "lists"), [(MAX_DEPTH - 1, 0), (1, MAX_DEPTH // 2 - 1), (MAX_DEPTH // 3 - 1, MAX_DEPTH // 3)]
)
def test_the_deepest_columns_that_are_taken_can_be_read_again(tmp_path: Path, structs: int, lists: int) -> None:
    kind = deep(pa.int8(), structs, lists)
    assert levels(kind) == MAX_DEPTH - 1
    value: Any = 1
    for _ in range(lists):
        value = [value]
    for _ in range(structs):
        value = {"a": value}
    found = read(written(tmp_path, "a.arrow", arrow(pa.table({"c": pa.array([value], kind)}), is_stream=False)))
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(found.rows, found.schema), out)
    table = pq.read_table(io.BytesIO(out.getvalue()))
    # DuckDB, among others, takes and gives rows by this interface.
    assert pa.RecordBatchReader.from_stream(table.to_reader()).read_all().to_pylist() == [{"c": value}]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int8(), 3), pa.large_list(pa.map_(pa.string(), pa.list_(pa.int8()))), pa.struct({"a": pa.int8()}),
        pa.map_(pa.string(), pa.struct({"a": pa.int8()})), pa.uuid(), pa.int8(),
    ],
    ids=str,
)  # fmt: skip
def test_levels_are_those_of_parquet(kind: pa.DataType) -> None:
    out = io.BytesIO()
    pq.ParquetWriter(out, pa.schema({"c": kind})).close()
    schema = pq.ParquetFile(io.BytesIO(out.getvalue())).schema
    assert max(schema.column(place).path.count(".") for place in range(len(schema))) == levels(kind)


@pytest.mark.parametrize("at", [92, 148], ids=["column 2", "column 1"])
def test_a_name_that_is_not_utf_8_is_an_error(tmp_path: Path, at: int) -> None:
    data = bytearray(arrow(TABLE, is_stream=True))
    data[at] ^= 128
    with pytest.raises(InputError, match=r"a\.arrow: expected names in UTF-8, found a text of column [12]"):
        read(written(tmp_path, "a.arrow", bytes(data)))


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct({"Zürich": pa.int8()}), pa.list_(pa.dictionary(pa.int8(), pa.timestamp("s", "Zürich"))),
        pa.run_end_encoded(pa.int32(), pa.timestamp("s", "Zürich")), pa.list_(pa.field("Zürich", pa.int8())),
    ],
    ids=str,
)  # fmt: skip
def test_a_text_inside_of_a_type_that_is_not_utf_8_is_an_error(tmp_path: Path, kind: pa.DataType) -> None:
    data = arrow(pa.Table.from_batches([], pa.schema({"c": kind})), is_stream=True)
    data = data.replace("Zürich".encode(), b"Z\xfc?rich")
    with pytest.raises(InputError, match=r"a\.arrow: expected names in UTF-8, found a text of column 1"):
        read(written(tmp_path, "a.arrow", data))
