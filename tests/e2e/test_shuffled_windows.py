"""Windows of a stream in a random order, all among each other: from text to shards, held to brute force."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixer import building
from mixer.cli.plan_remarks import remarks
from mixer.cli.plan_value import plan_value
from mixer.config import MixConfig, config_from
from mixer.core.order import full_order
from mixer.forecasting import forecast
from mixer.planning import plan, read_run_file, run_file
from mixer.preparation import sorting
from mixer.preparation.cutting import Cuts
from mixer.preparation.engine import Place
from mixer.preparation.tokens import Sizes
from mixer.previewing import preview
from mixer.sampling import sample_lengths
from mixer.storage import LocalStore, open_store
from mixer.verifying import verify
from mixer.writing import encoded_shards, open_sources
from tests.e2e.test_windows import CONTEXT, PAD, STRIDE, TEXTS, by_hand, rows_of, values
from tests.tokenizing import trained

BATCHES = 42
"""They take two passes over `code` and half of a third."""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut streams so small that there are several row groups."""
    monkeypatch.setattr("mixer.preparation.tokens.SIZES", Sizes(row_group_ids=700, part_row_groups=20))


def fully_shuffled(folder: Path, *, batches: int, **window: Any) -> MixConfig:
    """Return a config of one dataset of rows, whose windows are shuffled among each other, and repeated."""
    asked = values(folder, documents=True, pad_id=PAD, **window)
    asked["datasets"]["code"]["shuffle"] = "full"
    return config_from({**asked, "on_exhausted": "repeat", "batches": batches, "seed": 5})


@pytest.mark.parametrize("store_as", ["list", "uint16"])
def test_windows_in_full_order_are_each_there_once_in_each_pass(tmp_path: Path, store_as: str) -> None:
    config = fully_shuffled(tmp_path, batches=BATCHES, store_as=store_as)
    building.build(config)
    decode: Any = list if store_as == "list" else lambda value: np.frombuffer(value, "<u2").tolist()
    rows = [row for row in rows_of(config.output, decode) if row["_dataset"] == "code"]
    expected = by_hand("code", padded=True)
    order = [(epoch, row) for epoch in range(3) for row in full_order(len(expected), 5 + epoch, "code").tolist()]
    assert 2 * len(expected) < len(rows) < 3 * len(expected)
    assert [(row["_epoch"], row["_row"]) for row in rows] == order[: len(rows)]
    assert all((row["input_ids"], row["document_ids"]) == expected[row["_row"]] for row in rows)
    assert verify(config.output).problems == ()


def test_a_copy_of_windows_is_told_from_others_by_what_decides_them(tmp_path: Path) -> None:
    config = fully_shuffled(tmp_path, batches=BATCHES)
    *_, stage = building.prepare(config).stages
    windows = len(by_hand("code", padded=True))
    planned = plan(config)
    assert (stage.kind, stage.rows, stage.facts["epochs"]) == ("order", 3 * windows, 3)
    told = planned.definition["datasets"][1]
    stream = planned.definition["datasets"][0]["window"] | {"context_length": CONTEXT["code"], "stride": STRIDE["code"]}
    assert told["window"] == stream | {"ids": sum(len(trained.ids_of(text)) + 1 for text in TEXTS["code"])}
    assert told["order"] == {"shuffle": "full", "seed": 5}
    assert (told["rows"], told["limit"]) == (windows, 3 * windows)
    assert read_run_file(run_file(planned), config.output, "run.json").run == planned.run
    keys = {stage.key}
    for changes in ({"stride": 8}, {"pad_id": 4}, {"documents": False}, {"store_as": "int32"}, {"context_length": 30}):
        other = config.model_dump()
        other["datasets"]["code"]["window"] |= changes
        before, _, last = building.prepare(config_from(other)).stages
        assert not before.is_new
        assert last.is_new
        keys.add(last.key)
    assert len(keys) == 6


def test_the_plan_counts_windows_that_are_rows_by_now(tmp_path: Path) -> None:
    config = fully_shuffled(tmp_path, batches=BATCHES)
    building.prepare(config)
    planned = plan(config)
    windows, inventory = len(by_hand("code", padded=True)), planned.inventories["code"]
    taken = planned.plan.schedule.offsets_at(BATCHES)[1]
    lengths = sample_lengths(planned, "input_ids")
    assert lengths["code"] is not None
    assert lengths["code"].taken(planned.plan.passes[1], taken) == taken * (CONTEXT["code"] + 1)
    ahead = forecast(planned).datasets[1]
    assert inventory.rows == 3 * windows
    assert ahead.used_bytes == ahead.output_bytes == inventory.bytes * taken // inventory.rows
    value = plan_value(preview(config), lengths=lengths, length_column="input_ids")
    stream = value["datasets"][1]["stream"]
    assert (stream["documents"], "prepared" in stream) == (len(TEXTS["code"]), False)
    assert f"code: {stream['ids']:,} ids of {len(TEXTS['code'])} documents" in "\n".join(remarks(value, None))


