"""Arrow IPC: values as stored, whole files only, and forms that Parquet does not have brought to plain ones."""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import feather

from mixer.errors import InputError, SchemaError
from tests.formats.making import arrow, packed, read, written
from tests.profiles import sized

TABLE = pa.table(
    {"n": pa.array(range(300), pa.int32()), "t": [None if n % 9 == 0 else "é" * (n % 7) for n in range(300)]}
)
both = pytest.mark.parametrize("is_stream", [False, True], ids=["file", "stream"])


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_feather_is_read_with_or_without_compressed_buffers(tmp_path: Path, compression: str) -> None:
    feather.write_feather(TABLE, str(tmp_path / "a.feather"), compression=compression, chunksize=64)
    found = read(str(tmp_path / "a.feather"))
    assert found.rows == TABLE.to_pylist()
    assert found.schema == TABLE.schema


@both
@pytest.mark.parametrize("ending", ["", ".gz"])
@given(cut=st.floats(0, 1, exclude_max=True))
@settings(max_examples=sized(short=15, long=300), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_that_is_cut_short_anywhere_is_an_error(
    tmp_path: Path, is_stream: bool, ending: str, cut: float
) -> None:
    data = arrow(TABLE, is_stream=is_stream)
    path = tmp_path / f"a.arrow{ending}"
    path.write_bytes(packed(data[: int(len(data) * cut)], ending))
    with pytest.raises(InputError, match=r"a\.arrow(\.gz)?(:|, after byte \d+:) expected"):
        read(str(path), on_bad_line="skip")


@both
@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
@settings(max_examples=sized(short=30, long=2000), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_byte_that_has_changed_is_another_value_or_an_error_of_ours(
    tmp_path: Path, is_stream: bool, place: float, flip: int
) -> None:
    data = bytearray(arrow(TABLE, is_stream=is_stream))
    data[int(len(data) * place)] ^= flip
    (tmp_path / "a.arrow").write_bytes(data)
    try:
        read(str(tmp_path / "a.arrow"))
    except (InputError, SchemaError):
        return


@both
def test_a_stream_that_just_ends_is_an_error_though_all_of_its_batches_are_whole(
    tmp_path: Path, is_stream: bool
) -> None:
    out = io.BytesIO()
    writer = (pa.ipc.new_stream if is_stream else pa.ipc.new_file)(out, TABLE.schema)
    writer.write_table(TABLE)
    whole = out.getvalue()
    writer.close()
    with pytest.raises(InputError, match="expected the mark that ends Arrow IPC, found none"):
        read(written(tmp_path, "a.arrow", whole))


def test_dictionaries_views_and_run_lengths_come_out_as_their_values(tmp_path: Path) -> None:
    texts = [None if n % 4 == 0 else f"t{n % 3}" for n in range(200)]
    plain = pa.array(texts)
    table = pa.table({
        "dictionary": plain.dictionary_encode(),
        "list": pa.ListArray.from_arrays(pa.array(range(201), pa.int32()), plain.dictionary_encode()),
        "struct": pa.StructArray.from_arrays([plain.dictionary_encode()], ["in"]),
        "view": plain.cast(pa.string_view()),
        "large": plain.cast(pa.large_string()),
        "null": pa.nulls(200),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([3, 50, 200], pa.int32()), pa.array(["a", None, "b"])),
    })  # fmt: skip
    found = read(written(tmp_path, "a.arrow", arrow(table, is_stream=False)))
    assert found.rows == table.to_pylist()
    element = pa.field("element", pa.string())
    assert found.schema.types == [
        pa.string(), pa.list_(element), pa.struct({"in": pa.string()}), pa.string(), pa.large_string(), pa.null(),
        pa.string(),
    ]  # fmt: skip


def test_an_array_whose_text_is_not_utf_8_is_an_error(tmp_path: Path) -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff")]
    )
    with pytest.raises(InputError, match=r"a\.arrow, rows from 1: the batch is damaged: .*UTF8"):
        read(written(tmp_path, "a.arrow", arrow(pa.table({"t": broken}), is_stream=False)))


def test_files_of_other_columns_are_an_error_that_names_the_first(tmp_path: Path) -> None:
    first = written(tmp_path, "1.arrow", arrow(TABLE, is_stream=False))
    cases = {
        "'n' is int32 in one and int64 in the other": TABLE.set_column(0, "n", TABLE["n"].cast(pa.int64())),
        "'t' is missing": TABLE.select(["n"]),
        "'x' is new": TABLE.append_column("x", TABLE["n"]),
        "they stand in another order": TABLE.select(["t", "n"]),
    }
    for message, table in cases.items():
        with pytest.raises(SchemaError, match=rf"expected the columns of .*1\.arrow in .*2\.arrow.*{message}"):
            read([first, written(tmp_path, "2.arrow", arrow(table, is_stream=True))])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table([pa.array([1]), pa.array([2])], ["a", "a"]), r"expected each column once, found several: \['a'\]"),
        (pa.table({}), "expected files with columns, found none"),
    ],
)
def test_columns_must_be_there_and_have_names_of_their_own(tmp_path: Path, table: pa.Table, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        read(written(tmp_path, "a.arrow", arrow(table, is_stream=False)))


@pytest.mark.parametrize(
    ("data", "message"), [(b"FEA1" + bytes(100), "Feather version 1"), (b"", "expected"), (b"text " * 99, "expected")]
)
def test_what_is_not_arrow_is_an_error(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(written(tmp_path, "a.arrow", data))


def test_one_huge_batch_is_cut_into_even_row_groups(tmp_path: Path) -> None:
    data = arrow(pa.table({"n": range(10_000)}), is_stream=False, batch_rows=10_000)
    found = read(written(tmp_path, "a.arrow", data), part_bytes=32_000, row_group_bytes=8000)
    assert {group.num_rows for part in found.parts for group in part.row_groups} == {1000}


def test_a_file_of_polars_without_a_schema_in_front_is_told_how_to_be_written(tmp_path: Path) -> None:
    frame = pl.DataFrame({"n": [1, 2, 3], "t": ["a", None, "c"], "c": pl.Series(["x", "y", "x"], dtype=pl.Categorical)})
    frame.write_ipc(tmp_path / "a.arrow")
    with pytest.raises(InputError, match=r"expected Arrow IPC.*if Polars wrote it, write it again with `write_ipc_str"):
        read(str(tmp_path / "a.arrow"))
    frame.write_ipc_stream(tmp_path / "a.arrow")
    assert read(str(tmp_path / "a.arrow")).rows == frame.to_dicts()
