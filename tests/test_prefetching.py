from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from mixer.prefetching import Task, ahead

DEADLINE_S = 120.0


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("mixer-read")]


def assert_no_readers() -> None:
    for thread in readers():
        thread.join(DEADLINE_S)
    assert readers() == []


def counted(sizes: list[int], begun: list[int]) -> Iterator[Task[int]]:
    for number, size in enumerate(sizes):

        def run(number: int = number, size: int = size) -> tuple[int, int]:
            begun.append(number)
            return number, size

        yield Task(size, run)


def settled(begun: list[int], expected: int) -> list[int]:
    """Return what was begun some time after it was as many as `expected`."""
    deadline_s = time.monotonic() + DEADLINE_S
    while len(begun) < expected and time.monotonic() < deadline_s:
        time.sleep(0.01)
    time.sleep(0.1)
    return sorted(begun)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_the_order_of_the_tasks(threads: int) -> None:
    def slow_first(number: int) -> tuple[int, int]:
        time.sleep(0.02 * (number % 3 == 0))
        return number, 1

    tasks = (Task(1, partial(slow_first, number)) for number in range(20))
    found = list(ahead(tasks, bytes_max=6, threads=threads, stopping=threading.Event()))
    assert found == list(range(20))
    assert_no_readers()


def test_no_more_is_done_ahead_than_has_room() -> None:
    begun: list[int] = []
    results = ahead(counted([10] * 9, begun), bytes_max=30, threads=2, stopping=threading.Event())
    assert next(results) == 0
    assert settled(begun, 3) == [0, 1, 2]
    assert next(results) == 1
    assert settled(begun, 4) == [0, 1, 2, 3]
    results.close()


def test_what_results_take_counts_and_not_what_was_expected() -> None:
    begun: list[int] = []

    def large(number: int) -> tuple[int, int]:
        begun.append(number)
        return number, 100

    tasks = (Task(1, partial(large, number)) for number in range(9))
    results = ahead(tasks, bytes_max=99, threads=1, stopping=threading.Event())
    next(results)
    assert settled(begun, 1) == [0]
    results.close()


def test_one_task_that_is_larger_than_the_room_is_done_by_itself() -> None:
    begun: list[int] = []
    assert list(ahead(counted([50, 1, 50], begun), bytes_max=10, threads=2, stopping=threading.Event())) == [0, 1, 2]


def test_an_error_comes_where_its_result_would_have_come_and_ends_the_threads() -> None:
    def failing(number: int) -> tuple[int, int]:
        if number == 2:
            raise LookupError("two")
        return number, 1

    results = ahead(
        (Task(1, partial(failing, number)) for number in range(9)),
        bytes_max=99,
        threads=2,
        stopping=threading.Event(),
    )
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(LookupError, match="two"):
        next(results)
    assert_no_readers()


def test_an_error_in_finding_the_next_task_comes_after_the_results_before_it() -> None:
    def tasks() -> Iterator[Task[int]]:
        yield Task(1, lambda: (0, 1))
        raise LookupError("no more")

    results = ahead(tasks(), bytes_max=99, threads=2, stopping=threading.Event())
    assert next(results) == 0
    with pytest.raises(LookupError, match="no more"):
        next(results)
    assert_no_readers()


def test_an_iterator_that_is_dropped_ends_its_threads() -> None:
    stopping = threading.Event()
    results = ahead(counted([10] * 99, []), bytes_max=30, threads=2, stopping=stopping)
    next(results)
    del results
    gc.collect()
    assert stopping.is_set()
    assert_no_readers()


def test_a_process_with_an_iterator_in_the_middle_comes_to_its_end() -> None:
    code = """
import threading
from mixer.prefetching import Task, ahead
results = ahead((Task(1, lambda: (0, 1)) for _ in range(10**9)), bytes_max=10**9, threads=4, stopping=threading.Event())
print(next(results))
"""
    # Its threads are at work then, with locks taken and given back all the time.
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], timeout=180, capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == ("0\n", "")
