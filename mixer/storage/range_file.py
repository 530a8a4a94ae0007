"""A handle on a remote file whose every read is one request, pinned to the version that was opened."""

from __future__ import annotations

from typing import Any

from mixer.storage.reading import ReadOnlyFile


class RangeFile(ReadOnlyFile):
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

    def size(self) -> int:
        return int(self.details["size"])

    def read_range(self, start: int, stop: int) -> bytes:
        return bytes(self._filesystem.cat_file(self._path, start=start, end=stop, version=self._version))
