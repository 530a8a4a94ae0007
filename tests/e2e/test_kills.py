"""A run that is killed with SIGKILL many times, at moments of chance, becomes what an unbroken run is."""

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
from tests.e2e.runs import DEADLINE_S, Child, config_file, many_shards, result, shared_number, unbroken
from tests.profiles import sized

pytestmark = pytest.mark.crash

KILLS = 30
KILLS_ON_S3 = sized(short=12, long=30)
COMMITS_A_LIFE = 2
AFTER_A_COMMIT = 0.75
"""Share of the kills."""
SEEDS = {"disk": 20_261, "s3": 20_262}


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


def kill_many_times(folder: Path, output: str, kills: int, seed: int, shard_s: float) -> MixConfig:
    """Kill a run `kills` times, have it finished, and compare it with one that was never killed."""
    # A child that waits for its death after its commits has one more under way; so no life reaches the end.
    shards = kills * (COMMITS_A_LIFE + 1) + 10
    config = many_shards(folder, output, shards=shards)
    expected = unbroken(config, folder / "unbroken")
    chance = random.Random(seed)  # noqa: S311 -- moments, not secrets
    for _ in range(kills):
        kill_at_random(config, folder / "stderr", chance, shard_s)
    left = building.status(config.output)
    told = f"seed={seed} committed={left.committed}"
    # Otherwise the moments are not what they are meant to be.
    assert kills // 2 <= left.committed < shards, told
    finish_by_command(config, folder / "mix.yaml")
    found = result(config.output)
    assert found.head == expected.head, told
    assert found == expected, told
    report = verify(config.output)
    assert report.problems == (), told
    assert all(name.startswith(".mixer/probe/") for name in report.orphans), told
    return config


def test_on_disk_many_kills_change_nothing(tmp_path: Path) -> None:
    config = kill_many_times(tmp_path, str(tmp_path / "out"), KILLS, SEEDS["disk"], 0.008)
    # Not through the store, which hides what is half written.
    assert sorted(path.name for path in Path(config.output, "data").iterdir()) == [
        f"shard-{shard:08d}.parquet" for shard in range(config.batches or 0)
    ]


@pytest.mark.s3
def test_on_s3_many_kills_change_nothing(s3_url: str, tmp_path: Path) -> None:
    kill_many_times(tmp_path, s3_url, KILLS_ON_S3, SEEDS["s3"], 0.02)
