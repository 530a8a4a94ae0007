"""Forks that die at any of their operations, are killed, or race: they become what an undisturbed one is."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import pytest

from mixer import building
from mixer.config import MixConfig
from mixer.core.commits import Commit
from mixer.storage import Store, open_store
from mixer.testing import MOMENTS, WRITES, MemoryStore, die_at_every_step, sample
from mixer.verifying import verify
from tests.e2e.runs import Child, at_once, became, lying_on, many_shards, objects, result
from tests.mixes import mix_config
from tests.profiles import sized

pytestmark = pytest.mark.timeout(sized(short=600, long=3600))

DONE, FENCED = 0, 6
EVERY_WRITE = sized(short=sample(10_000, verbs=WRITES), long=list)


def build_on(config: MixConfig, store: Store) -> None:
    """Build a fork to a store of one's choice; its parent lies on disk."""
    with lying_on(config, store):
        building.build(config)


def test_a_death_at_every_write_of_a_fork_changes_nothing(tmp_path: Path) -> None:
    run = building.build(mix_config(tmp_path)).output
    before = objects(open_store(run))
    config = building.fork(run, 2, str(tmp_path / "new"), weights={"web": 1, "code": 1}, batches=5)
    steps = die_at_every_step(partial(build_on, config), MemoryStore, partial(became, config), choose=EVERY_WRITE)
    writes = [operation for operation in steps.operations if operation.verb in WRITES]
    assert len(writes) > 8
    assert len(steps.deaths) >= len(MOMENTS) * len(writes)
    # None of the deaths has touched the other run.
    assert objects(open_store(run)) == before


def die_after(config: MixConfig, shard: int) -> None:
    def on_commit(commit: Commit) -> None:
        if commit.shard == shard:
            signal.raise_signal(signal.SIGKILL)

    building.build(config, on_commit=on_commit)


@pytest.mark.crash
def test_a_fork_that_is_killed_goes_on(tmp_path: Path) -> None:
    run = building.build(many_shards(tmp_path, str(tmp_path / "run"), shards=24, batches=16)).output
    config = building.fork(run, 8, str(tmp_path / "new"), weights={"web": 1, "code": 1}, batches=10)
    alone = config.model_copy(update={"output": str(tmp_path / "alone")})
    building.build(alone)
    for shard in (8, 13):
        child = Child(tmp_path / f"stderr-{shard}", die_after, config, shard)
        assert child.ended() == -signal.SIGKILL, child.said
    building.build(config)
    assert result(config.output) == result(alone.output)
    assert verify(config.output).problems == ()


def build_plainly(config: MixConfig) -> None:
    building.build(config)


@pytest.mark.crash
def test_two_equal_forks_at_once_end_as_one(tmp_path: Path) -> None:
    run = building.build(many_shards(tmp_path, str(tmp_path / "run"), shards=24, batches=16)).output
    alone = building.fork(run, 8, str(tmp_path / "alone"), weights={"web": 1, "code": 1}, batches=10)
    building.build(alone)
    for number in range(sized(short=2, long=20)):
        config = alone.model_copy(update={"output": str(tmp_path / f"new-{number}")})
        with at_once(tmp_path / f"stderr-{number}", [(build_plainly, config)] * 2) as children:
            codes = [child.ended() for child in children]
            assert set(codes) <= {DONE, FENCED}, [child.said for child in children]
            assert DONE in codes, [child.said for child in children]
        assert result(config.output) == result(alone.output)
        assert verify(config.output).problems == ()


@pytest.mark.crash
def test_a_fork_of_a_run_that_is_being_written_is_the_one_of_a_finished_run(tmp_path: Path) -> None:
    whole = many_shards(tmp_path, str(tmp_path / "run"), shards=24)
    forked: list[MixConfig] = []

    def on_commit(commit: Commit) -> None:
        if commit.shard == 11:
            forked.append(building.fork(whole.output, 8, str(tmp_path / "early"), weights={"web": 1}, batches=6))
            building.build(forked[0])

    building.build(whole, on_commit=on_commit)
    building.build(forked[0].model_copy(update={"output": str(tmp_path / "late")}))
    assert result(str(tmp_path / "early")) == result(str(tmp_path / "late"))
    assert verify(str(tmp_path / "early")).problems == ()


@pytest.mark.crash
@pytest.mark.s3
def test_a_fork_on_s3_of_a_run_on_s3(tmp_path: Path, s3_url: str) -> None:
    run = building.build(many_shards(tmp_path, f"{s3_url}/run", shards=12, batches=6)).output
    config = building.fork(run, 3, f"{s3_url}/new", weights={"web": 1}, batches=4)
    assert config.fork is not None
    assert config.fork.run == run
    building.build(config)
    report = verify(config.output)
    assert (report.problems, report.shards, report.parents) == ((), 7, (run,))
