"""A run that is killed with SIGKILL thirty times, at moments of chance, becomes what an unbroken run is."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mixer import building
from mixer.config import MixConfig
from mixer.core.commits import Commit
from mixer.verifying import verify
from tests.e2e.runs import DEADLINE_S, Child, Result, config_file, many_shards, result, shared_number, unbroken

pytestmark = pytest.mark.crash

KILLS = 30
COMMITS_A_LIFE = 2
AFTER_A_COMMIT = 0.75
"""Share of the kills."""
SHARDS = KILLS * (COMMITS_A_LIFE + 1) + 10
"""A child that waits for its death after so many commits has one more under way; so no life reaches the end."""
SEEDS = {"disk": 20_261, "s3": 20_262}


@pytest.fixture
def config(tmp_path: Path) -> MixConfig:
    return many_shards(tmp_path, str(tmp_path / "out"), shards=SHARDS)


@pytest.fixture
def expected(config: MixConfig, tmp_path: Path) -> Result:
    return unbroken(config, tmp_path / "unbroken")


def short_life(config: MixConfig, commits_made: Any) -> None:
    """Build a little further, then wait to be killed: a slow parent must not find the run finished."""

    def on_commit(commit: Commit) -> None:
        commits_made.value += 1
        if commits_made.value == COMMITS_A_LIFE:
            time.sleep(DEADLINE_S)

    building.build(config, on_commit=on_commit)


def kill_at_random(config: MixConfig, log: Path, chance: random.Random, shard_s: float) -> None:
    """Start a child and kill it at a random moment of its life.

    One in four is killed by the clock alone, mostly while it opens the run; the others a random moment after a commit.
    """
    commits_made = shared_number()
    # Of its commits not the last, so that the moment after the last is not one of waiting.
    least = chance.randrange(1, COMMITS_A_LIFE) if chance.random() < AFTER_A_COMMIT else 0
    pause_s = chance.uniform(0, 2 * shard_s if least else 12 * shard_s)
    child = Child(log, short_life, config, commits_made)
    deadline_s = time.monotonic() + DEADLINE_S
    while commits_made.value < least:
        assert child.process.exitcode is None, child.said
        assert time.monotonic() < deadline_s, child.said
        time.sleep(0.0005)
    time.sleep(pause_s)
    child.signal(signal.SIGKILL)
    assert child.ended() == -signal.SIGKILL, child.said


def finish_by_command(config: MixConfig, path: Path) -> None:
    """Let the installed command do what is left."""
    mixer = Path(sys.executable).with_name("mixer")
    command = [str(mixer), "run", config_file(config, path), "--no-prefect", "--quiet"]
    subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S)


def kill_many_times(config: MixConfig, expected: Result, folder: Path, seed: int, shard_s: float) -> None:
    chance = random.Random(seed)  # noqa: S311 -- moments, not secrets
    for _ in range(KILLS):
        kill_at_random(config, folder / "stderr", chance, shard_s)
    left = building.status(config.output)
    told = f"seed={seed} committed={left.committed}"
    # Otherwise the moments are not what they are meant to be.
    assert KILLS // 2 <= left.committed < SHARDS, told
    finish_by_command(config, folder / "mix.yaml")
    found = result(config.output)
    assert found.head == expected.head, told
    assert found == expected, told
    report = verify(config.output)
    assert report.problems == (), told
    assert all(name.startswith(".mixer/probe/") for name in report.orphans), told


def test_on_disk_thirty_kills_change_nothing(config: MixConfig, expected: Result, tmp_path: Path) -> None:
    kill_many_times(config, expected, tmp_path, SEEDS["disk"], 0.008)
    # Not through the store, which hides what is half written.
    assert sorted(path.name for path in Path(config.output, "data").iterdir()) == [
        f"shard-{shard:08d}.parquet" for shard in range(SHARDS)
    ]


@pytest.mark.s3
def test_on_s3_thirty_kills_change_nothing(config: MixConfig, expected: Result, s3_url: str, tmp_path: Path) -> None:
    kill_many_times(config.model_copy(update={"output": s3_url}), expected, tmp_path, SEEDS["s3"], 0.02)