def test_a_run_of_windows_in_full_order_is_extended_and_forked(tmp_path: Path) -> None:
    config = fully_shuffled(tmp_path, batches=BATCHES)
    building.build(config)
    for path in (tmp_path / "tokenizer.json", *(tmp_path / f"{name}.parquet" for name in TEXTS)):
        path.unlink()
    building.build(config.model_copy(update={"batches": BATCHES + 8}), extend=True)
    fork = building.fork(config.output, 2, str(tmp_path / "fork"), weights={"web": 1, "code": 1})
    building.build(fork)
    expected = by_hand("code", padded=True)
    order = [row for epoch in range(3) for row in full_order(len(expected), 5 + epoch, "code").tolist()]
    for output, first, count in ((config.output, 0, 12 * (BATCHES + 8)), (fork.output, 12 * 40, 8 * (BATCHES - 32))):
        assert verify(output).problems == ()
        own = [row for row in rows_of(output) if row["_dataset"] == "code"]
        assert [row["_row"] for row in own] == order[first : first + count]
        assert all(row["input_ids"] == expected[row["_row"]][0] for row in own)


DIES = """
import os, signal, sys
from functools import partial
import pytest
from mixer import building
from mixer.config import config_from
from mixer.preparation import sorting
from tests.e2e.test_shuffled_windows import SMALL

sorting.FullShuffleStage = partial(sorting.FullShuffleStage, cuts=SMALL)
patch = pytest.MonkeyPatch()

def die(progress):
    if progress.kind == "order" and progress.number == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

building.prepare(config_from(eval(sys.argv[1])), on_part=die)
"""
SMALL = Cuts(row_group_bytes=4_000, part_bytes=40_000)


def test_a_killed_sort_of_windows_goes_on_to_the_same_copy_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorting, "FullShuffleStage", partial(sorting.FullShuffleStage, cuts=SMALL))
    # Streams as another process cuts them.
    monkeypatch.setattr("mixer.preparation.tokens.SIZES", Sizes())
    copies = []
    for name, dies_at in (("whole", ()), ("killed", (1, 5))):
        config = fully_shuffled(tmp_path, batches=140).model_copy(update={"output": str(tmp_path / name)})
        place, left = tmp_path / name / ".mixer/prepared", tmp_path / name / ".mixer/tmp"
        for number in dies_at:
            values_ = repr(config.model_dump(mode="json", exclude_none=True))
            child = subprocess.run([sys.executable, "-c", DIES, values_, str(number)], check=False)
            assert child.returncode == -signal.SIGKILL
            # Where the copies are, and nobody takes it for anything.
            assert len(list(left.glob("mixer-sort-*"))) == 1
            assert not [info for info in LocalStore(str(tmp_path / name)).list("") if "sort" in info.name]
        *_, stage = building.prepare(config).stages
        assert stage.is_new
        assert stage.parts > 8
        assert not list(left.iterdir())
        copies.append({path.relative_to(place): path.read_bytes() for path in place.rglob("*") if path.is_file()})
    assert copies[0] == copies[1]


def test_what_a_killed_sort_has_left_goes_also_if_nothing_is_sorted_any_more(tmp_path: Path) -> None:
    config = fully_shuffled(tmp_path, batches=BATCHES)
    prepared = str(tmp_path / "prepared")
    full = config.model_copy(update={"prepared": prepared})
    child = subprocess.run(
        [sys.executable, "-c", DIES, repr(full.model_dump(mode="json", exclude_none=True)), "0"], check=False
    )
    assert child.returncode == -signal.SIGKILL
    left = tmp_path / "prepared/.mixer/tmp"
    (folder,) = left.glob("mixer-sort-*")
    assert any(folder.iterdir())
    datasets = {**full.datasets, "code": full.datasets["code"].model_copy(update={"shuffle": None})}
    building.prepare(full.model_copy(update={"datasets": datasets}))
    assert not list(left.iterdir())


@pytest.mark.s3
def test_what_is_sorted_lies_beside_the_copies_if_these_are_on_a_local_disk(s3_url: str, tmp_path: Path) -> None:
    assert Place(open_store(str(tmp_path))).scratch == tmp_path / ".mixer/tmp"
    assert Place(open_store(s3_url)).scratch is None


def test_any_shard_made_alone_has_the_same_bytes(tmp_path: Path) -> None:
    config = fully_shuffled(tmp_path, batches=140)
    building.build(config)
    planned = plan(config)
    for index in range(planned.plan.shard_count - 1, -1, -2):
        ((shard, data),) = encoded_shards(planned, open_sources(planned), range(index, index + 1))
        assert data == (tmp_path / "out" / shard.path).read_bytes()
