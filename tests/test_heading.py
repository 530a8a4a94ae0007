from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer import building
from mixer.batcher import DataBatcher
from mixer.errors import CorruptionError, OutputError
from mixer.heading import head
from mixer.storage import LocalStore
from tests.mixes import WEIGHTS, mix_config

BATCHES, BATCH_SIZE = 12, 4


class Numbers:
    """A registry of the datasets' rows as they are in a mix."""

    def get_iterator(self, name: str, offset: int = 0) -> Any:
        return ({"text": f"{name} {row}", "n": row, "_dataset": name, "_row": row} for row in range(offset, 1000))


def expected_rows() -> list[dict[str, Any]]:
    batcher = DataBatcher(Numbers(), WEIGHTS, BATCH_SIZE)
    return [{**row, "_batch": batch} for batch in range(BATCHES) for row in batcher.next_batch()]


@pytest.fixture(scope="module")
def restless(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A finished run of four shards that was started seven times: its slots are not where its shards' numbers are."""
    config = mix_config(tmp_path_factory.mktemp("restless"))
    for shards in (0, 0, 1, 1, 3):
        with building.start(config) as run:
            run.write(shards)
    building.build(config)
    return config.output


@settings(max_examples=60, deadline=None)
@given(batch=st.integers(0, BATCHES - 1), rows=st.integers(1, 60))
def test_any_batch_is_found_and_rows_go_on_over_shards(restless: str, batch: int, rows: int) -> None:
    found = head(restless, rows, batch=batch)
    first = batch * BATCH_SIZE
    assert found.first_row == first
    assert found.table.to_pylist() == expected_rows()[first : first + rows]


def test_only_the_row_group_that_holds_the_rows_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = tmp_path / "large.parquet"
    pq.write_table(pa.table({"data": [hashlib.shake_256(bytes([row])).digest(100_000) for row in range(12)]}), large)
    config = mix_config(
        tmp_path,
        batch_size=1,
        batches_per_shard=12,
        batches_per_row_group=1,
        datasets={"large": {"path": str(large), "weight": 1}},
    )
    building.build(config)
    read_bytes = 0
    honest = LocalStore.get_range

    def counted(store: LocalStore, name: str, start: int, stop: int) -> bytes:
        nonlocal read_bytes
        data = honest(store, name, start, stop)
        read_bytes += len(data)
        return data

    monkeypatch.setattr(LocalStore, "get_range", counted)
    assert head(config.output, 1, batch=7).table["_row"].to_pylist() == [7]
    # Reading a footer takes 64 KiB.
    assert 100_000 <= read_bytes < 200_000


def test_a_run_without_a_commit_has_no_rows_but_its_columns(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    building.start(config).close()
    found = head(config.output)
    assert found.table.num_rows == 0
    assert found.table.column_names == ["text", "n", "_dataset", "_row", "_batch"]


def test_rows_end_where_the_committed_part_ends(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    with building.start(config) as run:
        run.write(1)
    assert head(config.output, 100).table.num_rows == 12
    with pytest.raises(OutputError, match="batch 3 is not committed yet, so far there are 3"):
        head(config.output, batch=3)


def test_a_batch_that_the_run_will_never_have_is_refused(restless: str) -> None:
    with pytest.raises(OutputError, match="batch 12: the run has batches 0 to 11"):
        head(restless, batch=12)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda data: data[:-1], "the commit says"),
        (lambda data: data[:-4] + b"XXXX", "not readable as Parquet"),
        (lambda data: data[:8] + b"\xff" * 60 + data[68:], "not readable as Parquet"),
    ],
    ids=["truncated", "no footer", "bad page"],
)
def test_a_damaged_shard_is_named(tmp_path: Path, damage: Callable[[bytes], bytes], expected: str) -> None:
    config = mix_config(tmp_path)
    building.build(config)
    shard = tmp_path / "out/data/shard-00000000.parquet"
    shard.write_bytes(damage(shard.read_bytes()))
    with pytest.raises(CorruptionError, match=rf"shard-00000000\.parquet: {expected}"):
        head(config.output)
