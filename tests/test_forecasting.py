from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixer import forecasting
from mixer.forecasting import Forecast, duplicates, forecast
from mixer.planning import plan
from mixer.sources.inventory import take_inventory
from mixer.storage.remote_file import PinnedFile
from mixer.writing import open_sources
from tests.mixes import config_values, mix_config


def of(folder: Path, **changes: Any) -> Forecast:
    return forecast(plan(mix_config(folder, **changes)))


@pytest.mark.parametrize("policy", ["error", "repeat"])
def test_row_groups_are_read_as_often_as_is_said(tmp_path: Path, policy: str) -> None:
    planned = plan(mix_config(tmp_path, batches=12 if policy == "error" else 40, on_exhausted=policy))
    said = forecast(planned)
    taken = planned.plan.schedule.offsets_at(planned.plan.batches)
    for source, items, coming in zip(open_sources(planned).values(), taken, said.datasets, strict=True):
        for start in range(0, items, 5):
            source.read(start, min(start + 5, items))
        decoded = source._source.row_groups_decoded  # type: ignore[attr-defined]
        assert coming.reads.row_groups == decoded
        source.close()
    assert said.reads.requests == sum(coming.reads.requests for coming in said.datasets) + 6  # footers


def test_shards_that_are_made_alone_read_row_groups_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = config_values(tmp_path)["datasets"]
    for name in datasets:
        table = pa.table({"n": np.arange(60)})
        shutil.rmtree(tmp_path / "inputs" / name)
        pq.write_table(table, tmp_path / f"{name}.parquet")  # one row group
        datasets[name] = {"path": str(tmp_path / f"{name}.parquet"), "weight": 1}
    one_go = of(tmp_path, datasets=datasets, batch_size=6, batches=30, batches_per_shard=10)
    assert one_go.reads.bytes == one_go.used_bytes
    assert one_go.alone_amplification == pytest.approx(3, rel=0.01)
    assert one_go.alone_shards == 3
    assert one_go.alone_bytes == one_go.used_bytes
    assert one_go.warnings == ()
    monkeypatch.setattr(forecasting, "_MUCH_BYTES", 1)
    (warning,) = of(tmp_path, datasets=datasets, batch_size=6, batches=30, batches_per_shard=10).warnings
    assert warning.startswith("row groups (or shuffled blocks) of the inputs hold more than a shard takes")
    assert of(tmp_path, datasets=datasets, batch_size=6, batches=30, batches_per_shard=30).alone_amplification == 1


def test_phases_are_forecast_with_what_they_take(tmp_path: Path) -> None:
    datasets = {name: {"path": values["path"]} for name, values in config_values(tmp_path)["datasets"].items()}
    phases = [{"batches": 2, "weights": {"web": 1, "code": 1}}, {"batches": 3, "weights": {"web": 1, "books": 3}}]
    found = of(tmp_path, datasets=datasets, phases=phases, batches=None).phases
    assert [(phase.batches, phase.rows) for phase in found] == [(2, (4, 4, 0)), (3, (3, 0, 9))]


def test_a_file_that_is_listed_twice_is_found_under_both_names(tmp_path: Path) -> None:
    table = pa.table({"n": [1, 2, 3]})
    for name, content in {
        "a": table,
        "b": table,
        "c": table.slice(1),
        "d": table.slice(0, 0),
        "e": table.slice(0, 0),
    }.items():
        pq.write_table(content, tmp_path / f"{name}.parquet")
    path = {name: str(tmp_path / f"{name}.parquet") for name in "abcde"}
    inventories = {
        "one": take_inventory("one", [path["a"], path["c"], path["d"]])[0],
        "two": take_inventory("two", [path["a"], path["b"], path["e"]])[0],
    }
    found = duplicates(inventories)
    assert [(same.certain, same.files) for same in found] == [
        (True, (("one", path["a"]), ("two", path["a"]))),
        (False, (("one", path["a"]), ("two", path["a"]), ("two", path["b"]))),
    ]
    assert duplicates({"one": inventories["one"]}) == ()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"batch_size": 2, "batches": 3}, ["batches of 2 are mixed of 3 datasets, so not every batch has rows of all"]),
        ({"batch_size": 3, "batches": 3}, ["a batch of 3 rows cannot be divided evenly among 2, 4, 8, ... trainers"]),
        (
            {"batch_size": 5, "batches": 3},
            ["a batch of 5 rows cannot be divided evenly among 2, 4, 8, ... trainers"],
        ),
        (
            {"on_exhausted": "redistribute", "batches": None, "batch_size": 10},
            ["the last batch has only 2 of 10 rows"],
        ),
        (
            {"batch_size": 1, "batches": 4, "batches_per_shard": 1},
            [
                "dataset 'code' gives less than one row a shard (1 in 4 shards)",
                "dataset 'books' gives less than one row a shard (1 in 4 shards)",
                "dataset 'web' gives less than one row a shard (2 in 4 shards)",
                "batches of 1 are mixed of 3 datasets, so not every batch has rows of all",
            ],
        ),
    ],
)
def test_what_is_worth_knowing_is_told_and_nothing_else(
    tmp_path: Path, changes: dict[str, Any], expected: list[str]
) -> None:
    assert sorted(of(tmp_path, **changes).warnings) == sorted(expected)


