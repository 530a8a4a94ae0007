"""The bytes of a file, decompressed as its name says, forward only and checked to their end.

A compressed file that is cut short, or holds anything but whole members, is damaged: what could still be read of it is
not to be trusted, so that is an error under every policy. Several members one after the other are one file, as
`cat a.gz b.gz` makes them.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from typing import Any, Protocol

import pyarrow as pa

from mixer.closing import Closable, closed_on_error
from mixer.errors import ChangedError, InputError
from mixer.formats.kinds import compression_of
from mixer.storage.inputs import InputFile, is_remote, open_input

READ_BYTES = 1 << 20
"""How much is asked of a file, or decompressed, at once."""
REMOTE_BYTES = 4 << 20
"""How much is asked of a remote file at once."""
_XZ_MEMORY_BYTES = 1 << 30
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz"}
_SKIPPABLE_ZSTD = tuple(bytes([0x50 + n]) + b"\x2a\x4d\x18" for n in range(16))
_OTHER_MAGIC = {b"PAR1": "Parquet", b"PK\x03\x04": "a zip archive", b"\x89HDF": "HDF5"}
_LONGEST_MAGIC = 6
_WINDOW_TOO_LARGE = "requires too much memory"
"""What libzstd says of a frame whose window is larger than it reads unasked, 2**27 bytes; its error has no other form
in pyarrow."""


class ByteSource(Protocol):
    """Decompressed bytes, forward only."""

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; none at the end."""
        ...


class Stream(Closable):
    """The decompressed bytes of an input file from an offset on. Used by one thread.

    Args:
        file: What is read.
        offset: Where to begin, in decompressed bytes: reached by a seek if the file is not compressed.

    Raises:
        InputError: The file is not compressed as its name says, cut short, or damaged; also from reads.
        ChangedError: The file is not the one that `file` tells of; also from reads.
    """

    def __init__(self, file: InputFile, offset: int = 0) -> None:
        self.file = file
        self.position = 0
        """Decompressed bytes before the next one."""
        self._handle = open_input(file)
        if is_remote(file.url):
            # Each read of it is a request; readers of tars and of Arrow ask for some bytes at a time.
            self._handle = io.BufferedReader(self._handle, REMOTE_BYTES)
        with closed_on_error(self._handle):
            self._source = self._opened()
            self.skip(offset)

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes; fewer only at the end."""
        pieces = []
        if self.compression is None:
            size = min(size, self.file.bytes - self.position)
        while size > 0:
            try:
                piece = self._source.read(min(size, READ_BYTES))
            except (zlib.error, lzma.LZMAError, EOFError, OSError, ValueError) as error:
                if isinstance(error, InputError) or self.compression is None:
                    raise
                if self.compression == "zstd" and _WINDOW_TOO_LARGE in str(error):
                    raise InputError(
                        f"input file {self.file.url}: expected zstd with a window of at most 128 MiB, found a larger "
                        f"one, which takes as much memory to read; compress it again without `--long` beyond 27: "
                        f"`zstd -dc --long=31 {self.file.url.rpartition('/')[2]} | zstd -o NEW.zst`"
                    ) from error
                raise InputError(
                    f"input file {self.file.url}: damaged or cut short after {self.position} decompressed bytes "
                    f"({self.compression}: {error}); what is before that is not trusted either: restore the file"
                ) from error
            if not piece and self.compression is None:
                raise ChangedError(
                    f"input file {self.file.url}: expected {self.file.bytes} bytes, found {self.position}; it was cut "
                    f"while it was read: put the old file back"
                )
            if not piece:
                break
            pieces.append(piece)
            self.position += len(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def skip(self, size: int) -> None:
        """Go on by `size` bytes, or to the end."""
        if self.compression is None:
            self.position = min(self.position + size, self.file.bytes)
            self._handle.seek(self.position)
            return
        while size > 0 and (piece := self.read(min(size, READ_BYTES))):
            size -= len(piece)

    def _opened(self) -> ByteSource:
        self.compression = compression_of(self.file.url)
        head = bytes(self._handle.read(_LONGEST_MAGIC))
        self._handle.seek(0)
        found = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)
        if head.startswith(_SKIPPABLE_ZSTD):
            found = "zstd"
        other = next((name for magic, name in _OTHER_MAGIC.items() if head.startswith(magic)), None)
        if found != self.compression:
            raise InputError(
                f"input file {self.file.url}: expected {self.compression or 'no compression'} by its name, found "
                f"{found or other or ('nothing' if not head else 'other data')}; rename it, or restore it"
            )
        if other is not None:
            raise InputError(
                f"input file {self.file.url}: expected a file as its format says, found {other}; set `format` "
                f"to what it is, or restore it"
            )
        if self.compression is None:
            return self._handle  # type: ignore[no-any-return]  # a handle of pyarrow or of ours, neither typed
        if self.compression == "zstd":
            return pa.CompressedInputStream(self._handle, "zstd")  # type: ignore[no-any-return]  # as above
        return _Members(self._handle, self.compression)

    def close(self) -> None:
        self._handle.close()


class _Zlib:
    """A member of a gzip file, with the face that `bz2` and `lzma` give theirs."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._member.eof

    @property
    def needs_input(self) -> bool:
        return not self._member.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._member.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._member.decompress(self._member.unconsumed_tail + data, max_length)


def _decompressor(kind: str) -> Any:
    if kind == "gzip":
        return _Zlib()
    if kind == "bz2":
        return bz2.BZ2Decompressor()
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)


class _Members:
    """Members of gzip, bz2 or xz, one after the other, each to its end."""

    def __init__(self, handle: Any, kind: str) -> None:
        self._handle, self._kind = handle, kind
        self._member = _decompressor(kind)
        self._waiting = b""

    def read(self, size: int) -> bytes:
        while True:
            if self._member.eof:
                if not self._next_member():
                    return b""
                continue
            data, self._waiting = self._waiting, b""
            if not data and self._member.needs_input:
                data = bytes(self._handle.read(READ_BYTES))
                if not data:
                    raise EOFError("the last member has no end")
            if piece := self._member.decompress(data, size):
                return bytes(piece)

    def _next_member(self) -> bool:
        """Begin the next member, if there is one; zeros between members are padding to gzip and xz alike."""
        rest = self._member.unused_data or self._waiting
        self._waiting = b""
        while True:
            if self._kind != "bz2":
                rest = rest.lstrip(b"\0")
            if rest:
                self._member = _decompressor(self._kind)
                self._waiting = rest
                return True
            rest = bytes(self._handle.read(READ_BYTES))
            if not rest:
                return False
