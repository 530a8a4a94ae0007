"""For tests, yours too: a store in memory, a store that dies at a chosen operation, and one that forgets its promise.

A run that survives a `CrashingStore` at every one of its operations survives a crash:

>>> store = MemoryStore()
>>> dying = CrashingStore(store, at=1, moment="after")
>>> dying.create("a", b"1")
True
>>> dying.create("b", b"2")
Traceback (most recent call last):
mixer.testing.Crash: died after operation 1: create b
>>> store.objects  # the last operation was done, though its caller never knew
{'a': b'1', 'b': b'2'}
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

from mixer.errors import MixerError, StoreError
from mixer.storage.base import ObjectInfo, Store
from mixer.storage.urls import check_name, check_prefix, check_range

__all__ = ["WRITES", "Crash", "CrashingStore", "MemoryStore", "Moment", "Operation", "OverwritingStore"]

T = TypeVar("T")
Moment = Literal["before", "in", "after"]
"""Before an operation has done anything, while it is under way, or when it is done and its caller does not know."""
WRITES = frozenset({"put", "create", "replace", "delete"})
"""The verbs that change a store."""


class Crash(BaseException):
    """The death of a process, played in one: no `Exception`, so that no handler swallows it."""


class MemoryStore:
    """A store that keeps every promise of `mixer.storage.Store` in memory, for as long as the process lives.

    Attributes:
        objects: What it holds, name to bytes; for tests to look at.
    """

    def __init__(self, objects: Mapping[str, bytes] | None = None) -> None:
        self.objects: dict[str, bytes] = dict(objects or {})
        self._replacements: dict[str, int] = {}
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return "memory://"

    def get(self, name: str) -> bytes | None:
        check_name(name)
        with self._lock:
            return self.objects.get(name)

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        check_range(start, stop)
        data = self.get(name)
        if data is None:
            raise StoreError(f"get memory://{name}: there is no such object")
        return data[start:stop]

    def put(self, name: str, data: bytes) -> None:
        check_name(name)
        with self._lock:
            self._set(name, data)

    def create(self, name: str, data: bytes) -> bool:
        check_name(name)
        with self._lock:
            if name not in self.objects:
                self._set(name, data)
            return self.objects[name] == data

    def replace(self, name: str, data: bytes, version: str) -> bool:
        check_name(name)
        with self._lock:
            if name not in self.objects:
                return False
            if self._info(name).version == version:
                self._set(name, data)
            return self.objects[name] == data

    def list(self, prefix: str, *, after: str = "") -> list[ObjectInfo]:
        check_prefix(prefix)
        with self._lock:
            names = sorted(name for name in self.objects if name.startswith(prefix) and name > after)
            return [self._info(name) for name in names]

    def delete(self, name: str) -> None:
        check_name(name)
        with self._lock:
            self.objects.pop(name, None)

    def stat(self, name: str) -> ObjectInfo | None:
        check_name(name)
        with self._lock:
            return self._info(name) if name in self.objects else None

    def _set(self, name: str, data: bytes) -> None:
        self.objects[name] = bytes(data)
        self._replacements[name] = self._replacements.get(name, -1) + 1

    def _info(self, name: str) -> ObjectInfo:
        data = self.objects[name]
        version = f"{self._replacements.get(name, 0)}-{hashlib.sha256(data).hexdigest()[:16]}"
        return ObjectInfo(name=name, bytes=len(data), version=version)


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
            # Nobody hears what came of it, be it a refusal.
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


class OverwritingStore:
    """Any store, but it heeds no condition and says that all went well, as some S3 servers do: a negative control.

    A test of two writers that passes on this store tests nothing.
    """

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    @property
    def url(self) -> str:
        return self._inner.url

    def get(self, name: str) -> bytes | None:
        return self._inner.get(name)

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        return self._inner.get_range(name, start, stop)

    def put(self, name: str, data: bytes) -> None:
        self._inner.put(name, data)

    def create(self, name: str, data: bytes) -> bool:
        self._inner.put(name, data)
        return True

    def replace(self, name: str, data: bytes, version: str) -> bool:  # noqa: ARG002 -- what it ignores is its purpose
        self._inner.put(name, data)
        return True

    def list(self, prefix: str, *, after: str = "") -> list[ObjectInfo]:
        return self._inner.list(prefix, after=after)

    def delete(self, name: str) -> None:
        self._inner.delete(name)

    def stat(self, name: str) -> ObjectInfo | None:
        return self._inner.stat(name)
