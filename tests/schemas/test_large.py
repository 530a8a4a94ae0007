"""Text beyond what 32 bits address, in a shard and in a row group."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixer import mixing
from mixer.building import build
from mixer.config import config_from
from mixer.schemas import conforming
from tests.profiles import sized

DISTINCT = 7


def texts(dataset: int, size: int) -> pa.Array:
    """Return a few texts of `size` bytes, each of another letter."""
    return pa.array([chr(ord("a") + dataset * DISTINCT + number) * size for number in range(DISTINCT)])


def write_input(path: Path, dataset: int, rows: int, size: int) -> None:
    """Write a dataset in which text follows from its row's number, so that little has to be stored."""
    indices = pa.array([row * 3 % DISTINCT for row in range(rows)], pa.int32())
    kind = pa.large_string() if dataset else pa.string()
    column = pa.DictionaryArray.from_arrays(indices, texts(dataset, size).cast(kind))
    table = pa.table({"n": range(rows), "t": column})
    pq.write_table(table, path, dictionary_pagesize_limit=2 * DISTINCT * size, row_group_size=1 << 14)


def check(shard: Path, rows: int, size: int) -> int:
    """Check each row of `shard`; return the bytes of its texts."""
    expected = [texts(dataset, size) for dataset in range(2)]
    seen = total = 0
    for batch in pq.ParquetFile(shard).iter_batches(batch_size=64):
        for place, (n, text) in enumerate(zip(batch["n"].to_pylist(), batch["t"], strict=True), start=seen):
            assert n == place // 2
            assert text.as_buffer().equals(expected[place % 2][n * 3 % DISTINCT].as_buffer())
            total += len(text.as_buffer())
        seen += len(batch)
    assert seen == 2 * rows
    return total


def build_one_shard(folder: Path, rows: int, size: int, **changes: int) -> Path:
    for dataset in range(2):
        write_input(folder / f"{dataset}.parquet", dataset, rows, size)
    config = config_from(
        {
            "output": str(folder / "out"),
            "batch_size": 2,
            "batches": rows,
            "batches_per_shard": rows,
            "datasets": {str(number): {"path": str(folder / f"{number}.parquet"), "weight": 1} for number in range(2)},
            **changes,
        }
    )
    build(config)
    (shard,) = (folder / "out" / "data").iterdir()
    return shard


def test_a_shard_may_hold_more_text_than_32_bits_address(tmp_path: Path) -> None:
    """In the short profile the texts are small; only the long one has the 2 GiB."""
    size = sized(short=1 << 10, long=1 << 16)
    rows = (1 << 30) // (1 << 16) + 100
    rows = sized(short=rows // 8, long=rows)
    total = check(build_one_shard(tmp_path, rows, size), rows, size)
    assert total == 2 * rows * size
    assert total > sized(short=0, long=2**31)


def test_a_row_group_may_hold_more_text_than_one_array_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one array can hold is set to far less, so that memory is not what is tested."""
    assert max(mixing.COLUMN_BYTES, conforming.MAX_CHUNK_OFFSET) < 2**31
    monkeypatch.setattr(mixing, "COLUMN_BYTES", 50_000)
    monkeypatch.setattr(conforming, "MAX_CHUNK_OFFSET", 10_000)
    shard = build_one_shard(tmp_path, 500, 1000, batches_per_row_group=500)
    assert pq.ParquetFile(shard).num_row_groups == 1
    assert check(shard, 500, 1000) == 1_000_000
