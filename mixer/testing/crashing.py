"""A store whose process dies at a chosen operation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar, get_args

from mixer.errors import MixerError
from mixer.storage.base import ObjectInfo, Store

T = TypeVar("T")
Moment = Literal["before", "in", "after"]
"""Before an operation has done anything, while it is under way, or when it is done and its caller does not know."""
MOMENTS: tuple[Moment, ...] = get_args(Moment)
WRITES = frozenset({"put", "create", "replace", "delete"})
"""The verbs that change a store."""


class Crash(BaseException):
    """The death of a process, played in one: no `Exception`, so that no handler swallows it."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of a store's verb, counted from 0."""

    number: int
    verb: str
    name: str

    def __str__(self) -> str:
        return f"{self.number}: {self.verb} {self.name}"


class CrashingStore:
    """Any store, until the process dies at a chosen operation; without a choice it only counts them.

    What "dying" is, is up to `crash`. The default raises `Crash`, for tests within one process; from then on
    every further call raises it too, as a dead process makes none. ``functools.partial(os._exit, 9)`` ends a
    child process for real; a callable that tells a parent and then sleeps waits for a SIGKILL from outside.

    Attributes:
        operations: The operations so far that were counted.
    """

    def __init__(  # noqa: PLR0913 - each is one independent choice of where and how to die
        self,
        inner: Store,
        *,
        at: int | None = None,
        moment: Moment = "before",
        crash: Callable[[], object] | None = None,
        verbs: Collection[str] | None = None,
        in_delay_s: float = 0.0,
    ) -> None:
        """Wrap `inner`.

        Args:
            inner: The store that does the work.
            at: Number of the operation to die at, from 0; None never dies.
            moment: Whether to die before it, in it, or after it.
            crash: What to die by; None raises `Crash`.
            verbs: Count these only, such as `WRITES`; None counts all.
            in_delay_s: How long an operation has been under way when the process dies "in" it.
        """
        self.operations: list[Operation] = []
        self._inner = inner
        self._at = at
        self._moment = moment
        self._crash = crash
        self._verbs = verbs
        self._in_delay_s = in_delay_s
        self._dead = False
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return self._inner.url

    def get(self, name: str) -> bytes | None:
        return self._do("get", name, partial(self._inner.get, name))

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        return self._do("get_range", name, partial(self._inner.get_range, name, start, stop))

    def put(self, name: str, data: bytes) -> None:
        self._do("put", name, partial(self._inner.put, name, data))

    def create(self, name: str, data: bytes) -> bool:
        return self._do("create", name, partial(self._inner.create, name, data))

    def replace(self, name: str, data: bytes, version: str) -> bool:
        return self._do("replace", name, partial(self._inner.replace, name, data, version))

    def list(self, prefix: str, *, after: str = "") -> list[ObjectInfo]:
        return self._do("list", prefix, partial(self._inner.list, prefix, after=after))

    def delete(self, name: str) -> None:
        self._do("delete", name, partial(self._inner.delete, name))

    def stat(self, name: str) -> ObjectInfo | None:
        return self._do("stat", name, partial(self._inner.stat, name))

    def _do(self, verb: str, name: str, act: Callable[[], T]) -> T:
        if self._dead:
            raise Crash(f"dead already: {verb} {name}")
        if self._verbs is not None and verb not in self._verbs:
            return act()
        with self._lock:
            operation = Operation(len(self.operations), verb, name)
            self.operations.append(operation)
        if operation.number != self._at:
            return act()
        if self._moment == "before":
            raise self._death(operation)
        if self._moment == "after":
            # Also if it was refused: the dead do not hear of that either.
            with suppress(MixerError):
                act()
            raise self._death(operation)
        # A request that is on its way is not called back by the death of its sender: where `crash` raises, the
        # operation goes to its end, and whatever comes of it is lost.
        with ThreadPoolExecutor(max_workers=1) as line:
            line.submit(act)
            time.sleep(self._in_delay_s)
            raise self._death(operation)

    def _death(self, operation: Operation) -> Crash:
        self._dead = True
        if self._crash is not None:
            self._crash()
        return Crash(f"died {self._moment} operation {operation}")
