"""Arrow IPC: files (Feather) and streams, also those of a folder that `datasets` has saved.

An IPC file is a stream between two marks, so both are read alike, message by message. The rows keep their types, but
for forms that Parquet does not have: a dictionary's values come out plain, views and run lengths as what they show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as kinds

from mixer.closing import Closable, closed_on_error
from mixer.errors import ChangedError, InputError, SchemaError
from mixer.formats.base import Piece, Position, Reading, RowFormat
from mixer.formats.streams import READ_BYTES, Stream
from mixer.storage.inputs import InputFile

_FILE_MAGIC = b"ARROW1"
_FEATHER_1 = b"FEA1"
_STREAM_BEGIN = 8
"""Where the stream in an IPC file begins."""
_KEPT_METADATA = b"huggingface"


class ArrowFiles(RowFormat):
    """Arrow IPC files and streams of one schema; damage to such a file is an error under every policy."""

    def schema(self, files: Sequence[InputFile]) -> pa.Schema:
        """Return the columns of the first file, which the others must have as well. Only headers are read."""
        first: pa.Schema | None = None
        for file in files:
            with _Messages(file, Position()) as messages:
                found = self._plain_schema(messages.schema, file)
            first = found if first is None else first
            if not found.equals(first):
                raise SchemaError(
                    f"dataset {self._dataset!r}: expected the columns of {files[0].url} in {file.url}, found others: "
                    f"{_difference(first, found)}; give them as two datasets"
                )
        if first is None or not len(first):
            raise SchemaError(f"dataset {self._dataset!r}: expected files with columns, found none")
        return first

    def begin(self, file: InputFile, schema: pa.Schema, at: Position) -> Reading:
        return _Reading(file, schema, at)

    def _plain_schema(self, schema: pa.Schema, file: InputFile) -> pa.Schema:
        twice = sorted(name for name, count in Counter(schema.names).items() if count > 1)
        if twice:
            raise SchemaError(
                f"dataset {self._dataset!r}: {file.url}: expected each column once, found several: {twice}"
            )
        metadata = {key: value for key, value in (schema.metadata or {}).items() if key == _KEPT_METADATA}
        fields = [pa.field(field.name, plain_type(field.type), metadata=field.metadata) for field in schema]
        if (field := _unstorable(fields)) is not None:
            raise SchemaError(
                f"dataset {self._dataset!r}: {file.url}: column {field.name!r} is {field.type}, which Parquet cannot "
                f"hold; write it as another type, or leave it out"
            )
        return pa.schema(fields, metadata or None)


class _Reading(Reading):
    def __init__(self, file: InputFile, schema: pa.Schema, at: Position) -> None:
        self._file, self._schema = file, schema
        self._messages = _Messages(file, at)
        self._batch: pa.Table | None = None
        self._at = at

    def take(self, most_bytes: int) -> Piece | None:
        while self._batch is None or self._at.rows >= self._batch.num_rows:
            if self._batch is not None:
                self._at = Position(self._messages.position, self._at.line)
            batch = self._messages.next()
            if batch is None:
                return None
            self._batch = self._plain(batch)
        rest = self._batch.num_rows - self._at.rows
        rows = max(1, min(rest, most_bytes * self._batch.num_rows // max(1, self._batch.nbytes)))
        table = self._batch.slice(self._at.rows, rows)
        self._at = Position(self._at.offset, self._at.line + rows, self._at.rows + rows)
        return Piece(table, max(1, table.nbytes), self._at)

    def _plain(self, batch: pa.RecordBatch) -> pa.Table:
        where = f"input file {self._file.url}, rows from {self._at.line}"
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid as error:
            raise InputError(f"{where}: the batch is damaged: {error}; restore the file") from error
        try:
            table = pa.Table.from_batches([batch]).select(self._schema.names)
            return table if table.schema.equals(self._schema, check_metadata=True) else table.cast(self._schema)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            # Of a whole batch, Arrow takes no list views and run lengths to plain lists and values.
            raise SchemaError(f"{where}: a column cannot be brought to a type of Parquet: {error}") from error
        except KeyError as error:
            raise ChangedError(f"{where}: a column is missing: {error}; prepare the dataset again") from error

    def close(self) -> None:
        self._messages.close()


class _Messages(Closable):
    """The record batches of a file from a position on, each with the place where its message begins."""

    def __init__(self, file: InputFile, at: Position) -> None:
        self._file = file
        self._stream = Stream(file)
        with closed_on_error(self._stream):
            self._bytes = _Bytes(self._stream)
            self._is_file = self._begin()
            self._reader = self._opened()
            self.schema: pa.Schema = self._reader.schema
            if at.offset > self._stream.position:
                self._go_on(at)

    @property
    def position(self) -> int:
        """Where the next message begins, in decompressed bytes."""
        return self._stream.position

    def next(self) -> pa.RecordBatch | None:
        """Return the next batch, None at the end."""
        while True:
            batch = self._read(self._reader.read_next_batch)
            if batch is None:
                self._check_end()
                return None
            if batch.num_rows:
                return batch

    def close(self) -> None:
        self._stream.close()

    def _begin(self) -> bool:
        head = self._stream.read(_STREAM_BEGIN)
        if head.startswith(_FILE_MAGIC):
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
        if any(_has_dictionary(field.type) for field in self.schema):
            # Later batches may need dictionaries that came earlier.
            while self._stream.position < at.offset and self._read(self._reader.read_next_batch) is not None:
                pass
        else:
            head = self.schema.serialize().to_pybytes()
            self._stream.skip(at.offset - self._stream.position)
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
                f"else, or a file that is cut short: {error}; restore the file"
            ) from error

    def _check_end(self) -> None:
        """Refuse a stream that just ends: it may have been longer."""
        rest = b""
        while piece := self._stream.read(READ_BYTES):
            rest = (rest + piece)[-len(_FILE_MAGIC) :]
        # A reader that has met the mark does not read on; one that has not found the end of the file.
        ends_well = rest.endswith(_FILE_MAGIC) if self._is_file else not self._bytes.is_over
        if not ends_well:
            raise InputError(
                f"input file {self._file.url}: expected the mark that ends Arrow IPC, found none: the file is cut "
                f"short, or its writer was never closed; restore it, or write it again"
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


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the same values in a form that Parquet has.

    >>> plain_type(pa.list_(pa.dictionary(pa.int8(), pa.string_view())))
    ListType(list<element: string>)
    """
    if kinds.is_dictionary(kind) or kinds.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if kinds.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    made = next((make for test, make in _LISTS if test(kind)), None)
    if made is not None:
        return made(pa.field("element", plain_type(kind.value_type)), kind)
    return next((plain for test, plain in _VIEWS if test(kind)), kind)


