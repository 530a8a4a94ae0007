"""Of any number of writers that race for a name, or a version, exactly one wins, and what is there is the winner's."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from mixer.storage import LocalStore, Store, open_store
from mixer.testing import MemoryStore, OverwritingStore
from tests.figures import Note
from tests.profiles import sized

WAIT_S = 120.0
FULL = [(2, 300), (4, 30), (50, 1)]
# Losers of a race for one key wait for about a second on this server.
ON_S3 = sized(short=[(2, 50), (4, 3)], long=FULL)
PROCESSES_ON_S3 = sized(short=[(2, 20)], long=FULL)
REPLACEMENTS_ON_S3 = sized(short=[(2, 15)], long=FULL)

Wait = Callable[[float], object]
Claim = Callable[[Wait, Store, int, int], list[bool]]


def claim(wait: Wait, store: Store, writer: int, rounds: int) -> list[bool]:
    """Try to create one name a round, together with the other writers; return which rounds were won."""
    won = []
    for number in range(rounds):
        data = body(writer, number)
        wait(WAIT_S)
        won.append(store.create(f"round-{number:04}", data))
    return won


def overtake(wait: Wait, store: Store, writer: int, rounds: int) -> list[bool]:
    """Try to replace one version a round, the one that all of the writers have seen; return which rounds were won."""
    won = []
    for number in range(rounds):
        name, data = f"round-{number:04}", body(writer, number)
        # Nobody's, and of the same length as what comes: no writer can take it for its own.
        store.create(name, bytes(len(data)))
        found = store.stat(name)
        assert found is not None
        wait(WAIT_S)
        won.append(store.replace(name, data, found.version))
    return won


def in_a_process(race: Claim, barrier: Barrier, url: str, writer: int, rounds: int) -> list[bool]:
    return race(barrier.wait, open_store(url), writer, rounds)


def body(writer: int, number: int) -> bytes:
    # Equal lengths, so that only the bytes tell whose object it is.
    return f"writer {writer:04} round {number:04} ".encode() * 50


def take(environment: dict[str, str]) -> None:
    """Give a process the environment of a test: the one from which it was forked has that of its own start."""
    os.environ.clear()
    os.environ.update(environment)


def race_threads(store: Store, writers: int, rounds: int, race: Claim = claim) -> list[list[bool]]:
    barrier = threading.Barrier(writers)
    with ThreadPoolExecutor(writers) as threads:
        claims = [threads.submit(race, barrier.wait, store, writer, rounds) for writer in range(writers)]
        return [each.result() for each in claims]


def race_processes(url: str, writers: int, rounds: int, race: Claim = claim) -> list[list[bool]]:
    # Forked from a process that has everything loaded: fifty would take minutes to start otherwise.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "mixer.storage.s3", "s3fs"])
    with context.Manager() as manager, context.Pool(writers, take, (dict(os.environ),)) as processes:
        barrier = manager.Barrier(writers)
        calls = [(race, barrier, url, writer, rounds) for writer in range(writers)]
        return processes.starmap(in_a_process, calls, 1)


@pytest.fixture(autouse=True)
def counted(request: pytest.FixtureRequest, figures: Note) -> None:
    """Count the rounds of each race for the end."""
    asked = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if "rounds" in asked:
        where = request.node.originalname.removeprefix("test_").replace("_", " ")
        figures("races", {f"{asked['race'].__name__} by {asked['writers']} {where}": asked["rounds"]})


def assert_one_winner_each(store: Store, won: list[list[bool]], rounds: int) -> None:
    for number in range(rounds):
        winners = [writer for writer, wins in enumerate(won) if wins[number]]
        assert len(winners) == 1, f"round {number}: {len(winners)} winners"
        assert store.get(f"round-{number:04}") == body(winners[0], number)
    assert len(store.list("")) == rounds


@pytest.mark.parametrize("race", [claim, overtake])
@pytest.mark.parametrize(("writers", "rounds"), FULL)
def test_threads_on_a_local_disk(tmp_path: Path, writers: int, rounds: int, race: Claim) -> None:
    store = LocalStore(tmp_path)
    assert_one_winner_each(store, race_threads(store, writers, rounds, race), rounds)


@pytest.mark.parametrize("race", [claim, overtake])
@pytest.mark.parametrize(("writers", "rounds"), FULL)
def test_threads_in_memory(writers: int, rounds: int, race: Claim) -> None:
    store = MemoryStore()
    assert_one_winner_each(store, race_threads(store, writers, rounds, race), rounds)


@pytest.mark.s3
@pytest.mark.parametrize(
    ("race", "writers", "rounds"),
    [*((claim, *each) for each in ON_S3), *((overtake, *each) for each in REPLACEMENTS_ON_S3)],
)
def test_threads_on_s3(s3_url: str, writers: int, rounds: int, race: Claim) -> None:
    store = open_store(s3_url)
    assert_one_winner_each(store, race_threads(store, writers, rounds, race), rounds)


@pytest.mark.parametrize("race", [claim, overtake])
@pytest.mark.parametrize(("writers", "rounds"), sized(short=[(2, 300), (4, 30)], long=FULL))
def test_processes_on_a_local_disk(tmp_path: Path, writers: int, rounds: int, race: Claim) -> None:
    won = race_processes(str(tmp_path), writers, rounds, race)
    assert_one_winner_each(LocalStore(tmp_path), won, rounds)


@pytest.mark.s3
@pytest.mark.parametrize(
    ("race", "writers", "rounds"),
    [*((claim, *each) for each in PROCESSES_ON_S3), *((overtake, *each) for each in sized(short=[], long=FULL))],
)
def test_processes_on_s3(s3_url: str, writers: int, rounds: int, race: Claim) -> None:
    won = race_processes(s3_url, writers, rounds, race)
    assert_one_winner_each(open_store(s3_url), won, rounds)


@pytest.mark.parametrize("race", [claim, overtake])
def test_a_store_that_overwrites_has_two_winners(race: Claim) -> None:
    store = OverwritingStore(MemoryStore())
    with pytest.raises(AssertionError, match="round 0: 2 winners"):
        assert_one_winner_each(store, race_threads(store, 2, 3, race), 3)