def test_huge_shards_are_warned_of(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": ["a" * 100] * 10}), tmp_path / "w.parquet", compression="none")
    datasets = {"w": {"path": str(tmp_path / "w.parquet"), "weight": 1}}
    config_values(tmp_path)
    changes: dict[str, Any] = {"datasets": datasets, "on_exhausted": "repeat", "batch_size": 2**20}
    assert any("over 5 GiB" in line for line in of(tmp_path, **changes, batches=2000, batches_per_shard=1000).warnings)
    many = of(tmp_path, datasets=datasets, on_exhausted="repeat", batch_size=2, batches=2000, batches_per_shard=2)
    assert any("less than 1 MiB" in line for line in many.warnings)


MEASURED = """
import sys, threading, time
from mixer import building, planning
from mixer.config import config_from
from mixer.forecasting import forecast

config = config_from({
    "output": sys.argv[1] + "/out", "batch_size": 256, "on_exhausted": "stop", "batches_per_shard": 256,
    "datasets": {name: {"path": f"{sys.argv[1]}/{name}.parquet", "weight": 1} for name in ("a", "b")},
})
said = forecast(planning.plan(config)).memory.bytes
peak, done = 0, threading.Event()

def watch():
    global peak
    while not done.wait(0.005):
        with open("/proc/self/status") as status:
            (anonymous,) = (int(line.split()[1]) for line in status if line.startswith("RssAnon"))
        peak = max(peak, anonymous << 10)

watcher = threading.Thread(target=watch)
watcher.start()
building.build(config)
done.set()
watcher.join()
print(said, peak)
"""


def test_the_estimate_of_memory_is_of_the_right_order(tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(97, 122, 70_000 * 1000, dtype=np.uint8)
    offsets = np.arange(70_001, dtype=np.int32) * 1000
    texts = pa.Array.from_buffers(pa.string(), 70_000, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    for name in "ab":
        pq.write_table(
            pa.table({"text": texts}), tmp_path / f"{name}.parquet", row_group_size=10_000, use_dictionary=False
        )
    done = subprocess.run([sys.executable, "-c", MEASURED, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said, peak = map(int, done.stdout.split())
    assert peak / 2 < said < peak * 2


@pytest.mark.parametrize(("rows", "group_rows", "row_bytes"), [(3000, 300, 100), (30_000, 30_000, 1000)])
def test_ranged_reads_of_remote_inputs_are_about_as_many_as_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, group_rows: int, row_bytes: int
) -> None:
    random = np.random.default_rng(0)
    table = pa.table({"text": [random.bytes(row_bytes // 2).hex() for _ in range(rows)], "n": range(rows)})
    pq.write_table(table, tmp_path / "d.parquet", row_group_size=group_rows)
    url = f"memory://bucket/{tmp_path.name}.parquet"
    fsspec.filesystem("memory").pipe(url, (tmp_path / "d.parquet").read_bytes())
    planned = plan(mix_config(tmp_path, datasets={"d": {"path": url, "weight": 1}}, batches=rows // 4))
    ranges: list[tuple[int, int]] = []
    read = PinnedFile._range

    def counted(self: PinnedFile, start: int, stop: int) -> bytes:
        ranges.append((start, stop))
        return read(self, start, stop)

    monkeypatch.setattr(PinnedFile, "_range", counted)
    (source,) = open_sources(planned).values()
    for start in range(0, rows, 500):
        source.read(start, min(rows, start + 500))
    source.close()
    # The inventory does not know how large each column is; where it matters, a column may make a difference of one.
    columns = 2 if rows == group_rows else 0
    assert abs(forecast(planned).datasets[0].reads.requests - len(ranges)) <= columns
