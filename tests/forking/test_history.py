"""A fork is the mix of the former phases and the new ones; all verbs see all of it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mixer
from mixer.building import build, fork, look, start, status
from mixer.collecting import gc
from mixer.config import config_from
from mixer.core import commits
from mixer.errors import ConfigError, NotEnoughDataError, OutputError
from mixer.heading import head
from mixer.log import CommitLog
from mixer.planning import Planned
from mixer.previewing import preview
from mixer.publishing import dataset_card
from mixer.storage import open_store
from mixer.verifying import verify
from tests.forking.shared import OTHER, all_of, changed, listed, nothing_wrong, rows_in, said, shards_of, whole
from tests.mixes import WEIGHTS, config_values, mix_config
from tests.profiles import sized

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
