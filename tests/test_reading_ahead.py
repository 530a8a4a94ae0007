"""How much of a run is read ahead where its rows take far more than what is stored of them."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixer import building, readable, shard_reading
from tests.mixes import mix_config

DEADLINE_S = 120.0
GROUPS, GROUP_ROWS = 12, 64
# Stored once for each row group, as all its rows hold the same.
TEXT = "mixing " * 1000


@pytest.fixture(scope="module")
def repetitive(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run of twelve row groups in three shards, each of which takes some fifty times what is stored of it."""
    folder = tmp_path_factory.mktemp("repetitive")
    pq.write_table(pa.table({"text": [TEXT] * GROUPS * GROUP_ROWS}), folder / "a.parquet")
    config = mix_config(
        folder,
        batch_size=GROUP_ROWS,
        batches=GROUPS,
        batches_per_shard=4,
        batches_per_row_group=1,
        datasets={"a": {"path": str(folder / "a.parquet"), "weight": 1}},
    )
    building.build(config)
    return config.output


@pytest.mark.parametrize("columns", [None, ("text",)], ids=["whole shards", "one column"])
def test_rows_that_wait_keep_the_bound_however_little_is_stored_of_them(
    repetitive: str, columns: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    honest = shard_reading.OpenShard.read

    def counted(shard: shard_reading.OpenShard, group: int, names: Sequence[str]) -> pa.Table:
        table = honest(shard, group, names)
        assert table.nbytes > 30 * shard.stored_bytes(group)
        decoded.append(table.nbytes)
        return table

    monkeypatch.setattr(shard_reading.OpenShard, "read", counted)
    size = len(TEXT) * GROUP_ROWS
    # Room for two row groups, the one in use included, and most of another one.
    bytes_max = 2 * size + size * 9 // 10
    # One thread: how many row groups are begun before the first one tells what they take is the number of threads.
    pieces = readable.look(repetitive).pieces(
        readable.Wanted(range(GROUPS), columns=columns), readable.Ahead(bytes_max=bytes_max, threads=1)
    )
    for taken, piece in enumerate(pieces, start=1):
        wanted = min(taken + 1, GROUPS)
        deadline_s = time.monotonic() + DEADLINE_S
        while len(decoded) < wanted and time.monotonic() < deadline_s:
            time.sleep(0.002)
        # Long enough to decode what there is no room for.
        time.sleep(0.02)
        assert len(decoded) == wanted
        assert piece.table.nbytes + sum(decoded[taken:]) <= bytes_max
