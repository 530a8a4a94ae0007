"""Runs made longer: what is there stays, what comes is what a run that long from the start has, all else is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer import building, log
from mixer.building import build, start, status
from mixer.collecting import gc
from mixer.config import MixConfig, config_from
from mixer.core import commits
from mixer.core.commits import Slot
from mixer.core.plan import State
from mixer.errors import ChangedError, CorruptionError, FencedError, MixerError, NotEnoughDataError
from mixer.heading import head
from mixer.log import CommitLog, envelope
from mixer.planning import plan, replanned
from mixer.previewing import preview
from mixer.publishing import dataset_card
from mixer.testing import MemoryStore, count_operations
from mixer.verifying import verify
from tests.e2e.runs import objects
from tests.mixes import WEIGHTS, config_values, mix_config

Edit = Callable[[dict[str, Any]], None]


STORES: dict[str, MemoryStore] = {}
"""Outputs by where they are: in memory, where a run takes no time."""


@pytest.fixture(autouse=True, scope="module")
def _in_memory() -> Iterator[None]:
    def opened(url: str) -> MemoryStore:
        return STORES.setdefault(url, MemoryStore())

    with pytest.MonkeyPatch.context() as patch:
        for module in ("building", "previewing"):
            patch.setattr(f"mixer.{module}.open_store", opened)
        yield
    STORES.clear()


def shards_of(output: Path) -> dict[str, bytes]:
    return objects(STORES[str(output)], "data/")


def rows_of(output: Path) -> list[dict[str, Any]]:
    tables = [pq.read_table(pa.BufferReader(data)) for data in shards_of(output).values()]
    found: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist()
    return found


def said(shard: bytes) -> dict[str, Any]:
    metadata = pq.read_metadata(pa.BufferReader(shard)).metadata
    content: dict[str, Any] = json.loads(metadata[b"mixer"])
    return content


def nothing_wrong(output: Path) -> None:
    report = verify(str(output))
    assert (report.problems, report.orphans, report.finished) == ((), (), True)


def phases(*lengths: int, last: Mapping[str, int] | None = None) -> list[dict[str, Any]]:
    """Return phases of the usual weights, the last one of others if they are given."""
    told: list[dict[str, Any]] = [{"batches": length, "weights": WEIGHTS} for length in lengths]
    if last is not None:
        told[-1] = {"batches": lengths[-1], "weights": last}
    return told


def phased(folder: Path, *lengths: int, last: Mapping[str, int] | None = None, **changes: Any) -> MixConfig:
    values = config_values(folder, batches=None, phases=phases(*lengths, last=last), **changes)
    for dataset in values["datasets"].values():
        del dataset["weight"]
    return config_from(values)


# What an extension gives


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


def payloads(output: Path) -> list[tuple[str, Mapping[str, Any]]]:
    found = building.look(str(output))
    return list(CommitLog(found.store, found.run.genesis).payloads())


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


def test_status_head_and_preview_know_that_a_run_was_extended(tmp_path: Path) -> None:
    short, long = mix_config(tmp_path, batches=10), mix_config(tmp_path, batches=17)
    build(short)
    seen = preview(long)
    assert (seen.action, seen.committed, seen.planned.plan.shard_count, seen.refusal) == ("extend", 4, 7, None)
    with start(long, extend=True) as run:
        run.write(5)
    seen = preview(long)
    assert (seen.action, seen.committed, seen.planned.run) == ("resume", 5, run._planned.run)
    assert preview(short).action == "refuse"
    found = status(str(tmp_path / "out"))
    assert (found.finished, found.committed, found.shards, found.extensions) == (False, 5, 7, 1)
    assert head(str(tmp_path / "out"), 3, batch=9).table["_batch"].to_pylist() == [9, 9, 9]
    assert head(str(tmp_path / "out"), 6, batch=9).table["_batch"].to_pylist() == [9] * 4 + [10] * 2
    build(long)
    assert preview(long).action == "nothing"
    assert head(str(tmp_path / "out"), 8, batch=15).table["_batch"].to_pylist() == [15] * 4 + [16] * 4


def test_any_batch_of_a_run_of_many_short_shards_is_found(tmp_path: Path) -> None:
    for batches in (1, 4, 8, 10, 14):
        build(mix_config(tmp_path, batches=batches), extend=True)
    assert building.existing(str(tmp_path / "out"))[1].plan.cuts == (1, 8, 10)
    whole = rows_of(tmp_path / "out")
    for batch in range(14):
        found = head(str(tmp_path / "out"), 9, batch=batch)
        assert found.table.to_pylist() == whole[4 * batch : 4 * batch + 9]


def test_until_it_is_finished_again_the_manifest_is_that_of_its_former_end(tmp_path: Path) -> None:
    build(mix_config(tmp_path, batches=10))
    out = STORES[str(tmp_path / "out")]
    former = out.objects[commits.MANIFEST_NAME]
    with start(mix_config(tmp_path, batches=17), extend=True) as run:
        run.write(6)
    assert out.objects[commits.MANIFEST_NAME] == former
    report = verify(str(tmp_path / "out"))
    assert (report.problems, report.finished, report.shards) == ((), False, 6)
    done = build(mix_config(tmp_path, batches=17))
    content = json.loads(out.objects[commits.MANIFEST_NAME])
    assert (content["head"], content["batches"], len(content["shards"])) == (done.head, 17, 7)
    out.put(commits.MANIFEST_NAME, former)
    assert [problem.problem for problem in verify(str(tmp_path / "out")).problems] == [
        "of the run before it was extended; `mixer run` writes it again"
    ]
    build(mix_config(tmp_path, batches=17))
    nothing_wrong(tmp_path / "out")


def test_one_that_sleeps_before_it_writes_the_manifest_of_a_former_end_replaces_nothing(tmp_path: Path) -> None:
    short = mix_config(tmp_path, batches=10)
    with start(short) as sleeper:
        sleeper.write(4)
        sleeper.finish()
        out = STORES[str(tmp_path / "out")]
        out.delete(commits.MANIFEST_NAME)
        build(mix_config(tmp_path, batches=14), extend=True)
        build(mix_config(tmp_path, batches=17), extend=True)
        sleeper.finish()
    nothing_wrong(tmp_path / "out")
    with start(mix_config(tmp_path, batches=17)) as sleeper:
        out.put(commits.MANIFEST_NAME, b"{}")
        build(mix_config(tmp_path, batches=18), extend=True)
        sleeper.finish()
    nothing_wrong(tmp_path / "out")


def test_one_that_sleeps_meanwhile_writes_the_manifest_of_its_own_end_and_no_more(tmp_path: Path) -> None:
    with start(mix_config(tmp_path, batches=10)) as sleeper:
        sleeper.write(4)
        head_then = sleeper.finish().head
        out = STORES[str(tmp_path / "out")]
        out.delete(commits.MANIFEST_NAME)
        with start(mix_config(tmp_path, batches=17), extend=True) as run:
            run.write(6)
        sleeper.finish()
    content = json.loads(out.objects[commits.MANIFEST_NAME])
    assert (content["head"], len(content["shards"])) == (head_then, 4)
    assert verify(str(tmp_path / "out")).problems == ()


def test_the_dataset_card_tells_of_the_extended_run_but_one_that_people_wrote_stays(tmp_path: Path) -> None:
    build(mix_config(tmp_path, batches=10))
    out = STORES[str(tmp_path / "out")]
    for batches in (14, 17):
        build(mix_config(tmp_path, batches=batches), extend=True)
        assert out.get(commits.CARD_NAME) == dataset_card(building.existing(str(tmp_path / "out"))[1])
        assert f"rows in {batches} batches".encode() in out.objects[commits.CARD_NAME]
    out.put(commits.CARD_NAME, b"mine")
    build(mix_config(tmp_path, batches=18), extend=True)
    assert out.get(commits.CARD_NAME) == b"mine"


def test_an_older_start_that_wakes_up_after_an_extension_is_fenced(tmp_path: Path) -> None:
    with start(mix_config(tmp_path, batches=10)) as older:
        older.write(2)
        with start(mix_config(tmp_path, batches=17), extend=True) as newer:
            with pytest.raises(FencedError):
                older.write(4)
            newer.write(newer.plan.shard_count)
            newer.finish()
    nothing_wrong(tmp_path / "out")


def test_a_leftover_of_a_short_last_shard_is_replaced_by_the_full_one(tmp_path: Path) -> None:
    build(mix_config(tmp_path, batches=10, output=str(tmp_path / "short")))
    with start(mix_config(tmp_path, batches=10)) as older:
        older.write(3)
    name = "data/shard-00000003.parquet"
    out = STORES[str(tmp_path / "out")]
    out.put(name, STORES[str(tmp_path / "short")].objects[name])
    build(mix_config(tmp_path, batches=14), extend=True)
    assert said(out.objects[name])["batches"] == 3
    nothing_wrong(tmp_path / "out")


def test_the_same_start_goes_on_with_what_it_has_extended(tmp_path: Path) -> None:
    build(mix_config(tmp_path, batches=10))
    with start(mix_config(tmp_path, batches=17), extend=True) as run:
        run.write(5)
        with building.attach(run.output, run.owner) as again:
            assert again.plan.batches == 17
            again.write(7)
            again.finish()
    nothing_wrong(tmp_path / "out")


# Long logs


def test_a_long_run_is_extended_and_read_through_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "CHECKPOINT_SLOTS", 5)
    short, long = (mix_config(tmp_path, batches=batches, batches_per_shard=1) for batches in (7, 18))
    build(short)
    build(long, extend=True)
    out = STORES[str(tmp_path / "out")]
    checkpoints = [info.name for info in out.list(commits.CHECKPOINT_PREFIX)]
    kinds = [[kind for kind, _ in commits.decode_checkpoint(out.objects[name], "")[1]] for name in checkpoints]
    assert sum(each.count("amend") for each in kinds) == 1
    nothing_wrong(tmp_path / "out")
    assert gc(str(tmp_path / "out")).found == ()
    monkeypatch.setattr(log, "CHECKPOINT_SLOTS", 1000)
    whole = build(mix_config(tmp_path, batches=7, batches_per_shard=1, output=str(tmp_path / "plain")))
    assert whole.finished
    assert build(
        mix_config(tmp_path, batches=18, batches_per_shard=1, output=str(tmp_path / "plain")), extend=True
    ) == replace(status(str(tmp_path / "out")), output=str(tmp_path / "plain"))


def test_the_end_of_an_extended_run_is_found_by_few_reads_however_long_it_is(tmp_path: Path) -> None:
    reads = []
    for batches in (3, 16):
        output = str(tmp_path / f"out-{batches}")
        build(mix_config(tmp_path, batches=2, batches_per_shard=1, output=output))
        with start(mix_config(tmp_path, batches=17, batches_per_shard=1, output=output), extend=True) as run:
            run.write(batches)
        run_id = building.started(output)[1].genesis
        reads.append(count_operations(lambda store: CommitLog(store, run_id).tail(), STORES[output]))  # noqa: B023 -- called at once
    assert len(reads[0]) == len(reads[1])
    assert [one.verb for one in reads[1]].count("get_range") == 3


# Damage


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """Where a run was extended twice, and its objects."""
    folder = tmp_path_factory.mktemp("twice")
    for batches in (10, 14, 17):
        build(mix_config(folder, batches=batches), extend=True)
    return folder, objects(STORES[str(folder / "out")])


@dataclass(frozen=True)
class Extended:
    """A run that was extended twice, and may be damaged."""

    folder: Path
    output: str
    store: MemoryStore
    amendments: tuple[int, int]
    """Its ``amend`` slots."""


@pytest.fixture
def extended(twice: tuple[Path, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch) -> Extended:
    folder, whole = twice
    store = MemoryStore(whole)
    monkeypatch.setitem(STORES, str(folder / "out"), store)
    first, second = (n for n, (kind, _) in enumerate(payloads(folder / "out")) if kind == "amend")
    return Extended(folder, str(folder / "out"), store, (first, second))


def forged(store: MemoryStore, at: int, changes: Mapping[str, Any]) -> None:
    """Put another slot in the place of one, with the fields of its payload that are given."""
    name = commits.slot_name(at)
    slot = commits.decode_slot(store.objects[name], at, name)
    store.put(name, commits.encode_slot(Slot(at, slot.kind, slot.writer, {**slot.payload, **changes})))


def test_a_damaged_newest_amendment_is_named_by_all(extended: Extended) -> None:
    store, (_, newest) = extended.store, extended.amendments
    name = commits.slot_name(newest)
    store.put(name, (store.objects[name]).replace(b'"number":2', b'"number":3'))
    with pytest.raises(CorruptionError, match=name):
        status(extended.output)
    with pytest.raises(CorruptionError, match=name):
        head(extended.output, batch=15)
    # What was made before it can be read without it.
    assert len(head(extended.output, batch=5).table) == 10
    with pytest.raises(CorruptionError, match=name):
        build(mix_config(extended.folder, batches=18), extend=True)
    report = verify(extended.output)
    assert [problem.object.rpartition("/")[2] for problem in report.problems] == [name.rpartition("/")[2]]


@pytest.mark.parametrize("which", [0, 1])
def test_a_lost_amendment_is_the_only_thing_that_verify_names(extended: Extended, which: int) -> None:
    store, numbers = extended.store, extended.amendments
    store.delete(commits.slot_name(numbers[which]))
    report = verify(extended.output)
    assert [(problem.object.rpartition("/")[2], problem.problem) for problem in report.problems] == [
        (
            commits.slot_name(numbers[which]).rpartition("/")[2],
            "missing, though later slots exist; restore it from a copy",
        )
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"asked": {"batches": 16}}, "its hash is not that of what it makes of"),
        ({"asked": {"batch_size": 8}}, "not an amendment: ValueError: it changes what no extension does"),
        ({"asked": {"batches": -1}}, "not an amendment: ValidationError"),
        ({"asked": {"datasets": {"none": {"weight": 1}}}}, "not an amendment: KeyError"),
        ({"asked": {"datasets": 7}}, "not an amendment: AttributeError"),
        ({"cuts": [11]}, "its hash is not that of"),
        ({"cuts": ["10"]}, "expected cuts to be whole numbers"),
        ({"number": True}, "expected number to be int, found bool"),
        ({"extra": 1}, "not an amendment: expected the fields"),
    ],
)
def test_an_amendment_that_nobody_wrote_is_refused(extended: Extended, changes: dict[str, Any], message: str) -> None:
    store, (_, newest) = extended.store, extended.amendments
    forged(store, newest, changes)
    with pytest.raises(CorruptionError, match=message) as refused:
        status(extended.output)
    assert commits.slot_name(newest) in str(refused.value)
    assert any(message in problem.problem for problem in verify(extended.output).problems)


@pytest.mark.parametrize(
    ("asked", "cuts", "message"),
    [
        ({"batches": 9}, [], "it changes what was planned before it"),
        ({"batches": 10}, [], "it changes what was planned before it"),
        ({"batches": 17, "datasets": {"web": {"weight": 5, "share": None}}}, [], "it changes what was planned before"),
        ({"batches": 17}, [10, 10], r"no shards end at \[10, 10\] before it"),
        ({"batches": 17}, [10, 4], r"no shards end at \[10, 4\] before it"),
        ({"batches": 17}, [0], r"no shards end at \[0\] before it"),
        ({"batches": 17}, [15], r"no shards end at \[15\] before it"),
    ],
)
def test_an_amendment_that_no_extension_gives_is_refused_though_its_hash_is_right(
    extended: Extended, asked: dict[str, Any], cuts: list[int], message: str
) -> None:
    _, began = building.started(extended.output)
    values = mix_config(extended.folder).model_dump(mode="json")
    for name, fields in asked.get("datasets", {}).items():
        values["datasets"][name].update(fields)
    config = config_from({**values, **asked, "datasets": values["datasets"]})
    run = replanned(began, config, cuts=tuple(cuts), extensions=2).run
    forged(extended.store, extended.amendments[1], {"asked": asked, "cuts": cuts, "run": run})
    with pytest.raises(CorruptionError, match=message):
        status(extended.output)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"number": 3}, "the log before it says number 2, the amendment says 3"),
        ({"shards": 4}, "the log before it says shards 6, the amendment says 4"),
        ({"batches": 15}, "the log before it says batches 14, the amendment says 15"),
    ],
)
def test_an_amendment_that_does_not_follow_the_log_is_found(
    extended: Extended, changes: dict[str, Any], message: str
) -> None:
    store, (_, newest) = extended.store, extended.amendments
    forged(store, newest, changes)
    assert message in [problem.problem for problem in verify(extended.output).problems]


def test_a_slot_that_names_another_amendment_is_found(extended: Extended) -> None:
    store, (first, newest) = extended.store, extended.amendments
    last = max(commits.slot_number(info.name) or 0 for info in store.list(commits.LOG_PREFIX))
    name = commits.slot_name(last)
    slot = commits.decode_slot(store.objects[name], last, name)
    for wrong, refused in (
        (first, "the plan ends with"),
        (1, "of kind 'shard'"),
        (None, "the plan ends with"),
        ("x", "found 'x'"),
    ):
        writer = {**slot.writer, "amend": wrong}
        store.put(name, commits.encode_slot(Slot(last, slot.kind, writer, slot.payload)))
        with pytest.raises(MixerError, match=refused):
            build(mix_config(extended.folder, batches=17))
        assert f"expected slot {newest} as the newest amendment, found {wrong!r}" in [
            problem.problem for problem in verify(extended.output).problems
        ]


def test_an_open_slot_that_knows_of_no_amendment_is_found(extended: Extended) -> None:
    store = extended.store
    found = building.look(extended.output)
    number = found.tail.next_slot
    payload = {"genesis": found.run.genesis, "head": found.tail.head, "physical": found.run.physical}
    store.put(commits.slot_name(number), commits.encode_slot(Slot(number, "open", envelope("older", number), payload)))
    with pytest.raises(CorruptionError, match="names another amendment than the `open` after it"):
        status(extended.output)
