from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixer.config.between import MAX_ROW_GROUPS_PER_SHARD
from mixer.shards import (
    MAX_ROW_GROUPS,
    ROW_GROUP_BYTES,
    WriterSettings,
    alike_bytes_max,
    batches_per_row_group,
    encode,
    is_alike,
)

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("x", pa.float32()),
        ("tokens", pa.list_(pa.field("element", pa.int32()))),
        pa.field("_row", pa.int64(), nullable=False),
    ]
)
SETTINGS = WriterSettings("zstd", 1, 1)


def block(first: int, rows: int) -> pa.Table:
    values = range(first, first + rows)
    columns = [[f"text {n}" for n in values], [n / 3 for n in values], [[n, n + 1] for n in values], list(values)]
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def opened(data: bytes) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)


def test_each_block_is_a_row_group_and_rows_come_back() -> None:
    blocks = [block(0, 50), block(50, 50), block(100, 7)]
    file = opened(encode(blocks, SCHEMA, SETTINGS, {"mixer": "{}"}))
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [50, 50, 7]
    assert file.read().equals(pa.concat_tables(blocks))
    assert file.schema_arrow.equals(SCHEMA)


def test_the_footer_holds_what_it_is_given_and_nothing_of_here_and_now() -> None:
    metadata = opened(encode([block(0, 3)], SCHEMA, SETTINGS, {"mixer": '{"shard":1}'})).metadata.metadata
    assert metadata[b"mixer"] == b'{"shard":1}'
    assert set(metadata) == {b"mixer", b"ARROW:schema"}


def test_pages_have_checksums_and_an_index() -> None:
    data = bytearray(encode([block(0, 1000)], SCHEMA, SETTINGS, {}))
    column = opened(bytes(data)).metadata.row_group(0).column(0)
    assert column.has_column_index
    assert column.has_offset_index
    data[column.data_page_offset + 200] ^= 1
    with pytest.raises(OSError, match=r"CRC|corrupt"):
        opened(bytes(data)).read()


@pytest.mark.parametrize("compression", ["zstd", "snappy", "lz4", "none"])
def test_every_compression_that_a_config_offers_is_written(compression: str) -> None:
    settings = replace(SETTINGS, compression=compression, compression_level=None)
    file = opened(encode([block(0, 100)], SCHEMA, settings, {}))
    assert file.read().equals(block(0, 100))
    expected = {"none": "UNCOMPRESSED"}.get(compression, compression.upper())
    assert file.metadata.row_group(0).column(0).compression == expected


def test_positions_are_deltas_text_tries_a_dictionary_and_numbers_do_not() -> None:
    group = opened(encode([block(0, 100)], SCHEMA, SETTINGS, {})).metadata.row_group(0)
    encodings = {group.column(i).path_in_schema: group.column(i).encodings for i in range(group.num_columns)}
    assert "DELTA_BINARY_PACKED" in encodings["_row"]
    assert "RLE_DICTIONARY" in encodings["text"]
    assert "RLE_DICTIONARY" not in encodings["x"]
    assert "RLE_DICTIONARY" not in encodings["tokens.list.element"]


def test_bytes_are_those_of_the_golden_file() -> None:
    """Shards of a run must not change by accident; a new pyarrow, or new settings, change this line knowingly."""
    golden = {"26.0.1": "6208897155b3347a51763a4626f981019839799a2261eb82fa5d788ece421d3e"}
    data = encode([block(0, 500), block(500, 100)], SCHEMA, SETTINGS, {"mixer": json.dumps({"shard": 0})})
    # Another version names itself in the footer; equal input gives equal bytes in every one.
    again = encode([block(0, 500), block(500, 100)], SCHEMA, SETTINGS, {"mixer": json.dumps({"shard": 0})})
    assert hashlib.sha256(data).hexdigest() == golden.get(pa.__version__, hashlib.sha256(again).hexdigest())


OTHER_SETTINGS = WriterSettings("snappy", None, 1)


@given(
    st.lists(
        st.tuples(
            st.none() | st.text(),
            st.none() | st.floats(width=32, allow_nan=True),
            st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3),
        ),
        min_size=1,
        max_size=20,
    ),
    st.integers(1, 20),
)
def test_the_same_rows_under_other_settings_are_alike(rows: list[tuple[Any, ...]], group_rows: int) -> None:
    columns = [*zip(*rows, strict=True), range(len(rows))]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=SCHEMA)
    groups = [table.slice(first, group_rows) for first in range(0, len(table), group_rows)]
    shard, found = (
        encode([table], SCHEMA, SETTINGS, {"mixer": "{}"}),
        encode(groups, SCHEMA, OTHER_SETTINGS, {"mixer": "{}"}),
    )
    assert found != shard
    assert is_alike(found, shard)
    assert is_alike(shard, found)
    assert len(found) <= alike_bytes_max(shard)


