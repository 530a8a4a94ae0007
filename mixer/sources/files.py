"""Open Parquet files, a bounded number of them for any number of datasets and files."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from mixer.closing import closed_on_error
from mixer.storage.inputs import InputFile, is_remote, open_input

_STREAM_BUFFER_BYTES = 256 * 1024
_REMOTE_STREAM_BUFFERS_BYTES = 32 * 1024 * 1024
_REMOTE_STREAM_BUFFER_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class OpenFile:
    """A Parquet file and the handle it reads from."""

    parquet: pq.ParquetFile
    handle: Any

    def close(self) -> None:
        """Close both."""
        self.parquet.close()
        self.handle.close()


def open_whole(file: InputFile, footer: pq.FileMetaData) -> OpenFile:
    """Return `file` opened for decoding whole row groups; its columns' bytes are fetched together where that pays."""
    return _open(file, footer, pre_buffer=is_remote(file.url), buffer_bytes=0)


def open_stream(file: InputFile, footer: pq.FileMetaData, columns: int) -> OpenFile:
    """Return `file` opened for decoding `columns` columns of large row groups in pieces.

    Without a buffer's size Arrow would hold all of a column chunk's bytes.
    """
    buffer_bytes = _STREAM_BUFFER_BYTES
    if is_remote(file.url):
        # A request for each refill: as large as memory allows for so many columns.
        share = _REMOTE_STREAM_BUFFERS_BYTES // max(1, columns)
        buffer_bytes = max(_STREAM_BUFFER_BYTES, min(_REMOTE_STREAM_BUFFER_BYTES, share))
    return _open(file, footer, pre_buffer=False, buffer_bytes=buffer_bytes)


def _open(file: InputFile, footer: pq.FileMetaData, *, pre_buffer: bool, buffer_bytes: int) -> OpenFile:
    handle = open_input(file)
    with closed_on_error(handle):
        parquet = pq.ParquetFile(
            handle,
            metadata=footer,
            memory_map=False,
            pre_buffer=pre_buffer,
            buffer_size=buffer_bytes,
            page_checksum_verification=True,
        )
    return OpenFile(parquet, handle)


class OpenFiles:
    """The most recently used open files, for any number of sources in any number of threads."""

    def __init__(self, limit: int = 32) -> None:
        """Keep at most `limit` files open that nobody is using."""
        self._limit = limit
        self._idle: OrderedDict[tuple[int, InputFile], OpenFile] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def lend(self, owner: object, file: InputFile, footer: pq.FileMetaData) -> Iterator[OpenFile]:
        """Lend `file`, opened for whole row groups, to `owner`; after an error it is not kept."""
        key = (id(owner), file)
        with self._lock:
            opened = self._idle.pop(key, None)
        if opened is None:
            opened = open_whole(file, footer)
        with closed_on_error(opened):
            yield opened
        with self._lock:
            self._idle[key] = opened
            surplus = [self._idle.popitem(last=False)[1] for _ in range(len(self._idle) - self._limit)]
        for old in surplus:
            old.close()

    def forget(self, owner: object) -> None:
        """Close the files that were lent to `owner`."""
        with self._lock:
            keys = [key for key in self._idle if key[0] == id(owner)]
            files = [self._idle.pop(key) for key in keys]
        for file in files:
            file.close()
