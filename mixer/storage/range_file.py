"""A handle on a remote file whose every read is one request, pinned to the version that was opened."""

from __future__ import annotations

import io
from typing import Any


class RangeFile(io.RawIOBase):
    """What `mixer.storage.remote_file` needs of a handle, over a file system that reads ranges of one version.

    The handles of gcsfs and adlfs read whatever is there by now, and large ranges in pieces.

    Args:
        filesystem: Has `info`, and a `cat_file` that takes a ``version``.
        path: The file's path on it.
        version_key: Where in the file's info its version stands.

    Raises:
        FileNotFoundError: There is no such file, or it is a folder.
        OSError: A read answered with the HTTP status 412: the file was replaced after it was opened.
    """

    def __init__(self, filesystem: Any, path: str, *, version_key: str) -> None:
        super().__init__()
        self.details: dict[str, Any] = filesystem.info(path)
        if self.details["type"] == "directory":
            raise FileNotFoundError(path)
        self._filesystem, self._path, self._version = filesystem, path, str(self.details[version_key])
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: int(self.details["size"])}[whence]
        self._position = max(0, start + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        length = int(self.details["size"])
        start = min(self._position, length)
        stop = length if size is None or size < 0 else min(start + size, length)
        if start == stop:
            return b""
        data = bytes(self._filesystem.cat_file(self._path, start=start, end=stop, version=self._version))
        self._position = start + len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
