"""Row groups under decoding: whole, or in pieces with a place kept between reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from mixer.errors import CorruptionError
from mixer.schemas import conform
from mixer.sources.files import OpenFile, open_stream
from mixer.sources.sizes import decoded_size
from mixer.storage.inputs import InputFile

_PROBE_ROWS = 1024
_PROBE_FROM_ROWS = 8192
_MAX_PIECE_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a row group is decoded at once, in bytes of memory."""

    whole_group_bytes: int = 32 * 1024 * 1024
    """Row groups that take more than this are decoded in pieces."""
    piece_bytes: int = 8 * 1024 * 1024
    """Size of such a piece, about."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group of one file, and what is wanted of it."""

    file: InputFile
    footer: pq.FileMetaData
    ordinal: int
    columns: tuple[str, ...]
    """Top-level columns to decode, as the file names them."""

    @property
    def rows(self) -> int:
        """How many rows it has."""
        rows: int = self.footer.row_group(self.ordinal).num_rows
        return rows

    def decoded_bytes(self, schema: pa.Schema) -> int:
        """Return about how much memory its wanted columns take when decoded into `schema`.

        Columns of long texts that repeat a lot cannot be told from the footer: a few rows of these are decoded.
        """
        size = decoded_size(self.footer.row_group(self.ordinal), self.columns)
        if not size.repeated or self.rows < _PROBE_FROM_ROWS:
            return size.bytes
        opened = self.opened_as_stream(len(size.repeated))
        try:
            batch = next(self.batches(opened, _PROBE_ROWS, size.repeated))
        finally:
            opened.close()
        probe = conform(pa.Table.from_batches([batch]), pa.schema([schema.field(name) for name in size.repeated]))
        repeated_bytes: int = probe.nbytes * self.rows // max(1, probe.num_rows)
        return size.bytes + repeated_bytes

    def piece_rows(self, decoded_bytes: int, piece_bytes: int) -> int:
        """Return how many rows take about `piece_bytes` when all of them take `decoded_bytes`."""
        return max(1, min(_MAX_PIECE_ROWS, piece_bytes * self.rows // max(1, decoded_bytes)))

    def opened_as_stream(self, columns: int) -> OpenFile:
        """Return its file opened for decoding so many columns in pieces."""
        return open_stream(self.file, self.footer, columns)

    def batches(self, opened: OpenFile, rows: int, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Yield its rows in batches of at most `rows`."""
        batches: Iterator[pa.RecordBatch] = opened.parquet.iter_batches(
            batch_size=rows, row_groups=[self.ordinal], columns=list(columns), use_threads=False
        )
        return batches


class Rows(Protocol):
    """The decoded rows of one row group, counted from its first one."""

    def read(self, start: int, stop: int) -> list[pa.Table]:
        """Return the rows ``[start, stop)`` in one or more tables."""
        ...

    def close(self) -> None:
        """Give files and memory back."""
        ...


class WholeGroup:
    """A row group that was decoded at once."""

    def __init__(self, group: RowGroup, schema: pa.Schema, opened: OpenFile) -> None:
        """Decode `group` from `opened` into `schema`."""
        table = opened.parquet.read_row_group(group.ordinal, columns=list(group.columns), use_threads=False)
        if table.num_rows != group.rows:
            raise CorruptionError(f"expected {group.rows} rows, decoded {table.num_rows}")
        self._table = conform(table, schema)

    def read(self, start: int, stop: int) -> list[pa.Table]:
        """Return the rows ``[start, stop)``, sharing memory with the whole group."""
        return [self._table.slice(start, stop - start)]

    def close(self) -> None:
        """Do nothing: memory goes with the last table that shares it."""


class StreamedGroup:
    """A row group that is decoded in pieces. Reading on is free of repetition; reading back begins anew."""

    def __init__(self, group: RowGroup, schema: pa.Schema, *, piece_rows: int, began: Callable[[], None]) -> None:
        """Decode `group` into `schema`, `piece_rows` rows at a time; `began` is called at each beginning."""
        self._group, self._schema, self._piece_rows, self._began = group, schema, piece_rows, began
        self._opened: OpenFile | None = None
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._piece: pa.Table = schema.empty_table()
        # Rows [_first, _first + piece's rows) are at hand.
        self._first = 0

    def read(self, start: int, stop: int) -> list[pa.Table]:
        """Return the rows ``[start, stop)``; pieces before `start` are decoded and dropped."""
        if self._opened is None or start < self._first:
            self._begin()
        found = []
        position = start
        while position < stop:
            last = self._first + self._piece.num_rows
            if position >= last:
                self._advance(last)
                continue
            end = min(stop, last)
            found.append(self._piece.slice(position - self._first, end - position))
            position = end
        return found

    def close(self) -> None:
        """Close the file; a later read begins anew."""
        opened, self._opened = self._opened, None
        self._batches = iter(())
        self._piece = self._schema.empty_table()
        if opened is not None:
            opened.close()

    def _begin(self) -> None:
        self.close()
        self._first = 0
        self._opened = self._group.opened_as_stream(len(self._group.columns))
        self._batches = self._group.batches(self._opened, self._piece_rows, self._group.columns)
        self._began()

    def _advance(self, first: int) -> None:
        # Let go before the next one is decoded: two pieces at once are not needed.
        self._piece = self._schema.empty_table()
        batch = next(self._batches, None)
        if batch is None:
            raise CorruptionError(f"expected {self._group.rows} rows, decoded {first}")
        self._piece, self._first = conform(pa.Table.from_batches([batch]), self._schema), first
