"""Work done ahead by a few threads, in order and within a bound of bytes.

Threads are daemons, which a process that ends does not wait for; but one that was caught with a lock would keep it, so
they are told to end first. A forked child has none of them, and leaves what its parent has of them alone.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Task(Generic[T]):
    """One piece of work."""

    expected_bytes: int
    """What its result is expected to take; more while it is made is the task's own business."""
    run: Callable[[], tuple[T, int]]
    """Returns the result, and what it takes in bytes."""


class _Budget:
    """Bytes that may be held at once; one holder may always have what it needs."""

    def __init__(self, most: int, stopping: threading.Event) -> None:
        self._most, self._stopping = most, stopping
        self._held = self._holders = 0
        self._changed = threading.Condition()
        self._process = os.getpid()

    def take(self, size: int) -> None:
        """Wait until there is room, or everything ends."""
        with self._changed:
            self._changed.wait_for(
                lambda: not self._holders or self._held + size <= self._most or self._stopping.is_set()
            )
            self._held += size
            self._holders += 1

    def add(self, size: int) -> None:
        """Correct what a holder takes."""
        with self._changed:
            self._held += size
            self._changed.notify_all()

    def give(self, size: int) -> None:
        """Return what was taken."""
        with self._changed:
            self._held -= size
            self._holders -= 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Let nobody wait any more."""
        if self._stopping.is_set() or os.getpid() != self._process:
            return
        with self._changed:
            self._stopping.set()
            self._changed.notify_all()


@dataclass(slots=True)
class _Line(Generic[T]):
    """What the threads share: they take tasks one at a time, so that results stand in the order of the tasks."""

    tasks: Iterator[Task[T]]
    budget: _Budget
    stopping: threading.Event
    turn: threading.Lock
    results: SimpleQueue[Future[tuple[T, int] | None]]
    is_over: bool = False

    def work(self) -> None:
        """Do tasks until there are no more."""
        while True:
            with self.turn:
                if self.is_over:
                    return
                future: Future[tuple[T, int] | None] = Future()
                task = self._next(future)
                self.results.put(future)
                if task is None:
                    self.is_over = True
                    return
            try:
                result, size = task.run()
            except BaseException as error:  # noqa: BLE001 -- goes on in the thread that waits for the result
                future.set_exception(error)
                continue
            self.budget.add(size - task.expected_bytes)
            future.set_result((result, size))

    def _next(self, future: Future[tuple[T, int] | None]) -> Task[T] | None:
        """Return the next task once there is room for it; else settle `future`: the end, or what went wrong."""
        try:
            task = next(self.tasks, None)
        except BaseException as error:  # noqa: BLE001 -- as above
            future.set_exception(error)
            return None
        if task is not None:
            self.budget.take(task.expected_bytes)
        if task is None or self.stopping.is_set():
            future.set_result(None)
            return None
        return task


_AT_WORK: weakref.WeakKeyDictionary[_Budget, list[threading.Thread]] = weakref.WeakKeyDictionary()
_GOODBYE_S = 10.0


def _end_all() -> None:
    for budget, threads in list(_AT_WORK.items()):
        budget.stop()
        for thread in threads:
            thread.join(_GOODBYE_S)


atexit.register(_end_all)
os.register_at_fork(after_in_child=_AT_WORK.clear)


def ahead(
    tasks: Iterator[Task[T]], *, bytes_max: int, threads: int, stopping: threading.Event
) -> Generator[T, None, None]:
    """Yield the results of `tasks` in order, having done some of them ahead.

    Results that wait, and the one that was yielded last, take at most `bytes_max` as far as tasks know beforehand what
    theirs take; a task that takes more alone is done all the same, by itself.

    Args:
        tasks: What to do; asked for one at a time, in one thread or another.
        bytes_max: The bound.
        threads: How many tasks are done at once, from 1.
        stopping: Set when the iteration ends, however it ends; a task that waits for something should heed it.

    >>> tasks = (Task(8, lambda n=n: (n * n, 8)) for n in range(5))
    >>> list(ahead(tasks, bytes_max=20, threads=2, stopping=threading.Event()))
    [0, 1, 4, 9, 16]
    """
    budget = _Budget(bytes_max, stopping)
    line: _Line[T] = _Line(tasks, budget, stopping, threading.Lock(), SimpleQueue())
    workers = [
        threading.Thread(target=line.work, name=f"mixer-read-{number}", daemon=True) for number in range(threads)
    ]
    _AT_WORK[budget] = workers
    for worker in workers:
        worker.start()
    try:
        while (done := line.results.get().result()) is not None:
            result, size = done
            del done
            yield result
            del result
            budget.give(size)
    finally:
        budget.stop()
