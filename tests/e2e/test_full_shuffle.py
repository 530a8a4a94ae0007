"""`shuffle: full` from config to shards: read back, and held to plain words."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mixer import asking, building
from mixer.collecting import gc
from mixer.config import MixConfig, config_from
from mixer.errors import ConfigError, NotEnoughDataError
from mixer.forecasting import forecast
from mixer.planning import Planned, plan
from mixer.preparation import sorting
from mixer.preparation.cutting import Cuts
from mixer.preparation.scratch import scratch_folder
from mixer.verifying import verify
from mixer.writing import encoded_shards, open_sources
from tests.profiles import sized

NAMES = ("web", "code")


def write_inputs(folder: Path, sizes: dict[str, int]) -> dict[str, str]:
    paths = {}
    for name, size in sizes.items():
        (folder / name).mkdir(parents=True)
        table = pa.table(
            {
                "text": pa.array([f"{name} {row}" for row in range(size)], pa.string()),
                "ids": pa.array([[row] * (row % 3) for row in range(size)], pa.list_(pa.int32())),
            }
        )
        for number, start in enumerate(range(0, max(1, size), 17)):
            pq.write_table(table.slice(start, 17), folder / name / f"{number}.parquet", row_group_size=5)
        paths[name] = str(folder / name)
    return paths


def config_of(folder: Path, paths: dict[str, str], shuffles: dict[str, str | None], **changes: Any) -> MixConfig:
    datasets = {
        name: {"path": path, "weight": 1, **({"shuffle": shuffles[name]} if shuffles[name] else {})}
        for name, path in paths.items()
    }
    for name, more in changes.pop("more", {}).items():
        datasets[name].update(more)
    values = {"output": str(folder / "out"), "batch_size": 4, "batches_per_shard": 3, "datasets": datasets, **changes}
    return config_from(values)


def in_plain_words(name: str, size: int, seed: int, epochs: int) -> list[tuple[int, int]]:
    """Return epoch and row of each item of so many epochs: a number is drawn for each row, rows are sorted by it."""
    items = []
    for epoch in range(epochs):
        path = json.dumps([seed + epoch, name, "all"], separators=(",", ":"))
        key = int(hashlib.sha256(path.encode()).hexdigest()[:32], 16)
        drawn = np.random.Philox(key=key).random_raw(size).tolist()
        items += [(epoch, row) for row in sorted(range(size), key=drawn.__getitem__)]
    return items


def taken_of(output: Path, name: str) -> list[dict[str, Any]]:
    table = pq.read_table(output / "data")
    rows: list[dict[str, Any]] = table.filter(pa.compute.equal(table["_dataset"], name)).to_pylist()
    return rows


@settings(max_examples=sized(short=10, long=150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_rows_come_in_the_order_of_each_epoch_and_every_row_once(tmp_path: Path, data: st.DataObject) -> None:
    folder = tmp_path / uuid.uuid4().hex
    sizes = {name: data.draw(st.integers(4, 45)) for name in NAMES}
    shuffles = {"web": "full", "code": data.draw(st.sampled_from(["full", "block", None]))}
    seed = data.draw(st.integers(0, 2**62))
    policy = data.draw(st.sampled_from(["repeat", "stop", "redistribute"]))
    batches = {"batches": data.draw(st.integers(1, 40))} if policy == "repeat" else {}
    config = config_of(
        folder,
        write_inputs(folder, sizes),
        shuffles,
        seed=seed,
        on_exhausted=policy,
        more={"web": {"weight": data.draw(st.integers(1, 5))}},
        **batches,
    )
    building.build(config)
    assert verify(config.output).problems == ()
    for name in NAMES:
        rows = taken_of(folder / "out", name)
        found = [(row.get("_epoch", 0), row["_row"]) for row in rows]
        epochs = -(-len(rows) // sizes[name])
        if shuffles[name] == "full":
            assert found == in_plain_words(name, sizes[name], seed, epochs)[: len(rows)]
        assert [row["text"] for row in rows] == [f"{name} {number}" for _, number in found]
        assert [row["ids"] for row in rows] == [[number] * (number % 3) for _, number in found]
        assert len(set(found)) == len(found)
    if policy == "redistribute":
        assert all(len(taken_of(folder / "out", name)) == sizes[name] for name in NAMES)


def shard_bytes(planned: Planned, index: int) -> bytes:
    sources = open_sources(planned)
    ((_, data),) = encoded_shards(planned, sources, range(index, index + 1))
    return data


def test_any_shard_is_made_alone(tmp_path: Path) -> None:
    paths = write_inputs(tmp_path, {"web": 40, "code": 15})
    config = config_of(tmp_path, paths, {"web": "full", "code": "full"}, on_exhausted="repeat", batches=30)
    building.build(config)
    planned = plan(config)
    for index in range(planned.plan.shard_count):
        path = tmp_path / "out/data" / f"shard-{index:08d}.parquet"
        assert shard_bytes(planned, index) == path.read_bytes()


BUILD = """
import sys
from mixer import asking, building
from mixer.config import config_from
building.build(config_from(eval(sys.argv[1])))
"""


def test_another_process_makes_the_same_copy_and_the_same_shards(tmp_path: Path) -> None:
    paths = write_inputs(tmp_path, {"web": 300, "code": 40})
    found = []
    for name in ("here", "there"):
        config = config_of(
            tmp_path / name, paths, {"web": "full", "code": None}, on_exhausted="repeat", batches=100, seed=3
        )
        values = config.model_dump(mode="json", exclude_none=True)
        if name == "there":
            environment = {**os.environ, "PYTHONHASHSEED": "7"}
            subprocess.run([sys.executable, "-c", BUILD, repr(values)], check=True, env=environment)
        else:
            building.build(config)
        out = tmp_path / name / "out"
        kept = [path for path in out.rglob("*") if path.suffix == ".parquet" or "prepared" in path.parts]
        found.append({str(path.relative_to(out)): path.read_bytes() for path in kept if path.is_file()})
    assert len(found[0]) > 5
    assert found[0] == found[1]


SMALL = Cuts(row_group_bytes=400, part_bytes=1000)
DIES = """
import os, signal, sys
from functools import partial
from mixer import asking, building
from mixer.config import config_from
from mixer.preparation import sorting
from tests.e2e.test_full_shuffle import SMALL

