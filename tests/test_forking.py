"""Forks: the first shards are another run's, what comes after is that of one mix of all, and the other run stays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mixer
from mixer.building import build, fork, look, start, status
from mixer.collecting import gc
from mixer.config import MixConfig, config_from
from mixer.core import commits
from mixer.errors import ChangedError, ConfigError, CorruptionError, NotEnoughDataError, OutputError, SchemaError
from mixer.heading import head
from mixer.log import CommitLog
from mixer.planning import Planned
from mixer.previewing import preview
from mixer.publishing import dataset_card
from mixer.storage import open_store
from mixer.verifying import verify
from tests.e2e.runs import objects
from tests.mixes import WEIGHTS, config_values, mix_config
from tests.profiles import sized

OTHER = {"web": 3, "code": 1}


def all_of(output: str) -> dict[str, bytes]:
    return objects(open_store(output))


def shards_of(output: str) -> dict[str, bytes]:
    return objects(open_store(output), "data/")


def listed(output: str) -> list[bytes]:
    """Return the shards of a finished run as its manifest names them, wherever they lie."""
    content = json.loads(Path(output, commits.MANIFEST_NAME).read_bytes())
    return [Path(entry.get("output", output), entry["path"]).read_bytes() for entry in content["shards"]]


def rows_in(shards: list[bytes]) -> list[dict[str, Any]]:
    tables = [pq.read_table(pa.BufferReader(data)) for data in shards]
    found: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist()
    return found


def said(shard: bytes) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(pq.read_metadata(pa.BufferReader(shard)).metadata[b"mixer"])
    return content


def changed(config: MixConfig, **changes: Any) -> MixConfig:
    return config_from({**config.model_dump(mode="json"), **changes})


def whole(config: MixConfig, output: Path) -> list[dict[str, Any]]:
    """Return the rows of one run of the whole mix, without another run before it."""
    build(changed(config, fork=None, output=str(output)))
    return rows_in(list(shards_of(str(output)).values()))


def nothing_wrong(output: str, *, parents: tuple[str, ...]) -> None:
    report = verify(output)
    assert (report.problems, report.orphans, report.finished, report.parents) == ((), (), True, parents)


@pytest.fixture
def run(tmp_path: Path) -> str:
    """A finished run of four shards of three batches."""
    return build(mix_config(tmp_path)).output


@pytest.fixture
def new(tmp_path: Path) -> str:
    return str(tmp_path / "new")


# What a fork gives


def test_a_fork_is_the_mix_of_the_former_phases_and_the_new_ones(tmp_path: Path, run: str, new: str) -> None:
    before = all_of(run)
    config = fork(run, 2, new, weights=OTHER, batches=5)
    summary = build(config)
    assert all_of(run) == before
    assert list(shards_of(new)) == [f"data/shard-{number:08d}.parquet" for number in (2, 3)]
    assert rows_in(listed(new)) == whole(config, tmp_path / "whole")
    assert listed(new)[:2] == list(shards_of(run).values())[:2]
    assert [row["_dataset"] for row in rows_in(listed(new)) if row["_batch"] == 6] == ["web", "web", "web", "code"]
    assert (summary.committed, summary.shards, summary.batches, summary.rows) == (4, 4, 11, 44)
    assert summary.state == status(str(tmp_path / "whole")).state
    nothing_wrong(new, parents=(run,))
    nothing_wrong(run, parents=())


LENGTHS = st.integers(1, 13)


@settings(max_examples=sized(short=10, long=100), deadline=None)
@given(
    policy=st.sampled_from(["error", "stop", "repeat", "redistribute"]),
    batches=LENGTHS,
    ends=st.booleans(),
    more=LENGTHS,
    shuffle=st.booleans(),
    choice=st.data(),
)
def test_any_fork_of_any_run_has_the_rows_and_states_of_one_run(  # noqa: PLR0913, PLR0917 -- what varies
    tmp_path_factory: pytest.TempPathFactory,
    policy: str,
    batches: int,
    ends: bool,
    more: int,
    shuffle: bool,
    choice: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("fork")
    values = config_values(folder, batches=batches, on_exhausted=policy, seed=3)
    if shuffle:
        values["datasets"]["web"]["shuffle"] = "block"
    with start(config_from(values)) as first:
        stop = first.plan.shard_count if ends else choice.draw(st.integers(1, first.plan.shard_count))
        first.write(stop)
        if stop == first.plan.shard_count:
            first.finish()
    run, new = str(folder / "out"), str(folder / "new")
    before = all_of(run)
    weights = choice.draw(st.dictionaries(st.sampled_from(list(WEIGHTS)), st.integers(1, 4), min_size=1))
    config = fork(run, choice.draw(st.integers(1, stop)), new, weights=weights, batches=more)
    try:
        summary = build(config)
    except NotEnoughDataError:
        with pytest.raises(NotEnoughDataError):
            build(changed(config, fork=None, output=str(folder / "whole")))
        return
    except ConfigError as error:
        # The data ends just where the run is left.
        assert "in all; add what comes after" in str(error)  # noqa: PT017 -- one of several right ends
        assert len(whole(config, folder / "whole")) == len(rows_in(list(shards_of(run).values())))
        return
    assert rows_in(listed(new)) == whole(config, folder / "whole")
    assert summary.state == status(str(folder / "whole")).state
    assert all_of(run) == before
    nothing_wrong(new, parents=(run,))


def test_datasets_join_and_leave(tmp_path: Path, run: str, new: str) -> None:
    pq.write_table(pa.table({"text": [f"more {row}" for row in range(9)], "n": range(9)}), tmp_path / "more.parquet")
    values = fork(run, 3, new).model_dump(mode="json")
    values["datasets"]["more"] = {"path": str(tmp_path / "more.parquet")}
    values["phases"][-1] = {"batches": 4, "weights": {"more": 1, "web": 1}}
    config = config_from(values)
    build(config)
    assert rows_in(listed(new)) == whole(config, tmp_path / "whole")
    assert sum(row["_dataset"] == "more" for row in rows_in(listed(new))) == 8
    nothing_wrong(new, parents=(run,))


def test_files_that_came_later_are_not_seen(tmp_path: Path, run: str, new: str) -> None:
    more = pa.table({"text": ["late"] * 50, "n": range(50)})
    pq.write_table(more, tmp_path / "inputs" / "web" / "a-first.parquet")
    build(fork(run, 2, new))
    assert rows_in(listed(new)) == rows_in(list(shards_of(run).values()))


def test_as_it_was_is_how_a_fork_goes_on_unless_it_is_told_otherwise(run: str, new: str) -> None:
    config = fork(run, 1, new)
    assert config.phases is not None
    assert [(phase.batches, phase.weights) for phase in config.phases] == [(3, WEIGHTS), (9, WEIGHTS)]
    ended = fork(run, 4, new)
    assert [phase.batches for phase in ended.phases or ()] == [12, 3]


def test_phases_are_cut_where_the_run_is_left(tmp_path: Path, new: str) -> None:
    values = config_values(tmp_path, batches=None)
    for dataset in values["datasets"].values():
        del dataset["weight"]
    values["phases"] = [{"batches": 4, "weights": WEIGHTS}, {"batches": 5, "weights": OTHER}]
    run = build(config_from(values)).output
    config = fork(run, 2, new)
    assert [phase.batches for phase in config.phases or ()] == [4, 2, 3]
    build(config)
    assert rows_in(listed(new)) == whole(config, tmp_path / "whole")


def test_a_run_that_was_extended_is_forked_before_and_after_its_short_shard(tmp_path: Path, new: str) -> None:
    build(mix_config(tmp_path, batches=4))
    run = build(mix_config(tmp_path, batches=11), extend=True).output
    for shards in (1, 2, 3):
        output = f"{new}-{shards}"
        config = fork(run, shards, output, weights=OTHER, batches=4)
        build(config)
        assert rows_in(listed(output)) == whole(config, tmp_path / f"whole-{shards}")
        nothing_wrong(output, parents=(run,))


def test_a_fork_is_extended(tmp_path: Path, run: str, new: str) -> None:
    config = fork(run, 2, new, weights=OTHER, batches=2)
    build(config)
    values = config.model_dump(mode="json")
    values["phases"].append({"batches": 4, "weights": {"code": 1}})
    longer = config_from(values)
    assert build(longer, extend=True).extensions == 1
    assert rows_in(listed(new)) == whole(longer, tmp_path / "whole")
    nothing_wrong(new, parents=(run,))


def test_a_fork_is_extended_before_its_first_shard(tmp_path: Path, run: str, new: str) -> None:
    config = fork(run, 2, new, weights=OTHER, batches=2)
    start(config).close()
    values = config.model_dump(mode="json")
    values["phases"][-1]["batches"] = 5
    build(config_from(values), extend=True)
    assert rows_in(listed(new)) == whole(config_from(values), tmp_path / "whole")
    nothing_wrong(new, parents=(run,))


def test_a_fork_is_forked_in_its_own_part_and_in_that_of_its_parent(tmp_path: Path, run: str, new: str) -> None:
    build(fork(run, 2, new, weights=OTHER, batches=6))
    late, early = str(tmp_path / "late"), str(tmp_path / "early")
    config = fork(new, 3, late, weights={"code": 1}, batches=4)
    build(config)
    assert rows_in(listed(late)) == whole(config, tmp_path / "whole-late")
    nothing_wrong(late, parents=(run, new))
    assert head(late, 44).table.to_pylist() == rows_in(listed(late))[:44]
    config = fork(new, 1, early, weights={"code": 1}, batches=4)
    build(config)
    # It needs nothing of the run between.
    nothing_wrong(early, parents=(run,))
    assert rows_in(listed(early)) == whole(config, tmp_path / "whole-early")


# What it says of itself


def test_equal_forks_are_equal_and_others_have_other_ids(tmp_path: Path, run: str) -> None:
    config = fork(run, 2, str(tmp_path / "a"), weights=OTHER, batches=3)
    one, two = (build(changed(config, output=str(tmp_path / name))) for name in "ab")
    assert (one.run, one.head) == (two.run, two.head)
    assert shards_of(one.output) == shards_of(two.output)
    alone = build(changed(config, fork=None, output=str(tmp_path / "c")))
    assert alone.run != one.run
    assert one.run == said(shards_of(one.output)["data/shard-00000002.parquet"])["run"][:12]


def test_another_history_before_it_makes_another_fork(tmp_path: Path, new: str) -> None:
    run = build(mix_config(tmp_path, batches=6)).output
    build(mix_config(tmp_path, batches=6, output=str(tmp_path / "snappy"), compression="snappy"))
    ids = [
        build(fork(at, 1, f"{new}-{place}", weights=OTHER, batches=3)).run
        for place, at in enumerate((run, str(tmp_path / "snappy")))
    ]
    assert ids[0] != ids[1]


def test_the_chain_begins_with_the_id_of_the_fork(run: str, new: str) -> None:
    build(fork(run, 2, new))
    found = look(new)
    payloads = [slot.payload for slot in _slots(found.run, new) if slot.kind == "shard"]
    assert payloads[0]["prev"] == found.run.genesis == found.run.run
    assert found.run.definition["parent"] == {
        "genesis": look(run).run.genesis,
        "head": commits.chain_hash([slot.payload for slot in _slots(look(run).run, run) if slot.kind == "shard"][1]),
        "shards": 2,
        "batches": 6,
    }


def _slots(planned: Planned, output: str) -> list[commits.Slot]:
    return list(CommitLog(open_store(output), planned.genesis).slots())


def test_readers_see_all_of_it(run: str, new: str) -> None:
    config = fork(run, 2, new, weights=OTHER, batches=3)
    with start(config) as open_fork:
        assert open_fork.committed == 2
    # One that nobody has committed counts for nothing, and is replaced.
    Path(new, "data").mkdir(exist_ok=True)
    Path(new, "data", "shard-00000002.parquet").write_bytes(b"leftover")
    fresh = status(new)
    assert (fresh.committed, fresh.shards, fresh.batches, fresh.rows, fresh.bytes) == (2, 3, 6, 24, 0)
    assert fresh.state == look(run).run.plan.state_at(6)
    assert fresh.parent is not None
    assert (fresh.parent.output, fresh.parent.shards) == (run, 2)
    assert head(new, 4, batch=5).table.to_pylist() == head(run, 4, batch=5).table.to_pylist()
    with pytest.raises(OutputError, match="batch 6 is not committed yet, so far there are 6"):
        head(new, batch=6)
    build(config)
    assert head(new, 8, batch=5).table.to_pylist() == rows_in(listed(new))[20:28]
    report = verify(new)
    assert (report.shards, report.rows) == (3, 36)
    content = json.loads(Path(new, commits.MANIFEST_NAME).read_bytes())
    assert [entry.get("output") for entry in content["shards"]] == [run, run, None]
    assert content["bytes"] == sum(map(len, listed(new)))
    card = Path(new, commits.CARD_NAME).read_text()
    assert f"the first 2 (6 batches) are those of the run in `{run}`" in card
    assert dataset_card(look(new).run).decode() == card


def test_nothing_is_collected_of_a_fork_and_of_its_parent(run: str, new: str) -> None:
    with start(fork(run, 2, new)) as open_fork:
        open_fork.write(3)
    (Path(new) / "data" / "shard-00000000.parquet").write_bytes(b"foreign")
    before = [all_of(output) for output in (run, new)]
    assert gc(run, delete=True).deleted == ()
    found = gc(new, delete=True)
    assert found.deleted == ()
    assert [all_of(output) for output in (run, new)] == before
    assert found.committed == 3
    assert [(item.name, item.reason) for item in found.kept] == [
        (
            "data/shard-00000000.parquet",
            "not made by this run: its shard of this number lies in the output that it was forked from",
        )
    ]


def test_a_preview_says_what_is_there(run: str, new: str) -> None:
    config = fork(run, 2, new)
    assert (preview(config).action, preview(config).committed) == ("start", 2)
    start(config).close()
    assert (preview(config).action, preview(config).committed) == ("resume", 2)
    build(config)
    assert (preview(config).action, preview(config).committed) == ("nothing", 4)


def test_a_plan_of_a_fork_is_public(run: str, new: str) -> None:
    config = mixer.fork(run, 2, new)
    assert mixer.plan(config).run == look(build(config).output).run.run


# What is refused


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
