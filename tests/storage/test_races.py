"""Of any number of writers that race for a name exactly one wins, and what is there is the winner's."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from mixer.storage import LocalStore, Store, open_store
from mixer.testing import MemoryStore, OverwritingStore

WAIT_S = 60.0


def claim(wait: Callable[[float], object], store: Store, writer: int, rounds: int) -> list[bool]:
    """Try to create one name a round, together with the other writers; return which rounds were won."""
    won = []
    for number in range(rounds):
        data = body(writer, number)
        wait(WAIT_S)
        won.append(store.create(f"round-{number:04}", data))
    return won


def claim_in_a_process(barrier: Barrier, url: str, writer: int, rounds: int) -> list[bool]:
    return claim(barrier.wait, open_store(url), writer, rounds)


def body(writer: int, number: int) -> bytes:
    # Equal lengths, so that only the bytes tell whose object it is.
    return f"writer {writer:04} round {number:04} ".encode() * 50


def race_threads(store: Store, writers: int, rounds: int) -> list[list[bool]]:
    barrier = threading.Barrier(writers)
    with ThreadPoolExecutor(writers) as threads:
        claims = [threads.submit(claim, barrier.wait, store, writer, rounds) for writer in range(writers)]
        return [each.result() for each in claims]


def race_processes(url: str, writers: int, rounds: int) -> list[list[bool]]:
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(writers) as processes:
        barrier = manager.Barrier(writers)
        return processes.starmap(claim_in_a_process, [(barrier, url, writer, rounds) for writer in range(writers)], 1)


def assert_one_winner_each(store: Store, won: list[list[bool]], rounds: int) -> None:
    for number in range(rounds):
        winners = [writer for writer, wins in enumerate(won) if wins[number]]
        assert len(winners) == 1, f"round {number}: {len(winners)} winners"
        assert store.get(f"round-{number:04}") == body(winners[0], number)
    assert len(store.list("")) == rounds


@pytest.mark.parametrize(("writers", "rounds"), [(2, 300), (4, 30), (50, 1)])
def test_threads_on_a_local_disk(tmp_path: Path, writers: int, rounds: int) -> None:
    store = LocalStore(tmp_path)
    assert_one_winner_each(store, race_threads(store, writers, rounds), rounds)


@pytest.mark.parametrize(("writers", "rounds"), [(2, 300), (4, 30), (50, 1)])
def test_threads_in_memory(writers: int, rounds: int) -> None:
    store = MemoryStore()
    assert_one_winner_each(store, race_threads(store, writers, rounds), rounds)


@pytest.mark.s3
@pytest.mark.parametrize(("writers", "rounds"), [(2, 40), (4, 3)])
def test_threads_on_s3(s3_url: str, writers: int, rounds: int) -> None:
    store = open_store(s3_url)
    assert_one_winner_each(store, race_threads(store, writers, rounds), rounds)


@pytest.mark.parametrize(("writers", "rounds"), [(2, 300), (4, 30)])
def test_processes_on_a_local_disk(tmp_path: Path, writers: int, rounds: int) -> None:
    won = race_processes(str(tmp_path), writers, rounds)
    assert_one_winner_each(LocalStore(tmp_path), won, rounds)


@pytest.mark.s3
@pytest.mark.parametrize(("writers", "rounds"), [(2, 40)])
def test_processes_on_s3(s3_url: str, writers: int, rounds: int) -> None:
    won = race_processes(s3_url, writers, rounds)
    assert_one_winner_each(open_store(s3_url), won, rounds)


def test_a_store_that_overwrites_has_two_winners() -> None:
    store = OverwritingStore(MemoryStore())
    with pytest.raises(AssertionError, match="round 0: 2 winners"):
        assert_one_winner_each(store, race_threads(store, 2, 3), 3)