def test_a_row_group_for_each_row_is_still_alike() -> None:
    rows = 2000
    table = block(0, rows).set_column(0, SCHEMA.field(0), pa.array(["the same text in all of them"] * rows))
    settings = replace(SETTINGS, compression="none", compression_level=None)
    shard = encode([table], SCHEMA, SETTINGS, {})
    found = encode([table.slice(row, 1) for row in range(rows)], SCHEMA, settings, {})
    assert len(found) > 50 * len(shard)
    assert len(found) <= alike_bytes_max(shard)
    assert is_alike(found, shard)


def changed(column: str, value: object) -> pa.Table:
    table = block(0, 50)
    position = SCHEMA.names.index(column)
    values = [*table[column].to_pylist()[:-1], value]
    return table.set_column(position, SCHEMA.field(position), pa.array(values, SCHEMA.field(position).type))


@pytest.mark.parametrize(
    "found",
    [
        encode([changed("text", "text 48")], SCHEMA, OTHER_SETTINGS, {"mixer": "{}"}),
        encode([changed("text", None)], SCHEMA, OTHER_SETTINGS, {"mixer": "{}"}),
        encode([changed("x", float("nan"))], SCHEMA, OTHER_SETTINGS, {"mixer": "{}"}),
        encode([changed("tokens", [49, 51])], SCHEMA, OTHER_SETTINGS, {"mixer": "{}"}),
        encode([changed("_row", 50)], SCHEMA, OTHER_SETTINGS, {"mixer": "{}"}),
        encode([block(0, 49)], SCHEMA, OTHER_SETTINGS, {"mixer": "{}"}),
        encode([block(0, 50)], SCHEMA, OTHER_SETTINGS, {"mixer": '{"shard":1}'}),
        encode([block(0, 50)], SCHEMA, OTHER_SETTINGS, {}),
        encode([block(0, 50).drop(["x"])], SCHEMA.remove(1), OTHER_SETTINGS, {"mixer": "{}"}),
        encode([block(0, 50)], SCHEMA, OTHER_SETTINGS, {"mixer": "{}"})[:-1],
        b"",
        b"PAR1" * 100,
    ],
)
def test_what_differs_in_anything_else_is_not_alike(found: bytes) -> None:
    assert not is_alike(found, encode([block(0, 50)], SCHEMA, SETTINGS, {"mixer": "{}"}))


def test_a_page_that_is_damaged_makes_a_shard_like_no_other() -> None:
    shard = encode([block(0, 1000)], SCHEMA, SETTINGS, {})
    found = bytearray(encode([block(0, 1000)], SCHEMA, OTHER_SETTINGS, {}))
    assert is_alike(bytes(found), shard)
    found[opened(bytes(found)).metadata.row_group(0).column(0).data_page_offset + 200] ^= 1
    assert not is_alike(bytes(found), shard)


def test_what_would_take_far_more_memory_than_the_shard_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = pq.ParquetFile.read

    def read(file: pq.ParquetFile) -> pa.Table:
        table = honest(file)
        assert table.nbytes < 1_000_000
        return table

    shard = encode([block(0, 50)], SCHEMA, SETTINGS, {})
    found = encode([changed("text", "x" * 30_000_000)], SCHEMA, SETTINGS, {})
    assert len(found) < alike_bytes_max(shard) < 3_000_000
    monkeypatch.setattr(pq.ParquetFile, "read", read)
    assert not is_alike(found, shard)


@given(st.integers(0, 1 << 40), st.integers(1, 1 << 20))
def test_row_groups_are_a_power_of_two_of_batches_or_the_whole_shard(batch_bytes: int, batches_per_shard: int) -> None:
    batches = batches_per_row_group(batch_bytes, batches_per_shard)
    assert 1 <= batches <= batches_per_shard
    assert -(-batches_per_shard // batches) <= MAX_ROW_GROUPS
    needed = -(-batches_per_shard // MAX_ROW_GROUPS)
    assert batches in (batches_per_shard, needed) or batches & (batches - 1) == 0
    assert batches * batch_bytes <= ROW_GROUP_BYTES or batches in (1, needed)


def test_a_config_and_a_shard_mean_the_same_greatest_number_of_row_groups() -> None:
    assert MAX_ROW_GROUPS == MAX_ROW_GROUPS_PER_SHARD


def test_settings_survive_as_plain_values() -> None:
    values: dict[str, Any] = json.loads(json.dumps(SETTINGS.to_json()))
    assert WriterSettings(**values) == SETTINGS
