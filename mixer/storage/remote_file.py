"""A remote input file as pyarrow reads it: pinned to one version, each range retried by itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from mixer.errors import ChangedError, StoreError
from mixer.storage.reading import ReadOnlyFile
from mixer.storage.retry import call_with_retries, is_precondition_failed, understood

# What stores call the thing that changes with the contents.
_TOKEN_KEYS = ("ETag", "etag", "generation", "md5Hash", "content_md5")
# Second best: when the file was written. Listings and single look-ups of one store may say it in different types.
_TIME_KEYS = ("mtime", "LastModified", "last_modified", "created")


def version_in(info: Mapping[str, Any]) -> str:
    """Return the version token in what fsspec says of a file; empty if there is none.

    >>> version_in({"name": "b/k", "size": 3, "ETag": '"d41d8"'}), version_in({"name": "k", "mtime": 12.5})
    ('d41d8', '12500')
    """
    for key in _TOKEN_KEYS:
        if (token := info.get(key)) is not None:
            return str(token).strip('"')
    for key in _TIME_KEYS:
        moment = info.get(key)
        if isinstance(moment, datetime):
            moment = moment.timestamp()
        if moment is not None:
            return str(round(moment * 1000)) if isinstance(moment, (int, float)) else str(moment)
    return ""


class PinnedFile(ReadOnlyFile):
    """A seekable, read-only file over ranged requests.

    Args:
        filesystem: An fsspec file system that neither caches nor retries.
        path: The file's path on it.
        url: Its name for people.
        length: Its length in bytes.
        version: Its version; another one is a `ChangedError`, now or at any later read. Empty: not checked.

    Raises:
        ChangedError: The file is gone or was replaced.
        StoreError: The store refused, or did not answer.
    """

    def __init__(self, filesystem: Any, path: str, *, url: str, length: int, version: str) -> None:
        super().__init__()
        self._filesystem, self._path, self._url = filesystem, path, url
        self._length, self._version = length, version
        self._handle: Any = None
        self._call(self._opened, what=f"open {url}")

    def size(self) -> int:
        return self._length

    def read_range(self, start: int, stop: int) -> bytes:
        data: bytes = self._call(lambda: self._range(start, stop), what=f"get {self._url} bytes {start}-{stop}")
        return data

    def close(self) -> None:
        if not self.closed:
            self._drop()
        super().close()

    def _range(self, start: int, stop: int) -> bytes:
        try:
            handle = self._opened()
            handle.seek(start)
            data = bytes(understood(lambda: handle.read(stop - start)))
        except BaseException:
            # Whatever state it is in, the next try begins with a new one.
            self._drop()
            raise
        if len(data) != stop - start:
            self._drop()
            raise ConnectionError(f"expected {stop - start} bytes, found {len(data)}")
        return data

    def _opened(self) -> Any:
        if self._handle is None:
            handle = understood(lambda: self._filesystem.open(self._path, "rb", cache_type="none"))
            info = getattr(handle, "details", None) or understood(lambda: self._filesystem.info(self._path))
            version = version_in(info)
            if info["size"] != self._length or (self._version and version != self._version):
                handle.close()
                raise ChangedError(
                    self._changed(
                        f"expected {self._length} bytes, version {self._version or '(any)'}; "
                        f"found {info['size']} bytes, version {version}"
                    )
                )
            self._handle = handle
        return self._handle

    def _call(self, call: Any, *, what: str) -> Any:
        try:
            return call_with_retries(call, what=what)
        except FileNotFoundError as error:
            raise ChangedError(self._changed("expected a file, found none")) from error
        except StoreError:
            raise
        except OSError as error:
            if is_precondition_failed(error):
                raise ChangedError(self._changed("it was replaced while it was read")) from error
            raise

    def _changed(self, how: str) -> str:
        return (
            f"input file {self._url} has changed since the run was planned: {how}; put the old file back, "
            f"or start a new output"
        )

    def _drop(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.close()
