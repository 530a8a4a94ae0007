"""What lies unfinished on a disk is removed if nobody writes it, and only then."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import pytest

from mixer.errors import StoreError
from mixer.storage import LocalStore
from mixer.storage.leftovers import Leftover
from mixer.storage.urls import TEMPORARY_FOLDER

NAME = "data/shard-00000000.parquet"
DEAD = TEMPORARY_FOLDER + "dead" * 8
WRITER = """
import sys, time
from pathlib import Path
from mixer.storage import LocalStore

class Slow(LocalStore):
    def _settle(self, folder):
        super()._settle(folder)
        def stall(self, target):
            print("ready", flush=True)
            time.sleep(600)
        Path.hardlink_to = stall

Slow(sys.argv[1]).create("data/shard-00000000.parquet", b"whole")
"""


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path / "out")
    store.put("a", b"1")
    return store


def test_a_folder_without_writers_has_none(tmp_path: Path, store: LocalStore) -> None:
    assert store.leftovers() == ()
    assert LocalStore(tmp_path / "nothing").leftovers() == ()


def test_what_a_dead_writer_left_is_nobodys_and_can_be_removed(store: LocalStore) -> None:
    path = store.root / DEAD
    path.write_bytes(b"12345")
    (leftover,) = store.leftovers()
    assert leftover == Leftover(DEAD, 5, held=False)
    assert [info.name for info in store.list("")] == ["a"]
    assert store.remove_leftover(leftover.name)
    assert not path.exists()
    assert store.remove_leftover(leftover.name)


@pytest.mark.crash
def test_a_living_writers_file_stays_and_is_anybodys_when_the_writer_is_killed(store: LocalStore) -> None:
    command = [sys.executable, "-c", WRITER, str(store.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        (leftover,) = store.leftovers()
        assert (leftover.bytes, leftover.held) == (5, True)
        assert not store.remove_leftover(leftover.name)
        assert store.leftovers() == (leftover,)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    (left,) = store.leftovers()
    assert (left.name, left.held) == (leftover.name, False)
    assert store.remove_leftover(left.name)
    assert store.leftovers() == ()
    assert store.get(NAME) is None


def test_a_file_that_is_removed_before_its_writer_has_locked_it_costs_the_writer_nothing(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment between making a file and locking it: a collector may come in just then, and again."""
    flock = fcntl.flock
    removed: list[str] = []

    def collected_first(file: IO[bytes], operation: int) -> None:
        if operation == fcntl.LOCK_EX and len(removed) < 3:
            (leftover,) = store.leftovers()
            assert leftover.held is False
            assert store.remove_leftover(leftover.name)
            removed.append(leftover.name)
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", collected_first)
    assert store.create(NAME, b"whole")
    assert len(set(removed)) == 3
    assert store.get(NAME) == b"whole"
    assert store.leftovers() == ()


def test_writers_and_a_collector_at_once_lose_nothing(store: LocalStore) -> None:
    done = threading.Event()
    removed = 0

    def collect() -> None:
        nonlocal removed
        while not done.is_set():
            for leftover in store.leftovers():
                removed += store.remove_leftover(leftover.name)

    collector = threading.Thread(target=collect)
    collector.start()
    try:
        for number in range(300):
            assert store.create(f"data/{number}", str(number).encode())
            store.put("a", str(number).encode())
    finally:
        done.set()
        collector.join()
    assert [store.get(f"data/{number}") for number in range(300)] == [str(number).encode() for number in range(300)]
    assert store.get("a") == b"299"
    assert store.leftovers() == ()


def test_where_there_are_no_locks_writing_goes_on_and_nothing_is_removed(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(file: IO[bytes], operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unknown)
    assert store.create(NAME, b"whole")
    path = store.root / DEAD
    path.write_bytes(b"12345")
    (leftover,) = store.leftovers()
    assert leftover.held is None
    assert not store.remove_leftover(leftover.name)
    assert path.exists()


ODD = ("notes.txt", "dead" * 7, "DEAD" * 8, "dead" * 8 + ".txt", "a link", "dead" * 7 + "beef", "dead" * 7 + "fade")


def test_what_has_another_name_or_is_no_file_is_others_and_stays(store: LocalStore, tmp_path: Path) -> None:
    folder, outside = store.root / TEMPORARY_FOLDER, tmp_path / "outside"
    outside.write_bytes(b"mine")
    for name in ODD[:4]:
        (folder / name).write_bytes(b"mine")
    for name in ODD[4:6]:
        (folder / name).symlink_to(outside)
    os.mkfifo(folder / ODD[6])
    (folder / ("dead" * 7 + "cafe")).mkdir()
    before = sorted(path.name for path in folder.iterdir())
    found = store.leftovers()
    assert [leftover.name for leftover in found] == sorted(TEMPORARY_FOLDER + name for name in ODD)
    for leftover in found:
        assert (leftover.foreign, leftover.held) == (True, None)
        assert not store.remove_leftover(leftover.name)
    assert sorted(path.name for path in folder.iterdir()) == before
    assert outside.read_bytes() == b"mine"


def test_a_folder_of_leftovers_that_is_a_link_is_refused(store: LocalStore, tmp_path: Path) -> None:
    folder, outside = store.root / TEMPORARY_FOLDER, tmp_path / "outside"
    folder.rename(outside)
    folder.symlink_to(outside)
    (outside / ("dead" * 8)).write_bytes(b"mine")
    for call in (store.leftovers, lambda: store.remove_leftover(DEAD), lambda: store.put("b", b"1")):
        with pytest.raises(StoreError, match="expected a folder, found a symbolic link"):
            call()
    assert [path.name for path in outside.iterdir()] == ["dead" * 8]
