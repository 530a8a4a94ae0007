"""Sorting more than memory holds, in child processes whose memory is measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.profiles import sized

DATA_MIB = sized(short=24, long=1024)
MEMORY_MIB = 48
BOUND_MIB = 48 + 464
"""What a process may take above its imports: the sort's own memory, a part or two, and pieces on their way in and out;
in the long profile half of the rows."""

WRITE = """
import sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq

path, mib = sys.argv[1], int(sys.argv[2])
chance = np.random.default_rng(0)
row = 0
with pq.ParquetWriter(path, pa.schema({"row": pa.int64(), "text": pa.binary(), "n": pa.list_(pa.int32())}),
                      compression="none", use_dictionary=False) as writer:
    for _ in range(mib // 8):
        # Most rows are small; a few are far larger than what DuckDB's sort holds so many of.
        sizes = np.where(chance.random(4000) < 0.004, 300_000, chance.integers(0, 1000, 4000))
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        data = [None, pa.py_buffer(offsets), pa.py_buffer(chance.bytes(offsets[-1]))]
        texts = pa.Array.from_buffers(pa.binary(), 4000, data)
        ends = np.concatenate([[0], np.cumsum(np.arange(4000) % 7)]).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(ends), pa.array(np.arange(ends[-1], dtype=np.int32)))
        table = pa.table({"row": np.arange(row, row + 4000), "text": texts, "n": lists})
        writer.write_table(table, row_group_size=1000)
        row += 4000
"""

SORT = """
import resource, sys
from pathlib import Path

import duckdb
import numpy as np

from mixer.config import BatchesConfig
from mixer.core.order import full_order
from mixer.preparation.batching import BatchesStage
from mixer.preparation.external import SortLimits
from mixer.preparation.sorting import FullShuffleStage
from mixer.sources.inventory import take_inventory
from mixer.sources.parquet import ParquetSource
from mixer.schemas import merge

path, folder, memory_mib, kind = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]

inventory, (stored,) = take_inventory("web", path)
source = ParquetSource("web", inventory, merge({"web": [(path, stored)]}, lineage=False).schema)
limits = SortLimits(memory_bytes=memory_mib << 20, scratch=folder)
if kind == "full":
    stage = FullShuffleStage("web", source, None, 17, limits=limits)
else:
    stage = BatchesStage("web", BatchesConfig(by="n", size=50, include_partial=True), source, None, 17, limits=limits)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = []
for part in stage.parts(stage.schema(), None):
    for group in part.row_groups:
        column = group["row"].combine_chunks()
        rows.append(column.to_numpy() if kind == "full" else column.flatten().to_numpy())
    cursor = part.cursor
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
rows = np.concatenate(rows)
assert len(rows) == source.rows
if kind == "full":
    assert (rows == full_order(source.rows, 17, "web")).all()
else:
    assert (np.sort(rows) == np.arange(source.rows)).all()
stage.facts(cursor)
assert not list(folder.iterdir())
print(grown // 1024)
"""


def run(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(sized(short=600, long=1800))
@pytest.mark.parametrize("kind", ["full", "batches"])
def test_rows_larger_than_memory_are_sorted_in_bounded_memory(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "0.parquet")
    run(WRITE, path, str(DATA_MIB))
    folder = tmp_path / "scratch"
    folder.mkdir()
    assert int(run(SORT, path, str(folder), str(MEMORY_MIB), kind)) < BOUND_MIB
