"""Memory of a process that reads row groups far larger than what it may take; measured in child processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BOUND_MIB = 200
"""Above what the imports take. Decoded, each row group below takes half as much again, and more."""

WRITE = {
    "10 million small rows, texts of an Arrow dictionary": """
n = 10_000_000
texts = pa.array(["x" * 100, "y" * 120, "z" * 80])
index = pa.array(np.arange(n, dtype=np.int8) % 3)
table = pa.table({"id": np.arange(n), "text": pa.DictionaryArray.from_arrays(index, texts)})
pq.write_table(table, path, row_group_size=n)
""",
    "300 MB of long texts, not compressed": """
n = 300_000
data = np.random.default_rng(0).integers(97, 122, n * 1000, dtype=np.uint8)
offsets = np.arange(n + 1, dtype=np.int32) * 1000
texts = pa.Array.from_buffers(pa.string(), n, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
table = pa.table({"id": np.arange(n), "text": texts})
pq.write_table(table, path, row_group_size=n, use_dictionary=False, compression="none")
""",
}

READ = """
import resource
from mixer.schemas import merge
from mixer.sources.inventory import take_inventory
from mixer.sources.parquet import ParquetSource

inventory, (stored,) = take_inventory("d", path)
assert inventory.files[0].row_group_rows == (inventory.rows,)
source = ParquetSource("d", inventory, merge({"d": [("f", stored)]}, lineage=False).schema)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
step = inventory.rows // 100
for start in range(0, source.rows, step):
    table = source.read(start, start + step)
    assert table["id"][0].as_py() == start and table["id"][-1].as_py() == start + step - 1
    del table
assert source.row_groups_decoded == 1
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def _run(code: str, path: Path) -> str:
    head = f"import numpy as np, pyarrow as pa, pyarrow.parquet as pq\npath = {str(path)!r}\n"
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("write", WRITE.values(), ids=WRITE)
def test_a_huge_row_group_is_read_in_bounded_memory(tmp_path: Path, write: str) -> None:
    path = tmp_path / "0.parquet"
    _run(write, path)
    grown_mib = int(_run(READ, path))
    assert grown_mib < BOUND_MIB
