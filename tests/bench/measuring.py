"""What the benchmarks have in common: the memory of a process that works."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PAUSE_S = 0.02


def status_mb(pid: int | str, key: str) -> float:
    """Return one figure of a process's memory; 0 where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{key}:")), 0.0)


@contextmanager
def anonymous_memory(pid: int) -> Iterator[list[float]]:
    """Sample a process; the one element of what is given is the most anonymous memory seen so far, in MB."""
    most, ended = [0.0], threading.Event()

    def sample() -> None:
        while not ended.wait(_PAUSE_S):
            most[0] = max(most[0], status_mb(pid, "RssAnon"))

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield most
    finally:
        ended.set()
        sampler.join()
