from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mixer.storage import LocalStore
from mixer.testing import WRITES, Crash, CrashingStore, MemoryStore, Moment


def run(store: CrashingStore) -> None:
    store.get("log/0")
    store.put("data/0", b"shard")
    store.create("log/0", b"commit")
    store.list("log/")


@pytest.mark.parametrize(
    ("at", "moment", "expected"),
    [
        (0, "before", {}),
        (1, "before", {}),
        (1, "in", {"data/0": b"shard"}),
        (1, "after", {"data/0": b"shard"}),
        (2, "before", {"data/0": b"shard"}),
        (2, "in", {"data/0": b"shard", "log/0": b"commit"}),
        (2, "after", {"data/0": b"shard", "log/0": b"commit"}),
        (3, "before", {"data/0": b"shard", "log/0": b"commit"}),
    ],
)
def test_it_dies_at_the_chosen_operation(at: int, moment: Moment, expected: dict[str, bytes]) -> None:
    memory = MemoryStore()
    store = CrashingStore(memory, at=at, moment=moment)
    with pytest.raises(Crash, match=f"died {moment} operation {at}: "):
        run(store)
    assert memory.objects == expected


def test_without_a_choice_it_counts() -> None:
    store = CrashingStore(MemoryStore())
    run(store)
    counted = [str(operation) for operation in store.operations]
    assert counted == ["0: get log/0", "1: put data/0", "2: create log/0", "3: list log/"]


def test_it_counts_the_chosen_verbs_only() -> None:
    memory = MemoryStore()
    store = CrashingStore(memory, at=1, moment="before", verbs=WRITES)
    with pytest.raises(Crash, match="before operation 1: create log/0"):
        run(store)
    assert memory.objects == {"data/0": b"shard"}


def test_the_dead_do_nothing_more() -> None:
    memory = MemoryStore()
    store = CrashingStore(memory, at=0)
    with pytest.raises(Crash):
        store.put("a", b"1")
    for verb in (lambda: store.put("a", b"1"), lambda: store.get("a"), lambda: store.list("")):
        with pytest.raises(Crash, match="dead already"):
            verb()
    assert memory.objects == {}


def test_a_crash_is_no_exception_that_a_handler_could_swallow() -> None:
    assert not issubclass(Crash, Exception)


def test_every_thread_gets_a_number_of_its_own() -> None:
    store = CrashingStore(MemoryStore())
    threads = [threading.Thread(target=lambda: [store.stat("a") for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(operation.number for operation in store.operations) == list(range(800))


CHILD = """
import os, signal, sys
from functools import partial
from mixer.storage import LocalStore
from mixer.testing import CrashingStore
how = {"exit": partial(os._exit, 9), "kill": partial(os.kill, os.getpid(), signal.SIGKILL)}[sys.argv[3]]
store = CrashingStore(LocalStore(sys.argv[1]), at=1, moment=sys.argv[2], crash=how, in_delay_s=0.002)
store.create("a", b"1")
store.create("b", b"2" * 30_000_000)
"""


@pytest.mark.crash
@pytest.mark.parametrize(("how", "code"), [("exit", 9), ("kill", -signal.SIGKILL)])
@pytest.mark.parametrize("moment", ["before", "in", "after"])
def test_a_child_process_dies_for_real(tmp_path: Path, moment: Moment, how: str, code: int) -> None:
    done = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path), moment, how], check=False, env=dict(os.environ))
    assert done.returncode == code
    sizes = {info.name: info.bytes for info in LocalStore(tmp_path).list("")}
    possible = {"before": [0], "in": [0, 30_000_000], "after": [30_000_000]}[moment]
    assert sizes["a"] == 1
    assert sizes.get("b", 0) in possible
