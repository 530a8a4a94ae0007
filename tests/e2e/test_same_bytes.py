"""The bytes of a run are decided by its definition and rows: not by the process, its threads, or its hash seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixer import building
from mixer.config import config_from
from mixer.planning import plan
from tests.e2e.runs import result

ROWS = 6_000
BODY_BYTES = 2_000
DATASETS = {"web": 3, "code": 2, "books": 1}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "ARROW_IO_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
MANY_THREADS = {"OMP_NUM_THREADS": "7", "ARROW_IO_THREADS": "16", "OPENBLAS_NUM_THREADS": "5"}

CHILD = """
import sys
import pyarrow as pa
from mixer import building
from mixer.config import load_config
if sys.argv[2] != "0":
    pa.set_cpu_count(int(sys.argv[2]))
    pa.set_io_thread_count(int(sys.argv[2]))
building.build(load_config(sys.argv[1]))
"""


def table_of(name: str, rows: int) -> pa.Table:
    """Return rows of every kind that is encoded in a way of its own: nulls, lists, structs, repeats, empty texts."""
    numbers = range(rows)
    return pa.table(
        {
            "text": [f"{name} {n} " * (n % 5) for n in numbers],
            # Of more than a page in a row group: where pages are cut must not follow from how the rows came.
            "body": [f"{name} {n} ".ljust(BODY_BYTES, "x") for n in numbers],
            "kind": [None if n % 7 == 0 else f"kind {n % 4}" for n in numbers],
            "score": [n / 3 for n in numbers],
            "tokens": pa.array([list(range(n % 6)) for n in numbers], pa.list_(pa.int32())),
            "meta": pa.array([None if n % 11 == 0 else {"page": n, "tags": [f"t{n % 3}"]} for n in numbers]),
        }
    )


@pytest.fixture
def values(tmp_path: Path) -> dict[str, Any]:
    """A config of five shards of several row groups, the last one shorter, with its inputs made."""
    datasets = {}
    for name, weight in DATASETS.items():
        path = tmp_path / f"{name}.parquet"
        pq.write_table(table_of(name, ROWS * weight // 6), path, row_group_size=211)
        datasets[name] = {"path": str(path), "weight": weight}
    return {
        "output": str(tmp_path / "out"),
        "batch_size": 32,
        "batches": 180,
        "batches_per_shard": 40,
        "batches_per_row_group": 38,
        "datasets": datasets,
    }


@pytest.mark.parametrize(
    ("environment", "threads"),
    [
        ({**ONE_THREAD, "PYTHONHASHSEED": "1"}, "1"),
        ({**MANY_THREADS, "PYTHONHASHSEED": "2"}, "9"),
        ({"PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "Pacific/Chatham"}, "0"),
    ],
    ids=["one thread", "many threads", "another place"],
)
def test_another_process_with_other_threads_and_seeds_makes_the_same_bytes(
    tmp_path: Path, values: dict[str, Any], environment: dict[str, str], threads: str
) -> None:
    expected = building.build(config_from(values))
    config = tmp_path / "mix.json"
    config.write_text(json.dumps({**values, "output": str(tmp_path / "again")}))
    subprocess.run(
        [sys.executable, "-c", CHILD, str(config), threads],
        env={**os.environ, **environment},
        cwd=tmp_path,
        check=True,
        timeout=120,
    )
    found = result(str(tmp_path / "again"))
    assert found == result(expected.output)
    assert len(found.shards) == 5


@pytest.mark.parametrize("file_rows", [97, 1_000])
@pytest.mark.parametrize("row_group_rows", [13, 10_000])
def test_the_same_rows_in_other_files_and_row_groups_make_the_same_bytes(
    tmp_path: Path, values: dict[str, Any], file_rows: int, row_group_rows: int
) -> None:
    expected = building.build(config_from(values))
    datasets = {}
    for name, weight in DATASETS.items():
        folder = tmp_path / f"{name}-otherwise"
        folder.mkdir()
        table = pq.read_table(tmp_path / f"{name}.parquet")
        for first in range(0, len(table), file_rows):
            part = table.slice(first, file_rows)
            pq.write_table(part, folder / f"{first:06d}.parquet", row_group_size=row_group_rows, compression="gzip")
        datasets[name] = {"path": str(folder), "weight": weight}
    other = building.build(config_from({**values, "output": str(tmp_path / "again"), "datasets": datasets}))
    assert other.head == expected.head
    assert result(other.output).shards == result(expected.output).shards


def test_settings_that_are_chosen_by_themselves_do_not_depend_on_how_inputs_are_compressed(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    del values["batches_per_row_group"]
    first = plan(config_from(values))
    for name in DATASETS:
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pq.read_table(path), path, compression="none", row_group_size=1_000)
    assert plan(config_from(values)).settings == first.settings


def test_a_run_in_many_short_processes_makes_the_same_bytes(tmp_path: Path, values: dict[str, Any]) -> None:
    """Reading goes on in the middle of a row group, where one process alone would hold it decoded."""
    expected = building.build(config_from(values))
    config = config_from({**values, "output": str(tmp_path / "again")})
    for stop in range(1, 6):
        with building.start(config) as run:
            run.write(stop)
    building.build(config)
    assert result(config.output) == result(expected.output)
