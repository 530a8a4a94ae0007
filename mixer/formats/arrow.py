"""Arrow IPC: files (Feather) and streams, also those of a folder that `datasets` has saved.

An IPC file is a stream between two marks, so both are read alike, message by message. The rows keep their types, but
for forms that Parquet does not have: a dictionary's values come out plain, views and run lengths as what they show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from mixer.errors import ChangedError, InputError, SchemaError
from mixer.formats.arrow_messages import Messages
from mixer.formats.arrow_plain import plain_type, plain_values, unstorable
from mixer.formats.base import Piece, Position, Reading, RowFormat
from mixer.storage.inputs import InputFile

_KEPT_METADATA = b"huggingface"
_TYPE_METADATA = b"ARROW:extension:"
_MOST_SHOWN = 200


class ArrowFiles(RowFormat):
    """Arrow IPC files and streams of one schema; damage to such a file is an error under every policy."""

    def schema(self, files: Sequence[InputFile]) -> pa.Schema:
        """Return the columns of the first file, which the others must have as well. Only headers are read."""
        first: pa.Schema | None = None
        for file in files:
            with Messages(file, Position()) as messages:
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
        fields = [pa.field(field.name, plain_type(field.type), metadata=_plain_metadata(field)) for field in schema]
        if (refused := unstorable(fields)) is not None:
            field, why = refused
            raise SchemaError(
                f"dataset {self._dataset!r}: {file.url}: column {field.name!r} is {_shown(field.type)}, which Parquet "
                f"cannot hold ({why}); write the file with another type, or without that column"
            )
        return pa.schema(fields, metadata or None)


class _Reading(Reading):
    def __init__(self, file: InputFile, schema: pa.Schema, at: Position) -> None:
        self._file, self._schema = file, schema
        self._messages = Messages(file, at)
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
        found = set(batch.schema.names)
        missing = next((name for name in self._schema.names if name not in found), None)
        if missing is not None:
            raise ChangedError(f"{where}: a column is missing: {missing!r}; prepare the dataset again")
        return pa.Table.from_arrays(
            [_plain_column(batch.column(field.name), field, where) for field in self._schema], schema=self._schema
        )

    def close(self) -> None:
        self._messages.close()


def _plain_column(array: pa.Array, field: pa.Field, where: str) -> pa.Array:
    try:
        return plain_values(array, field.type)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        raise SchemaError(
            f"{where}: column {field.name!r} is {_shown(array.type)} and cannot be brought to {_shown(field.type)}, a "
            f"type of Parquet: {error}; write the file with another type, or with values that have a place in this one"
        ) from error


def _plain_metadata(field: pa.Field) -> dict[bytes, bytes] | None:
    """Return what a field says of itself but for its type's name, which it says only where that type is not known."""
    said = {key: value for key, value in (field.metadata or {}).items() if not key.startswith(_TYPE_METADATA)}
    return said or None


def _shown(kind: pa.DataType) -> str:
    """Return a type for people, cut where it is very long."""
    text = str(kind)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _difference(first: pa.Schema, other: pa.Schema) -> str:
    for field in first:
        place = other.get_field_index(field.name)
        if place < 0:
            return f"{field.name!r} is missing"
        if other.field(place).type != field.type:
            return f"{field.name!r} is {field.type} in one and {other.field(place).type} in the other"
    new = [name for name in other.names if name not in first.names]
    return f"{new[0]!r} is new" if new else "they stand in another order"