sorting.FullShuffleStage = partial(sorting.FullShuffleStage, cuts=SMALL)

def die(progress):
    if progress.number == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

building.prepare(config_from(eval(sys.argv[1])), on_part=die)
"""


def test_a_killed_sort_goes_on_to_the_same_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "FullShuffleStage", partial(sorting.FullShuffleStage, cuts=SMALL))
    paths = write_inputs(tmp_path, {"web": 130, "code": 8})
    copies = []
    for name, dies_at in (("whole", ()), ("killed", (1, 5))):
        config = config_of(
            tmp_path / name, paths, {"web": "full", "code": None}, on_exhausted="repeat", batches=100, seed=3
        )
        values = repr(config.model_dump(mode="json", exclude_none=True))
        for number in dies_at:
            child = subprocess.run([sys.executable, "-c", DIES, values, str(number)], check=False)
            assert child.returncode == -signal.SIGKILL
        (stage,) = building.prepare(config).stages
        assert stage.is_new
        assert stage.parts > 8
        place = tmp_path / name / "out/.mixer/prepared"
        copies.append({path.relative_to(place): path.read_bytes() for path in place.rglob("*") if path.is_file()})
    assert copies[0] == copies[1]


def test_a_run_is_made_longer_as_far_as_epochs_are_prepared(tmp_path: Path) -> None:
    paths = write_inputs(tmp_path, {"web": 20, "code": 20})
    shuffles: dict[str, str | None] = {"web": "full", "code": None}
    asked: dict[str, Any] = {"on_exhausted": "repeat", "seed": 5}
    # Of 12 batches 24 rows of each are taken: two epochs, which last for 20 batches.
    building.build(config_of(tmp_path, paths, shuffles, batches=12, **asked))
    building.build(config_of(tmp_path, paths, shuffles, batches=20, **asked), extend=True)
    rows = taken_of(tmp_path / "out", "web")
    assert [(row["_epoch"], row["_row"]) for row in rows] == in_plain_words("web", 20, 5, 2)
    with pytest.raises(NotEnoughDataError) as caught:
        building.build(config_of(tmp_path, paths, shuffles, batches=21, **asked), extend=True)
    assert "dataset 'web' runs out first" in str(caught.value)
    assert (
        "it keeps the copies, with as many epochs as it began: that of 'web' holds 2. To take more, start another"
        in (str(caught.value))
    )
    # It is as is said there.
    building.build(config_of(tmp_path / "other", paths, shuffles, batches=30, **asked))
    longer = taken_of(tmp_path / "other/out", "web")
    assert [(row["_epoch"], row["_row"]) for row in longer] == in_plain_words("web", 20, 5, 3)
    first = [pq.read_table(folder / "out/data").slice(0, 20 * 4) for folder in (tmp_path, tmp_path / "other")]
    assert first[0].equals(first[1])


def test_no_epoch_is_prepared_that_the_run_does_not_begin(tmp_path: Path) -> None:
    paths = write_inputs(tmp_path, {"web": 20, "code": 20})
    asked: dict[str, Any] = {"on_exhausted": "repeat", "batches": 12, "more": {"web": {"max_epochs": 100}}}
    config = config_of(tmp_path, paths, {"web": "full", "code": None}, **asked)
    (stage,) = building.prepare(config).stages
    assert (stage.rows, stage.facts["epochs"]) == (40, 2)
    # Once it is there, what it holds is what may be taken.
    planned = plan(config)
    assert planned.plan.limits == (40, None)
    # Of 40 rows, which are all of its files, 24 are taken.
    used, stored = forecast(planned).datasets[0].used_bytes, planned.inventories["web"].bytes
    assert used == stored * 24 // 40


def test_what_a_sort_has_on_the_disk_is_nothing_to_anybody_else(tmp_path: Path) -> None:
    paths = write_inputs(tmp_path, {"web": 20, "code": 20})
    config = config_of(tmp_path, paths, {"web": "full", "code": None}, batches=5)
    scratch = tmp_path / "out/.mixer/tmp"
    scratch.mkdir(parents=True)
    with scratch_folder(scratch) as folder:
        (folder / "duckdb").mkdir()
        (folder / "duckdb" / "block.parquet").write_bytes(b"no rows")
        # It is no other run's, and none of this one.
        building.build(config)
        assert verify(config.output).problems == ()
        garbage = gc(config.output)
        assert (garbage.found, garbage.kept) == ((), ())
        assert list(scratch.iterdir()) == [folder]


def test_weights_by_bytes_do_not_depend_on_the_copy(tmp_path: Path) -> None:
    paths = write_inputs(tmp_path, {"web": 40, "code": 90})
    found = []
    for shuffle in (None, "full"):
        values = config_of(tmp_path, paths, {"web": shuffle, "code": shuffle}, batches=60).model_dump()
        for dataset in values["datasets"].values():
            dataset["weight"] = None
        config = config_from({**values, "weights_by": {"sizes": "bytes"}, "on_exhausted": "repeat"})
        building.prepare(config)
        planned = plan(config)
        found.append((planned.plan.phases, planned.plan.schedule.offsets_at(60)))
    assert found[0] == found[1]


def test_nothing_is_prepared_for_a_run_that_cannot_be(tmp_path: Path) -> None:
    paths = write_inputs(tmp_path, {"web": 20, "code": 20})
    with pytest.raises(NotEnoughDataError, match="dataset 'web' runs out first"):
        building.build(config_of(tmp_path, paths, {"web": "full", "code": None}, batches=50))
    assert not list(tmp_path.rglob("part-*"))


def test_the_definition_says_order_and_seed(tmp_path: Path) -> None:
    paths = write_inputs(tmp_path, {"web": 20, "code": 20})
    config = config_of(tmp_path, paths, {"web": "full", "code": None}, batches=5, seed=9)
    building.prepare(config)
    first, second = plan(config).definition["datasets"]
    assert first["order"] == {"shuffle": "full", "seed": 9}
    assert "order" not in second


@pytest.mark.parametrize("batches", [10**12, 300])
def test_more_passes_than_anybody_stores_are_refused_before_any_is_sorted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    if batches == 300:
        monkeypatch.setattr(asking, "FULL_ITEMS_MAX", 100)
    paths = write_inputs(tmp_path, {"web": 20, "code": 10})
    config = config_of(tmp_path, paths, {"web": None, "code": "full"}, on_exhausted="repeat", batches=batches)
    with pytest.raises(ConfigError, match=r"datasets\.code\.shuffle: .*passes over 10 items; set `shuffle: block`"):
        building.prepare(config)
    assert not list(tmp_path.rglob("begun.json"))
    # What copies nothing, and what asks for less, is done.
    blocks = config_of(tmp_path, paths, {"web": None, "code": "block"}, on_exhausted="repeat", batches=batches)
    assert plan(blocks).plan.batches == batches
    config = config_of(tmp_path, paths, {"web": None, "code": "full"}, on_exhausted="repeat", batches=10)
    building.prepare(config)
    assert list(tmp_path.rglob("begun.json"))
