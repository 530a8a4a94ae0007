"""What is no beginning of a mix, and a parent that is lost or damaged, is refused and named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixer.building import build, fork, look, start, status
from mixer.config import MixConfig, config_from
from mixer.core import commits
from mixer.errors import ChangedError, ConfigError, CorruptionError, OutputError, SchemaError
from mixer.heading import head
from mixer.verifying import verify
from tests.forking.shared import OTHER, all_of, listed, nothing_wrong, rows_in, whole
from tests.mixes import WEIGHTS, config_values, mix_config


def edited(run: str, new: str, change: Mapping[str, Any], *, datasets: Mapping[str, Any] | None = None) -> MixConfig:
    values = {**fork(run, 2, new).model_dump(mode="json"), **change}
    for name, fields in (datasets or {}).items():
        values["datasets"][name].update(fields)
    return config_from(values)


SHORT = [{"batches": 5, "weights": WEIGHTS}, {"batches": 5, "weights": OTHER}]
SPLIT = [{"batches": 3, "weights": WEIGHTS}, {"batches": 9, "weights": WEIGHTS}]
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "batches": ({"batch_size": 5}, {}, "batch_size: the run has 4, the config has 5"),
    "shards": ({"batches_per_shard": 2}, {}, "batches_per_shard: the run has 3"),
    "seed": ({"seed": 1}, {}, "seed: the run has 0"),
    "lineage": ({"lineage": False}, {}, "lineage: the run has True"),
    "epochs": ({"on_exhausted": "repeat"}, {}, "on_exhausted: the run has 'error', the config has 'repeat'"),
    "order": ({}, {"web": {"shuffle": "block"}}, r"datasets\.web\.shuffle"),
    "columns": ({}, {"web": {"columns": ["text"]}}, r"datasets\.web\.columns"),
    "path": ({}, {"web": {"path": "elsewhere"}}, r"datasets\.web\.path.*give it another name"),
    "other past": ({"phases": SHORT}, {}, "batch 5 would be another one; .* 6 batches of web 3, code 2, books 1"),
    "phases split": ({"phases": SPLIT}, {}, "batch 3 would be another one"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_another_beginning_is_refused_before_anything_is_written(run: str, new: str, what: str) -> None:
    change, datasets, message = REFUSED[what]
    config = edited(run, new, change, datasets=datasets)
    with pytest.raises(ConfigError, match=f"(?s)the first 2 shards of .* are no beginning of this mix:\n.*{message}"):
        build(config)
    assert not Path(new).exists()


def test_the_order_of_the_datasets_stays(run: str, new: str) -> None:
    values = fork(run, 2, new).model_dump(mode="json")
    values["datasets"] = dict(reversed(values["datasets"].items()))
    with pytest.raises(ConfigError, match="datasets: the run has web, code, books, the config has books, code, web"):
        build(config_from(values))


def test_a_fork_that_adds_nothing_is_refused(run: str, new: str) -> None:
    phases = [{"batches": 6, "weights": WEIGHTS}]
    with pytest.raises(ConfigError, match="hold 6 batches, and the config gives 6 in all"):
        build(edited(run, new, {"phases": phases}))


def test_a_policy_that_changes_no_batch_of_the_past_may_be_another(tmp_path: Path, run: str, new: str) -> None:
    phases = [{"batches": 6, "weights": WEIGHTS}, {"batches": None, "weights": OTHER}]
    config = edited(run, new, {"phases": phases, "on_exhausted": "stop"})
    build(config)
    assert rows_in(listed(new)) == whole(config, tmp_path / "whole")


def test_a_new_dataset_of_other_columns_is_refused(tmp_path: Path, run: str, new: str) -> None:
    pq.write_table(pa.table({"text": ["a"] * 9, "n": [0.5] * 9}), tmp_path / "more.parquet")
    values = fork(run, 2, new).model_dump(mode="json")
    values["datasets"]["more"] = {"path": str(tmp_path / "more.parquet")}
    values["phases"][-1]["weights"] = {"more": 1}
    with pytest.raises(SchemaError, match="n"):
        build(config_from(values))
    pq.write_table(pa.table({"text": ["a"] * 9, "n": [0] * 9, "m": [0] * 9}), tmp_path / "more.parquet")
    values["missing"] = "null"
    with pytest.raises(ConfigError, match="missing: the run has 'error'"):
        build(config_from(values))


def test_a_new_dataset_may_not_widen_the_columns(tmp_path: Path, new: str) -> None:
    values = config_values(tmp_path)
    for dataset in values["datasets"].values():
        dataset["columns"] = {"n": {"cast": "int32"}}
    run = build(config_from(values)).output
    pq.write_table(pa.table({"n": range(9)}), tmp_path / "more.parquet")
    values = fork(run, 2, new).model_dump(mode="json")
    values["datasets"]["more"] = {"path": str(tmp_path / "more.parquet")}
    values["phases"][-1] = {"batches": 2, "weights": {"more": 1}}
    with pytest.raises(SchemaError, match="columns would be n int64, and the shards that are taken have n int32"):
        build(config_from(values))
    values["datasets"]["more"]["columns"] = {"n": {"cast": "int32"}}
    assert build(config_from(values)).finished
    nothing_wrong(new, parents=(run,))


@pytest.mark.parametrize("shards", [0, 5])
def test_no_more_shards_are_taken_than_there_are(run: str, new: str, shards: int) -> None:
    with pytest.raises(ConfigError, match="expected 1 to 4 shards"):
        fork(run, shards, new)


def test_a_run_without_shards_and_no_run_are_not_forked(tmp_path: Path, new: str) -> None:
    with pytest.raises(OutputError, match="no run of mixer here"):
        fork(str(tmp_path / "nowhere"), 1, new)
    start(mix_config(tmp_path)).close()
    with pytest.raises(ConfigError, match="no shard is committed in"):
        fork(str(tmp_path / "out"), 1, new)


def test_a_run_is_not_forked_into_itself(run: str) -> None:
    with pytest.raises(ConfigError, match="that is the output of this mix"):
        fork(run, 1, run)


def test_an_output_with_a_run_keeps_it(run: str, new: str) -> None:
    build(fork(run, 2, new))
    before = all_of(new)
    for config in (fork(run, 1, new), fork(run, 2, new, weights=OTHER)):
        with pytest.raises(ChangedError, match="holds a run of another definition"):
            build(config)
    assert all_of(new) == before


# When the parent is lost


def lose(run: str) -> None:
    Path(run, commits.RUN_NAME).unlink()
    for slot in Path(run, commits.LOG_PREFIX).iterdir():
        slot.unlink()


def test_a_parent_that_is_gone_is_named(run: str, new: str) -> None:
    config = fork(run, 2, new)
    with start(config) as open_fork:
        open_fork.write(3)
    lose(run)
    told = f"its first 2 shards are those of the run in {run}, but: .*no run of mixer here"
    for act in (lambda: build(config), lambda: head(new)):
        with pytest.raises(CorruptionError, match=told):
            act()
    # What is its own can be read, and its log.
    assert head(new, 2, batch=6).first_row == 24
    assert status(new).committed == 3
    (problem,) = verify(new).problems
    assert told.partition(", but")[0] in problem.problem


def test_a_finished_fork_says_so_whatever_has_become_of_its_parent(run: str, new: str) -> None:
    config = fork(run, 2, new)
    done = build(config)
    lose(run)
    assert build(config) == done


def test_another_run_in_the_place_of_the_parent_is_found(tmp_path: Path, run: str, new: str) -> None:
    build(fork(run, 2, new))
    lose(run)
    for path in [*Path(run, "data").iterdir(), Path(run, "README.md"), Path(run, "manifest.json")]:
        path.unlink()
    build(mix_config(tmp_path, batches=9))
    (problem,) = verify(new).problems
    assert "lies there, expected run" in problem.problem


def test_another_history_in_the_place_of_the_parent_is_found(tmp_path: Path, new: str) -> None:
    run = build(mix_config(tmp_path, batches=9)).output
    other = build(mix_config(tmp_path, batches=9, compression="snappy", output=str(tmp_path / "other"))).output
    build(fork(run, 2, new))
    assert look(run).run.genesis == look(other).run.genesis
    Path(run).rename(tmp_path / "away")
    Path(other).rename(run)
    (problem,) = verify(new).problems
    assert "expected the chain head" in problem.problem
    with pytest.raises(CorruptionError, match="expected the chain head"):
        head(new)


def test_a_damaged_shard_of_the_parent_is_reported_only_if_it_is_taken(run: str, new: str) -> None:
    build(fork(run, 2, new))
    for number, count in ((3, 0), (1, 1)):
        path = Path(run, "data", f"shard-{number:08d}.parquet")
        path.write_bytes(path.read_bytes()[:-1] + b"x")
        found = verify(new).problems
        assert [problem.object for problem in found] == [str(path)] * count


def test_a_damaged_slot_of_the_parent_is_reported(run: str, new: str) -> None:
    build(fork(run, 2, new))
    Path(run, commits.slot_name(1)).unlink()
    assert any(problem.object == f"{run}/{commits.slot_name(1)}" for problem in verify(new).problems)
    with pytest.raises(CorruptionError, match="missing"):
        head(new)


def test_a_definition_that_was_tampered_with_is_refused(run: str, new: str) -> None:
    build(fork(run, 2, new))
    path = Path(new, commits.RUN_NAME)
    asked = {"run": run, "shards": 1}
    for parent, fork_ in (({"shards": 1}, {}), ({"head": "0" * 64}, {}), ({"batches": "6"}, {}), ({}, asked)):
        content = commits.unsealed(path.read_bytes(), "it")
        content["parent"] |= parent
        content["asked"]["fork"] |= fork_
        tampered = commits.sealed(content)
        original = path.read_bytes()
        path.write_bytes(tampered)
        with pytest.raises(CorruptionError):
            status(new)
        path.write_bytes(original)
