"""The record batches of an Arrow IPC file or stream, message by message, and whether its end is the end."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types as kinds

from mixer.closing import Closable, closed_on_error
from mixer.errors import ChangedError, InputError
from mixer.formats.arrow_footer import MAGIC, MOST_TAIL_BYTES, FooterError, batch_offsets
from mixer.formats.arrow_plain import parts, undecodable
from mixer.formats.base import Position
from mixer.formats.streams import Stream
from mixer.storage.inputs import InputFile

_FEATHER_1 = b"FEA1"
_STREAM_BEGIN = 8
"""Where the stream in an IPC file begins."""


class Messages(Closable):
    """The record batches of a file from a position on, each with the place where its message begins.

    Args:
        file: An IPC file or stream, compressed as a whole or not.
        at: Where to begin: the beginning of the file, or of a message.

    Raises:
        InputError: It is no Arrow IPC, cut short or damaged; also from `next`.
        ChangedError: It is not the file that `file` tells of; also from `next`.
    """

    def __init__(self, file: InputFile, at: Position) -> None:
        self._file = file
        self._stream = Stream(file)
        with closed_on_error(self._stream):
            self._bytes = _Bytes(self._stream)
            self._batches = 0
            """How many were read, from `_counted_from` on."""
            self._is_file = self._begin()
            self._reader = self._opened()
            self.schema: pa.Schema = self._reader.schema
            self._check_names()
            self._counted_from = 0
            """Where the messages begin that were read; batches before it were passed over."""
            if at.offset > self._stream.position:
                self._go_on(at)

    @property
    def position(self) -> int:
        """Where the next message begins, in decompressed bytes."""
        return self._stream.position

    def next(self) -> pa.RecordBatch | None:
        """Return the next batch that has rows, None at the end."""
        while True:
            batch = self._next()
            if batch is None:
                self._check_end()
                return None
            if batch.num_rows:
                return batch

    def close(self) -> None:
        self._stream.close()

    def _next(self) -> pa.RecordBatch | None:
        batch = self._read(self._reader.read_next_batch)
        self._batches += batch is not None
        return batch

    def _begin(self) -> bool:
        head = self._stream.read(_STREAM_BEGIN)
        if head.startswith(MAGIC):
            return True
        if head.startswith(_FEATHER_1):
            raise InputError(
                f"input file {self._file.url}: expected Arrow IPC, found Feather version 1; write it again with "
                f"`pyarrow.feather.write_feather`"
            )
        self._bytes.again(head)
        return False

    def _opened(self) -> Any:
        return self._read(lambda: pa.ipc.open_stream(pa.PythonFile(self._bytes, "r")))

    def _go_on(self, at: Position) -> None:
        if any(kinds.is_dictionary(part) for field in self.schema for part in parts(field.type)):
            # Later batches may need dictionaries that came earlier.
            while self._stream.position < at.offset and self._next() is not None:
                pass
        else:
            head = self.schema.serialize().to_pybytes()
            self._stream.skip(at.offset - self._stream.position)
            self._counted_from = at.offset
            self._bytes.again(head)
            self._reader = self._opened()
        if self._stream.position != at.offset:
            raise InputError(
                f"input file {self._file.url}: expected a message at byte {at.offset}, found none; remove the prepared "
                f"copy and prepare again"
            )

    def _read(self, call: Any) -> Any:
        try:
            return call()
        except StopIteration:
            return None
        except (InputError, ChangedError):
            raise
        except (pa.ArrowException, OSError, EOFError) as error:
            raise InputError(
                f"input file {self._file.url}, after byte {self._stream.position}: expected Arrow IPC, found something "
                f"else, or a file that is cut short: {error}; restore the file{self._advice()}"
            ) from error

    def _advice(self) -> str:
        is_front = self._is_file and not self._batches
        return "; if Polars wrote it, write it again with `write_ipc_stream`" if is_front else ""

    def _check_names(self) -> None:
        if (what := undecodable(self.schema)) is not None:
            raise InputError(
                f"input file {self._file.url}: expected names in UTF-8, found {what}; restore the file, or write it "
                f"again with other names"
            )

    def _check_end(self) -> None:
        """Refuse a stream that just ends, as it may have been longer, and rows that stand behind the end mark."""
        end = self._stream.position
        tail = self._stream.read(MOST_TAIL_BYTES if self._is_file else 1)
        # A reader that has met the mark does not read on; one that has not found the end of the file.
        if self._bytes.is_over or (self._is_file and len(tail) < MOST_TAIL_BYTES and not tail.endswith(MAGIC)):
            raise InputError(
                f"input file {self._file.url}: expected the mark that ends Arrow IPC, found none: the file is cut "
                f"short, or its writer was never closed; restore it, or write it again"
            )
        if self._is_file:
            self._check_footer(tail, end)
        elif tail:
            raise InputError(
                f"input file {self._file.url}, byte {end}: expected nothing after the mark that ends an Arrow IPC "
                f"stream, found more; if several streams were put one after the other, split the file there, each "
                f"stream a file of its own; else restore it"
            )

    def _check_footer(self, tail: bytes, end: int) -> None:
        if len(tail) >= MOST_TAIL_BYTES:
            raise self._not_the_end(end, "found far more")
        try:
            offsets = batch_offsets(tail)
        except FooterError as error:
            raise self._not_the_end(end, f"found something else: {error}") from error
        listed = sum(offset >= self._counted_from for offset in offsets)
        if listed != self._batches:
            counted = f"{self._batches} record batches before it from byte {self._counted_from} on"
            raise self._not_the_end(end, f"found {counted}, and a footer that lists {listed} there")

    def _not_the_end(self, end: int, found: str) -> InputError:
        return InputError(
            f"input file {self._file.url}, byte {end}: expected the footer of an Arrow IPC file, and nothing else, "
            f"after the mark that ends its batches, {found}; if several files were put one after the other, split "
            f"this one into them; else it is damaged: restore it"
        )


class _Bytes:
    """A stream as pyarrow reads it, with bytes put before it."""

    closed = False

    def __init__(self, stream: Stream) -> None:
        self._stream, self._before = stream, b""
        self.is_over = False
        """Whether there was less than was asked for."""

    def again(self, data: bytes) -> None:
        """Let `data` be read next."""
        self._before = data + self._before

    def read(self, size: int) -> bytes:
        data, self._before = self._before[:size], self._before[size:]
        if len(data) < size:
            data += self._stream.read(size - len(data))
        self.is_over |= len(data) < size
        return data

    def close(self) -> None:
        """The stream has an owner."""