_VIEWS = ((kinds.is_string_view, pa.string()), (kinds.is_binary_view, pa.binary()))
_LISTS: tuple[tuple[Any, Any], ...] = (
    (lambda kind: kinds.is_list(kind) or kinds.is_list_view(kind), lambda element, _: pa.list_(element)),
    (
        lambda kind: kinds.is_large_list(kind) or kinds.is_large_list_view(kind),
        lambda element, _: pa.large_list(element),
    ),
    (kinds.is_fixed_size_list, lambda element, kind: pa.list_(element, kind.list_size)),
)


def _unstorable(fields: Sequence[pa.Field]) -> pa.Field | None:
    """Return the first of `fields` whose type has no place in Parquet; None if all have one."""
    try:
        pq.ParquetWriter(pa.BufferOutputStream(), pa.schema(fields)).close()
    except pa.ArrowNotImplementedError:
        return fields[0] if len(fields) == 1 else next(field for field in fields if _unstorable([field]) is not None)
    return None


def _has_dictionary(kind: pa.DataType) -> bool:
    if kinds.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(place).type) for place in range(kind.num_fields))


def _difference(first: pa.Schema, other: pa.Schema) -> str:
    for field in first:
        place = other.get_field_index(field.name)
        if place < 0:
            return f"{field.name!r} is missing"
        if other.field(place).type != field.type:
            return f"{field.name!r} is {field.type} in one and {other.field(place).type} in the other"
    new = [name for name in other.names if name not in first.names]
    return f"{new[0]!r} is new" if new else "they stand in another order"
