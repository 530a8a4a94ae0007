"""How long a run that is followed is waited for, by a clock that only the test moves."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from mixer import building, readable
from mixer.errors import OutputError
from mixer.reading import Batches, read
from tests.mixes import mix_config

DEADLINE_S = 60.0
SHARD_BATCHES = 3


class Clock:
    """Stands where it was put, and counts how often it is looked at."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.looks = 0

    def monotonic(self) -> float:
        now_s = self.now_s
        self.looks += 1
        return now_s

    def put_forward(self, seconds: float) -> None:
        """Move it between two looks of whoever waits."""
        self._await_looks()
        self.now_s += seconds
        self._await_looks()

    def _await_looks(self) -> None:
        # One may have begun already, or be that at a commit that has just come.
        wanted, deadline_s = self.looks + 3, time.monotonic() + DEADLINE_S
        while self.looks < wanted and is_waited() and time.monotonic() < deadline_s:
            time.sleep(0.002)


def is_waited() -> bool:
    return any(thread.name.startswith("mixer-read") for thread in threading.enumerate())


def shard_of(batches: Batches) -> list[int]:
    return [next(batches)["_batch"][0].as_py() for _ in range(SHARD_BATCHES)]


def test_the_time_without_a_commit_counts_from_the_newest_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(readable, "POLL_S", 0.002)
    monkeypatch.setattr(readable, "time", clock)
    config = mix_config(tmp_path)
    with (
        building.start(config) as run,
        read(config.output, follow=True, timeout_s=60) as batches,
    ):
        run.write(1)
        assert shard_of(batches) == [0, 1, 2]
        for shards in (2, 3):
            clock.put_forward(45)
            run.write(shards)
            assert shard_of(batches) == list(range(SHARD_BATCHES * (shards - 1), SHARD_BATCHES * shards))
        clock.put_forward(59)
        assert is_waited()
        clock.put_forward(2)
        with pytest.raises(OutputError, match=r"nothing was committed for 60 s, and the run is not finished"):
            next(batches)
