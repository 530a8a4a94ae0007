"""Window i is ``ids[i * S : i * S + T + 1]``, read from anywhere, in whatever type it is stored."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer.config.fields import WindowConfig
from mixer.core.windows import tail_start, window_count
from mixer.errors import CorruptionError, SchemaError
from mixer.schemas import Column, View
from mixer.sources.inventory import take_inventory
from mixer.sources.parquet import ParquetSource
from mixer.sources.windows import WindowSource, check_stored, stream_schema, vocabulary_in, window_schema

Documents = list[int]
"""Lengths of the documents of a stream."""


class Stream:
    """A stream in memory as a source; it notes what is read of it."""

    name = "web"

    def __init__(self, lengths: Documents, *, documents: bool = True, kind: Any = np.uint16) -> None:
        self.ids = (np.arange(sum(lengths)) * 7 % 60_000).astype(kind)
        self.documents = np.repeat(np.arange(1_000, 1_000 + len(lengths)), lengths)
        table = pa.table({"token": self.ids, "document": self.documents})
        self.table = table if documents else table.select(["token"])
        self.rows, self.schema = len(table), self.table.schema
        self.read_ids: list[tuple[int, int]] = []
        self.is_closed = False

    def read(self, start: int, stop: int) -> pa.Table:
        assert 0 <= start < stop <= self.rows
        self.read_ids.append((start, stop))
        # In several chunks, as of several row groups.
        middle = (start + stop) // 2
        return pa.concat_tables([self.table.slice(start, middle - start), self.table.slice(middle, stop - middle)])

    def close(self) -> None:
        self.is_closed = True


def window_of(**fields: Any) -> WindowConfig:
    return WindowConfig(**{"context_length": 4, **fields})


def by_hand(stream: Stream, window: WindowConfig) -> list[tuple[list[int], list[int]]]:
    """Return the ids of each window and the documents that they are in, one window after the other."""
    length, stride = window.context_length + 1, window.stride or window.context_length
    count = window_count(stream.rows, window.context_length, stride)
    starts = [number * stride for number in range(count)]
    tail = tail_start(stream.rows, window.context_length, stride)
    if window.pad_id is not None and tail is not None:
        starts.append(tail)
    found = []
    for start in starts:
        ids = stream.ids[start : start + length].tolist()
        numbers = (stream.documents[start : start + length] - stream.documents[start]).tolist()
        lacking = length - len(ids)
        found.append((ids + [window.pad_id or 0] * lacking, numbers + [-1] * lacking))
    return found


def in_python(table: pa.Table, store_as: str) -> list[list[int]]:
    """Return the ids of each window."""
    if store_as == "list":
        found: list[list[int]] = table["input_ids"].to_pylist()
        return found
    kind = {"uint16": "<u2", "int32": "<i4"}[store_as]
    return [np.frombuffer(value, kind).tolist() for value in table["input_ids"].to_pylist()]


WINDOWS = st.builds(
    window_of,
    context_length=st.integers(1, 9),
    stride=st.none() | st.integers(1, 14),
    pad_id=st.none() | st.integers(0, 65_535),
    store_as=st.sampled_from(["list", "uint16", "int32"]),
    documents=st.booleans(),
)


@settings(max_examples=150)
@given(st.lists(st.integers(1, 9), max_size=8), WINDOWS, st.data())
def test_every_read_gives_the_windows_that_brute_force_gives(
    lengths: Documents, window: WindowConfig, data: st.DataObject
) -> None:
    stream = Stream(lengths, documents=window.documents)
    expected = by_hand(stream, window)
    source = WindowSource(stream, window)
    assert source.rows == len(expected)
    for _ in range(data.draw(st.integers(1, 5))):
        start = data.draw(st.integers(0, source.rows))
        stop = data.draw(st.integers(start, source.rows))
        table = source.read(start, stop)
        assert table.schema == source.schema == window_schema(window)
        table.validate(full=True)
        assert in_python(table, window.store_as) == [ids for ids, _ in expected[start:stop]]
        if window.documents:
            assert table["document_ids"].to_pylist() == [numbers for _, numbers in expected[start:stop]]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.integers(1, 9), st.integers(1, 12), st.integers(1, 5))
def test_reading_on_reads_no_id_twice(lengths: Documents, context: int, stride: int, step: int) -> None:
    stream = Stream(lengths)
    source = WindowSource(stream, window_of(context_length=context, stride=stride, documents=True))
    for start in range(0, source.rows, step):
        source.read(start, min(start + step, source.rows))
    read = [identity for start, stop in stream.read_ids for identity in range(start, stop)]
    assert sorted(set(read)) == read
    source.close()
    assert stream.is_closed


def test_one_window_reads_its_own_ids_alone() -> None:
    stream = Stream([10_000])
    WindowSource(stream, window_of(stride=1)).read(7_000, 7_001)
    assert stream.read_ids == [(7_000, 7_005)]


def test_one_window_decodes_one_row_group_of_a_file(tmp_path: Path) -> None:
    pq.write_table(Stream([1_000] * 20).table, tmp_path / "a.parquet", row_group_size=500)
    inventory, _ = take_inventory("web", str(tmp_path))
    stream = ParquetSource("web", inventory, stream_schema(50_257))
    source = WindowSource(stream, window_of(context_length=32, documents=True))
    assert source.read(400, 401)["input_ids"][0].as_py() == [n * 7 % 60_000 for n in range(12_800, 12_833)]
    assert stream.row_groups_decoded == 1
    # What lies in two row groups takes both; and read on from there, each is decoded once.
    for start in range(0, source.rows, 3):
        source.read(start, min(start + 3, source.rows))
    assert stream.row_groups_decoded == 1 + 40


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 6)])
def test_windows_that_are_not_there_are_an_error(start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="expected 0 <= start <= stop <= 5"):
        WindowSource(Stream([21]), window_of()).read(start, stop)


def test_windows_come_in_the_schema_and_under_the_names_of_the_run() -> None:
    schema = pa.schema({"tokens": pa.list_(pa.field("element", pa.int64())), "label": pa.string()})
    view = View((Column("input_ids", "tokens"),), fill=True)
    table = WindowSource(Stream([10]), window_of(), schema=schema, view=view).read(1, 2)
    assert table.schema == schema
    assert table.to_pylist() == [{"tokens": [28, 35, 42, 49, 56], "label": None}]


def test_more_than_a_chunk_can_address_comes_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mixer.sources.windows._CHUNK_BYTES", 5 * 4 * 3)
    stream = Stream([40])
    table = WindowSource(stream, window_of(stride=2)).read(0, 10)
    assert [len(chunk) for chunk in table["input_ids"].chunks] == [3, 3, 3, 1]
    assert in_python(table, "list") == [ids for ids, _ in by_hand(stream, window_of(stride=2))[:10]]
    assert stream.read_ids == [(0, 9), (9, 15), (15, 21), (21, 23)]


@pytest.mark.parametrize(
    ("window", "vocabulary", "said"),
    [
        ({"store_as": "uint16"}, 65_537, "up to 65,535, and there are some up to 65,536; .* or say in `vocabulary`"),
        ({"store_as": "uint16", "pad_id": 65_536}, 300, "up to 65,536; choose `int32` or `list`$"),
        ({"store_as": "uint16", "pad_id": 65_535}, 65_536, None),
        ({"store_as": "int32", "pad_id": 2**31 - 1}, 2**31, None),
        ({}, 2**31, None),
    ],
)
def test_ids_that_their_type_cannot_hold_are_refused(window: dict[str, Any], vocabulary: int, said: str | None) -> None:
    if said is None:
        check_stored("web", window_of(**window), {"vocabulary": vocabulary})
        return
    with pytest.raises(SchemaError, match=said):
        check_stored("web", window_of(**window), {"vocabulary": vocabulary})


@pytest.mark.parametrize("vocabulary", [None, "9", True, 0])
def test_a_copy_that_does_not_tell_its_vocabulary_is_no_stream(vocabulary: Any) -> None:
    with pytest.raises(CorruptionError, match="does not say how many token ids there are"):
        vocabulary_in("web", {"vocabulary": vocabulary})


def test_what_is_not_read_takes_no_memory(tmp_path: Path) -> None:
    # A file of runs of one id: eight million ids take a few KB, and 32 MB in memory as windows without overlap.
    ids = pa.table({"token": np.zeros(1 << 20, np.uint16), "document": np.zeros(1 << 20, np.int64)})
    with pq.ParquetWriter(tmp_path / "a.parquet", ids.schema) as writer:
        for _ in range(8):
            writer.write_table(ids, row_group_size=1 << 20)
    inventory, _ = take_inventory("web", str(tmp_path))
    stream = ParquetSource("web", inventory, stream_schema(50_257, documents=False))
    tracemalloc.start()
    source = WindowSource(stream, window_of(context_length=1_024, stride=1))
    assert source.rows == (8 << 20) - 1_024
    before = pa.total_allocated_bytes()
    table = source.read(source.rows - 100, source.rows)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most + pa.total_allocated_bytes() - before < 8 << 20
    assert table.nbytes > 100 * 1_025 * 4
    assert stream.row_groups_decoded <= 2
