"""Work that is done in threads before it is asked for, in order and so much of it at the most."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")

_AHEAD = 6


def mapped_ahead(function: Callable[[T], U], items: Iterator[T], threads: int) -> Generator[U, None, None]:
    """Yield `function` of each of `items`, in order; both are done ahead, in threads.

    `items` are taken by one thread, and `threads` others call the function. A few more items than these are under
    work or done before they are asked for. What is raised in a thread is raised here, in its turn.
    """
    reader = ThreadPoolExecutor(1, thread_name_prefix="mixer-texts")
    pool = ThreadPoolExecutor(threads, thread_name_prefix="mixer-encode")
    waiting: deque[Future[U]] = deque()

    def step() -> bool:
        """Take an item and hand it on; say whether there was one."""
        for item in items:
            waiting.append(pool.submit(function, item))
            return True
        return False

    try:
        reading = reader.submit(step)
        more = True
        while more or waiting:
            while more and (len(waiting) < threads + _AHEAD or not waiting):
                more = reading.result()
                if more:
                    reading = reader.submit(step)
            if waiting:
                yield waiting.popleft().result()
    finally:
        reader.shutdown(wait=True, cancel_futures=True)
        pool.shutdown(wait=True, cancel_futures=True)
