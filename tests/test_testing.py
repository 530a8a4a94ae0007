from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from mixer.errors import StoreError
from mixer.storage import LocalStore, Store
from mixer.testing import (
    MOMENTS,
    WRITES,
    Act,
    Crash,
    CrashingStore,
    Death,
    DieBy,
    MemoryStore,
    Moment,
    Operation,
    by_crash,
    by_exit,
    by_sigkill,
    count_operations,
    die_at_every_step,
    sample,
)


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


@pytest.mark.parametrize("moment", MOMENTS)
def test_it_dies_also_at_an_operation_that_is_refused(moment: Moment) -> None:
    store = CrashingStore(MemoryStore(), at=0, moment=moment)
    with pytest.raises(Crash):
        store.get_range("not-there", 0, 1)


def careful(store: Store) -> None:
    """Put two pieces of data, each before the log names it; go on from wherever the log is."""
    for number in range(2):
        if store.get(f"log/{number}") is None:
            store.create(f"data/{number}", b"row %d" % number)
            store.create(f"log/{number}", b"data of %d is there" % number)


def hasty(store: Store) -> None:
    """The same, but the log comes first."""
    for number in range(2):
        if store.get(f"log/{number}") is None:
            store.create(f"log/{number}", b"data of %d is there" % number)
            store.create(f"data/{number}", b"row %d" % number)


def forgetful(store: Store) -> None:
    """Do not look how far it is: count on from what is there."""
    number = len(store.list("data/"))
    store.create(f"data/{number}", b"row")


def contents(store: Store) -> dict[str, bytes | None]:
    return {info.name: store.get(info.name) for info in store.list("")}


def empty_folders(base: Path) -> Callable[[], Store]:
    numbers = itertools.count()
    return lambda: LocalStore(base / str(next(numbers)))


WAYS = {"crash": by_crash, "exit": by_exit(in_delay_s=0.001), "kill": by_sigkill(in_delay_s=0.001)}
ways = pytest.mark.parametrize(
    "die",
    [pytest.param(way, id=name, marks=[] if name == "crash" else pytest.mark.crash) for name, way in WAYS.items()],
)


@ways
def test_what_survives_every_death_is_said_to(tmp_path: Path, die: DieBy) -> None:
    left: list[int] = []
    steps = die_at_every_step(
        careful, empty_folders(tmp_path), contents, die=die, left_behind=lambda store: left.append(len(store.list("")))
    )
    assert [operation.verb for operation in steps.operations] == ["get", "create", "create"] * 2
    assert steps.deaths == tuple(Death(operation, moment) for operation in steps.operations for moment in MOMENTS)
    # Each death was one where it was said to be: so much was there already.
    for death, there in zip(steps.deaths, left, strict=True):
        before = sum(operation.verb == "create" for operation in steps.operations[: death.operation.number])
        possible = {"before": {0}, "after": {1}, "in": {0, 1}}[death.moment]
        assert there - before in (possible if death.operation.verb == "create" else {0}), death


@ways
@pytest.mark.parametrize("act", [hasty, forgetful])
def test_what_does_not_survive_one_is_told_where(tmp_path: Path, die: DieBy, act: Act) -> None:
    with pytest.raises(AssertionError, match=r"died (before|in|after) operation \d+: .*, and was run again: expected"):
        die_at_every_step(act, empty_folders(tmp_path), contents, die=die)


def test_a_look_at_what_is_left_behind_can_object() -> None:
    def nothing_there(store: Store) -> None:
        assert store.list("") == []

    with pytest.raises(AssertionError):
        die_at_every_step(careful, MemoryStore, contents, left_behind=nothing_there)


def test_something_else_may_go_on_after_a_death() -> None:
    def say_so(store: Store) -> None:
        store.create("died", b"")

    with pytest.raises(AssertionError, match=r"died before operation 0: .* found {'died': b''}"):
        die_at_every_step(careful, MemoryStore, contents, resume=say_so)


def test_an_act_that_goes_another_way_than_when_it_was_counted_is_told_of() -> None:
    times = itertools.count()

    def once(store: Store) -> None:
        if next(times) == 0:
            store.create("a", b"1")

    with pytest.raises(AssertionError, match="did not die before operation 0: create a"):
        die_at_every_step(once, MemoryStore, contents)


def refusing(store: Store) -> None:
    raise StoreError(f"{store.url}: cannot, and says why")


@pytest.mark.crash
@pytest.mark.parametrize("way", [by_exit(), by_sigkill()])
def test_a_child_that_does_not_come_to_its_death_says_why(tmp_path: Path, way: DieBy) -> None:
    far = Death(Operation(99, "put", "a"), "before")
    with pytest.raises(AssertionError, match=r"die before operation 99.*it is done, after 6 operations"):
        way(careful, LocalStore(tmp_path / "a"), far)
    with pytest.raises(AssertionError, match=r"(?s)die before operation 99.*ended with exit code 99.*says why"):
        way(refusing, LocalStore(tmp_path / "b"), far)


def test_a_sample_is_as_large_as_asked_and_of_all_moments() -> None:
    operations = count_operations(careful, MemoryStore())
    deaths = [Death(operation, moment) for operation in operations for moment in MOMENTS]
    chosen = list(sample(9, verbs=WRITES)(deaths))
    assert len(chosen) == 9
    assert {death.operation.verb for death in chosen} == {"create"}
    assert [sum(death.moment == moment for death in chosen) for moment in MOMENTS] == [3, 3, 3]
    assert list(sample(9, verbs=WRITES)(deaths)) == chosen != list(sample(9, verbs=WRITES, seed=1)(deaths))
    assert list(sample(1000)(deaths)) == deaths
