"""An extended run is the run that would have been as long from the start, with a history of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer import building
from mixer.building import build, start, status
from mixer.core import commits
from mixer.core.plan import State
from mixer.errors import ChangedError
from mixer.log import CommitLog
from mixer.planning import plan
from tests.e2e.runs import objects
from tests.extending.shared import STORES, nothing_wrong, payloads, phased, rows_of, said, shards_of
from tests.mixes import mix_config


def test_what_is_there_stays_and_what_comes_is_that_of_a_run_as_long_from_the_start(tmp_path: Path) -> None:
    build(mix_config(tmp_path, batches=9))
    before = shards_of(tmp_path / "out")
    out = STORES[str(tmp_path / "out")]
    run_file = out.get(commits.RUN_NAME)
    longer = build(mix_config(tmp_path, batches=17), extend=True)
    whole = build(mix_config(tmp_path, batches=17, output=str(tmp_path / "whole")))
    after, expected = shards_of(tmp_path / "out"), shards_of(tmp_path / "whole")
    assert {name: after[name] for name in before} == before
    assert {name: after[name] for name in after.keys() - before.keys()} == {
        name: expected[name] for name in expected.keys() - before.keys()
    }
    assert rows_of(tmp_path / "out") == rows_of(tmp_path / "whole")
    assert (longer.run, longer.state, longer.rows, longer.extensions) == (whole.run, whole.state, whole.rows, 1)
    assert out.get(commits.RUN_NAME) == run_file
    nothing_wrong(tmp_path / "out")


def test_a_short_last_shard_stays_short_and_the_next_begins_after_it(tmp_path: Path) -> None:
    build(mix_config(tmp_path, batches=10))
    before = shards_of(tmp_path / "out")
    longer = build(mix_config(tmp_path, batches=17), extend=True)
    after = shards_of(tmp_path / "out")
    assert {name: after[name] for name in before} == before
    spans = [(said(shard)["first_batch"], said(shard)["batches"]) for shard in after.values()]
    assert spans == [(0, 3), (3, 3), (6, 3), (9, 1), (10, 3), (13, 3), (16, 1)]
    whole = build(mix_config(tmp_path, batches=17, output=str(tmp_path / "whole")))
    assert rows_of(tmp_path / "out") == rows_of(tmp_path / "whole")
    assert longer.state == whole.state
    # Other shards, another definition.
    assert longer.run != whole.run
    nothing_wrong(tmp_path / "out")


def test_shards_name_the_run_as_it_was_when_they_were_made(tmp_path: Path) -> None:
    configs = [mix_config(tmp_path, batches=batches) for batches in (3, 6, 12)]
    runs = [build(config, extend=True).run for config in configs]
    assert runs == [plan(config).run[:12] for config in configs]
    found = [said(shard)["run"][:12] for shard in shards_of(tmp_path / "out").values()]
    assert found == [runs[0], runs[1], runs[2], runs[2]]


def test_phases_are_appended_and_take_other_weights(tmp_path: Path) -> None:
    build(mix_config(tmp_path, batches=9))
    longer = build(phased(tmp_path, 9, 2, last={"web": 1, "books": 1}), extend=True)
    whole = build(phased(tmp_path, 9, 2, last={"web": 1, "books": 1}, output=str(tmp_path / "whole")))
    assert rows_of(tmp_path / "out") == rows_of(tmp_path / "whole")
    assert (longer.run, longer.state) == (whole.run, whole.state)
    names = [row["_dataset"] for row in rows_of(tmp_path / "out") if row["_batch"] >= 9]
    assert names == ["web", "web", "books", "books"] * 2
    nothing_wrong(tmp_path / "out")


def test_the_last_phase_is_lengthened(tmp_path: Path) -> None:
    build(phased(tmp_path, 3, 4))
    build(phased(tmp_path, 3, 9), extend=True)
    build(phased(tmp_path, 3, 9, output=str(tmp_path / "whole")))
    assert rows_of(tmp_path / "out") == rows_of(tmp_path / "whole")
    nothing_wrong(tmp_path / "out")


def test_a_run_in_rows_is_extended_in_rows_or_batches(tmp_path: Path) -> None:
    build(mix_config(tmp_path, batches=None, rows=24))
    assert build(mix_config(tmp_path, batches=None, rows=48), extend=True).batches == 12
    assert build(mix_config(tmp_path, batches=15), extend=True).batches == 15
    nothing_wrong(tmp_path / "out")


def test_a_run_that_was_stopped_is_extended_where_it_is(tmp_path: Path) -> None:
    config = mix_config(tmp_path, batches=10)
    with start(config) as run:
        run.write(2)
    longer = build(mix_config(tmp_path, batches=14), extend=True)
    whole = build(mix_config(tmp_path, batches=14, output=str(tmp_path / "whole")))
    # No shard was short when it was extended, so none is but the last one.
    assert longer.run == whole.run
    assert shards_of(tmp_path / "out").keys() == shards_of(tmp_path / "whole").keys()
    assert (
        shards_of(tmp_path / "out")["data/shard-00000003.parquet"]
        == shards_of(tmp_path / "whole")["data/shard-00000003.parquet"]
    )
    nothing_wrong(tmp_path / "out")


def test_a_run_is_extended_before_its_first_shard(tmp_path: Path) -> None:
    start(mix_config(tmp_path, batches=5)).close()
    build(mix_config(tmp_path, batches=7), extend=True)
    build(mix_config(tmp_path, batches=7, output=str(tmp_path / "whole")))
    assert shards_of(tmp_path / "out") == shards_of(tmp_path / "whole")
    nothing_wrong(tmp_path / "out")


def test_more_of_the_data_is_taken_where_datasets_share_out(tmp_path: Path) -> None:
    build(mix_config(tmp_path, batches=13, on_exhausted="redistribute"))
    last = build(mix_config(tmp_path, batches=None, on_exhausted="redistribute"), extend=True)
    build(mix_config(tmp_path, batches=None, on_exhausted="redistribute", output=str(tmp_path / "whole")))
    assert last.rows == 102
    assert rows_of(tmp_path / "out") == rows_of(tmp_path / "whole")
    nothing_wrong(tmp_path / "out")


def test_a_run_is_extended_under_other_settings_only_if_that_is_allowed(tmp_path: Path) -> None:
    build(mix_config(tmp_path, batches=9))
    other = mix_config(tmp_path, batches=12, compression="snappy")
    with pytest.raises(ChangedError, match="--allow-repack"):
        build(other, extend=True)
    assert build(other, extend=True, allow_repack=True).finished
    nothing_wrong(tmp_path / "out")


LENGTHS = st.lists(st.integers(1, 17), min_size=2, max_size=4, unique=True).map(sorted)


@settings(max_examples=25)
@given(lengths=LENGTHS, policy=st.sampled_from(["error", "stop", "repeat", "redistribute"]), stops=st.data())
def test_any_history_of_extensions_gives_the_rows_and_states_of_one_run(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], policy: str, stops: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("history")
    states: list[State] = []
    for batches in lengths:
        config = mix_config(folder, batches=batches, on_exhausted=policy)
        with start(config, extend=True) as run:
            assert run.plan.batches == batches
            stop = stops.draw(st.integers(0, run.plan.shard_count)) if batches != lengths[-1] else run.plan.shard_count
            run.write(stop, on_commit=lambda commit: states.append(commit.state))
            if run.committed == run.plan.shard_count:
                run.finish()
    whole = build(mix_config(folder, batches=lengths[-1], on_exhausted=policy, output=str(folder / "whole")))
    assert rows_of(folder / "out") == rows_of(folder / "whole")
    assert status(str(folder / "out")).state == whole.state == states[-1]
    nothing_wrong(folder / "out")


# The chain


def test_an_amendment_is_part_of_the_chain_and_says_what_it_changes(tmp_path: Path) -> None:
    first = build(mix_config(tmp_path, batches=10))
    build(mix_config(tmp_path, batches=17), extend=True)
    kinds = [kind for kind, _ in payloads(tmp_path / "out")]
    assert kinds == ["open", *["shard"] * 4, "final", "open", "amend", *["shard"] * 3, "final"]
    (amended,) = [payload for kind, payload in payloads(tmp_path / "out") if kind == "amend"]
    assert amended == {
        "number": 1,
        "run": building.existing(str(tmp_path / "out"))[1].run,
        "asked": {"batches": 17},
        "cuts": [10],
        "shards": 4,
        "batches": 10,
        "prev": first.head,
    }
    assert [payload["prev"] for kind, payload in payloads(tmp_path / "out") if kind == "shard"][
        4
    ] == commits.chain_hash(amended)


def test_the_newest_amendment_is_the_whole_plan_and_every_later_slot_names_it(tmp_path: Path) -> None:
    build(mix_config(tmp_path, batches=3))
    build(mix_config(tmp_path, batches=6), extend=True)
    build(phased(tmp_path, 6, 3, last={"web": 1}), extend=True)
    slots = list(CommitLog(STORES[str(tmp_path / "out")], plan(mix_config(tmp_path, batches=3)).run).slots())
    named = [slot.writer.get("amend") for slot in slots]
    first, second = (slot.number for slot in slots if slot.kind == "amend")
    assert named == [None] * first + [first] * (second - first) + [second] * (len(slots) - second)
    assert slots[second].payload["asked"].keys() == {"batches", "phases", "datasets"}
    assert slots[second].payload["number"] == 2


def test_equal_histories_have_equal_heads_and_others_have_others(tmp_path: Path) -> None:
    heads = []
    for name, lengths in (("a", [9, 17]), ("b", [9, 17]), ("c", [12, 17]), ("d", [17])):
        heads.append(
            [
                build(mix_config(tmp_path, batches=batches, output=str(tmp_path / name)), extend=True).head
                for batches in lengths
            ][-1]
        )
    assert heads[0] == heads[1]
    assert len(set(heads)) == 3


def test_a_run_that_was_never_extended_is_what_it_has_always_been(tmp_path: Path) -> None:
    build(mix_config(tmp_path), extend=True)
    build(mix_config(tmp_path), extend=True)
    slots = list(CommitLog(STORES[str(tmp_path / "out")], plan(mix_config(tmp_path)).run).slots())
    assert [slot.kind for slot in slots] == ["open", *["shard"] * 4, "final"]
    assert {frozenset(slot.writer) for slot in slots} == {
        frozenset(("owner", "open", "nonce", "host", "time", "versions"))
    }


def test_the_same_extension_again_changes_nothing(tmp_path: Path) -> None:
    build(mix_config(tmp_path, batches=6))
    longer = build(mix_config(tmp_path, batches=9), extend=True)
    before = objects(STORES[str(tmp_path / "out")])
    assert build(mix_config(tmp_path, batches=9), extend=True) == longer
    assert build(mix_config(tmp_path, batches=9)) == longer
    assert objects(STORES[str(tmp_path / "out")]) == before


# What is refused
