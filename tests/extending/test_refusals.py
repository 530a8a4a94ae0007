"""What is no extension, and what an extension finds changed, is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mixer import building
from mixer.building import build, start
from mixer.config import MixConfig, config_from
from mixer.errors import ChangedError, NotEnoughDataError
from tests.e2e.runs import objects
from tests.extending.shared import STORES, Edit, phased
from tests.mixes import config_values, mix_config


def test_without_being_told_to_a_run_is_not_extended_and_the_way_is_named(tmp_path: Path) -> None:
    build(mix_config(tmp_path))
    with pytest.raises(ChangedError, match=r"batches: the run has 12, the config has 15\n.*`mixer run --extend`"):
        build(mix_config(tmp_path, batches=15))


def another_input(values: dict[str, Any]) -> None:
    values["datasets"]["web"]["path"] += "/part-0.parquet"


def another_dataset(values: dict[str, Any]) -> None:
    values["datasets"]["more"] = values["datasets"]["web"]


def fewer_datasets(values: dict[str, Any]) -> None:
    del values["datasets"]["web"]


REFUSED: dict[str, tuple[Edit, str]] = {
    "another batch size": (lambda v: v.update(batch_size=5), r"batch_size: the run has 4, the config has 5\n"),
    "other shards": (lambda v: v.update(batches_per_shard=4), "batches_per_shard: the run has 3"),
    "another policy": (lambda v: v.update(on_exhausted="stop"), "on_exhausted: the run has 'error'"),
    "another seed": (lambda v: v.update(seed=1), "seed: the run has 0"),
    "another order": (lambda v: v["datasets"]["web"].update(shuffle="block"), r"datasets\.web\.shuffle"),
    "another input": (another_input, r"datasets\.web\.path"),
    "one more dataset": (another_dataset, r"datasets\.more: in the config, not in the run"),
    "a dataset less": (fewer_datasets, r"datasets\.web: in the run, not in the config"),
    "a limit": (lambda v: v["datasets"]["web"].update(max_rows=50), r"datasets\.web\.max_rows"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_more_than_an_extension_is_refused(tmp_path: Path, what: str) -> None:
    build(mix_config(tmp_path))
    edit, message = REFUSED[what]
    values = config_values(tmp_path, batches=15)
    edit(values)
    before = objects(STORES[str(tmp_path / "out")])
    with pytest.raises(ChangedError, match=f"(?s){message}.*A run can be made longer: `batches` or `rows` raised"):
        build(config_from(values), extend=True)
    assert objects(STORES[str(tmp_path / "out")]) == before


def test_a_run_is_never_made_shorter_not_even_one_that_was_extended(tmp_path: Path) -> None:
    build(mix_config(tmp_path))
    build(mix_config(tmp_path, batches=15), extend=True)
    for batches in (14, 12, 1):
        with pytest.raises(ChangedError, match=f"gives {batches} batches, and the run has 15: it can only get longer"):
            build(mix_config(tmp_path, batches=batches), extend=True)


def test_what_is_planned_and_not_yet_committed_does_not_change_either(tmp_path: Path) -> None:
    with start(phased(tmp_path, 6, 6)) as run:
        run.write(1)
    with pytest.raises(ChangedError, match="From batch 6 on it would be another mix, and 12 batches are planned"):
        build(phased(tmp_path, 6, 9, last={"web": 1}), extend=True)
    with pytest.raises(ChangedError, match="From batch 5 on"):
        build(phased(tmp_path, 5, 9), extend=True)
    with pytest.raises(ChangedError, match="From batch 0 on"):
        build(phased(tmp_path, 15, last={"web": 4, "code": 2, "books": 1}), extend=True)


def test_where_the_data_ends_the_run_there_is_nothing_to_extend(tmp_path: Path) -> None:
    done = build(mix_config(tmp_path, batches=None, on_exhausted="stop"))
    with pytest.raises(ChangedError, match=f"gives {done.batches} batches, and the run has {done.batches}"):
        build(mix_config(tmp_path, batches=50, on_exhausted="stop"), extend=True)


def test_more_than_the_data_has_is_told_and_what_came_later_is_no_part_of_the_run(tmp_path: Path) -> None:
    build(mix_config(tmp_path))
    table = pq.read_table(tmp_path / "inputs/books/part-0.parquet")
    pq.write_table(table, tmp_path / "inputs/books/part-2.parquet")
    with pytest.raises(
        NotEnoughDataError, match=r"'books' runs out first.*what is added to them now needs another output"
    ):
        build(mix_config(tmp_path, batches=20), extend=True)
    with pytest.raises(ChangedError, match="It cannot be extended so: dataset 'books' runs out first"):
        build(mix_config(tmp_path, batches=20))
    assert build(mix_config(tmp_path, batches=18), extend=True).finished


def test_a_changed_input_is_refused_when_a_finished_run_is_extended(tmp_path: Path) -> None:
    build(mix_config(tmp_path))
    part = tmp_path / "inputs/code/part-0.parquet"
    part.write_bytes(part.read_bytes())
    with pytest.raises(ChangedError, match=r"code/part-0\.parquet"):
        build(mix_config(tmp_path, batches=15), extend=True)
    assert building.look(str(tmp_path / "out")).run.extensions == 0


def test_a_batch_that_a_later_phase_would_fill_up_keeps_a_run_from_being_extended(tmp_path: Path) -> None:
    """Its datasets ran out within a batch, which was short; with a phase to follow, it would not have been."""
    first: list[dict[str, Any]] = [
        {"batches": 1, "weights": {"web": 1}},
        {"batches": 9, "weights": {"books": 1, "code": 1}},
    ]
    limits = {"web": 60, "books": 5, "code": 5}

    def config(*told: dict[str, Any]) -> MixConfig:
        values = config_values(tmp_path, batches=None, on_exhausted="redistribute", phases=list(told))
        for name, dataset in values["datasets"].items():
            del dataset["weight"]
            dataset["max_rows"] = limits[name]
        return config_from(values)

    done = build(config(*first))
    assert done.rows == 14
    with pytest.raises(ChangedError, match="From batch 3 on"):
        build(config(*first, {"batches": 2, "weights": {"web": 1}}), extend=True)


# Who else knows
