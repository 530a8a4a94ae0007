"""A run that was made before configs had some of their fields goes on as if nothing had happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mixer.building import build, start, status
from mixer.core import commits
from tests.extending.shared import STORES, nothing_wrong, shards_of
from tests.mixes import config_values, mix_config

LATER = ("prepared",)
LATER_OF_DATASETS = ("format", "document", "on_bad_line", "window", "batches")


def made_older(output: Path) -> None:
    """Take out of a run's record what older ones do not say."""
    objects = STORES[str(output)].objects
    content = commits.unsealed(objects[commits.RUN_NAME], "it")
    for field in LATER:
        del content["asked"][field]
    for dataset in content["asked"]["datasets"]:
        for field in LATER_OF_DATASETS:
            del dataset[field]
    objects[commits.RUN_NAME] = commits.sealed(content)


@pytest.mark.parametrize(
    ("changes", "shuffle"), [({}, None), ({"on_exhausted": "repeat", "seed": 3}, "block")], ids=["plain", "shuffled"]
)
def test_a_run_of_before_is_resumed_read_and_extended_to_the_same_bytes(
    tmp_path: Path, changes: dict[str, Any], shuffle: str | None
) -> None:
    datasets = config_values(tmp_path)["datasets"]
    datasets = {name: {**dataset, "shuffle": shuffle} for name, dataset in datasets.items()}

    def of(name: str, batches: int) -> Any:
        return mix_config(tmp_path, output=str(tmp_path / name), batches=batches, datasets=datasets, **changes)

    for name in ("new", "old"):
        with start(of(name, 10)) as run:
            run.write(2)
        if name == "old":
            made_older(tmp_path / name)
            assert (status(str(tmp_path / name)).committed, status(str(tmp_path / name)).finished) == (2, False)
        build(of(name, 10))
        assert status(str(tmp_path / name)).finished
        build(of(name, 12), extend=True)
        nothing_wrong(tmp_path / name)
    assert shards_of(tmp_path / "old") == shards_of(tmp_path / "new")
    assert status(str(tmp_path / "old")).run == status(str(tmp_path / "new")).run


def test_nothing_was_added_to_what_makes_a_run_of_plain_parquet(tmp_path: Path) -> None:
    # What is more there is hashed too, so that every run of before would be another run.
    datasets = config_values(tmp_path)["datasets"]
    datasets["web"]["shuffle"] = "block"
    build(mix_config(tmp_path, output=str(tmp_path / "one"), datasets=datasets))
    content = commits.unsealed(STORES[str(tmp_path / "one")].objects[commits.RUN_NAME], "it")
    assert set(content["definition"]) == {
        "algorithm", "batch_size", "batches", "batches_per_shard", "datasets", "lineage", "on_exhausted", "phases",
        "schema",
    }  # fmt: skip
    told = {entry["name"]: set(entry) for entry in content["definition"]["datasets"]}
    plain = {"limit", "name", "rows"}
    assert told == {name: plain | ({"order"} if name == "web" else set()) for name in datasets}
    assert {frozenset(inputs) for inputs in content["inputs"].values()} == {frozenset({"files", "ignored"})}
