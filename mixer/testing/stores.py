"""Stores for tests: one in memory that keeps every promise, and one that forgets the most important of them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping

from mixer.errors import StoreError
from mixer.storage.base import ObjectInfo, Store
from mixer.storage.urls import check_name, check_prefix, check_range


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
