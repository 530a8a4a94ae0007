"""Every verb knows that a run was extended."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mixer import building, log
from mixer.building import build, start, status
from mixer.collecting import gc
from mixer.core import commits
from mixer.errors import FencedError
from mixer.heading import head
from mixer.log import CommitLog
from mixer.previewing import preview
from mixer.publishing import dataset_card
from mixer.testing import count_operations
from mixer.verifying import verify
from tests.extending.shared import STORES, nothing_wrong, rows_of, said
from tests.mixes import mix_config


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
