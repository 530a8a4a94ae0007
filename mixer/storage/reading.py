"""Read-only files over ranged requests: what all have in common, and that over an object of a store."""

from __future__ import annotations

import io
from abc import abstractmethod
from typing import Any

from mixer.storage.base import Store


class ReadOnlyFile(io.RawIOBase):
    """A seekable, read-only file, given its length and its ranges. Not thread-safe by itself; pyarrow locks it."""

    def __init__(self) -> None:
        super().__init__()
        self._position = 0

    @abstractmethod
    def size(self) -> int:
        """Return the length in bytes."""

    @abstractmethod
    def read_range(self, start: int, stop: int) -> bytes:
        """Return the bytes ``[start, stop)``; there are some, and all lie in the file."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size()}[whence]
        self._position = max(0, start + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        start = min(self._position, self.size())
        stop = self.size() if size is None or size < 0 else min(start + size, self.size())
        if start == stop:
            return b""
        data = self.read_range(start, stop)
        self._position = start + len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class ObjectFile(ReadOnlyFile):
    """An object of a store as a file, as a Parquet reader wants one; each read is one ranged read.

    Args:
        store: Where the object is.
        name: Its name.
        length: Its length in bytes.
    """

    def __init__(self, store: Store, name: str, length: int) -> None:
        super().__init__()
        self._store, self._name, self._length = store, name, length

    def size(self) -> int:
        return self._length

    def read_range(self, start: int, stop: int) -> bytes:
        return self._store.get_range(self._name, start, stop)
