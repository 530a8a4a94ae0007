"""Row groups under decoding: whole, or in pieces with a place kept between reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from mixer.errors import CorruptionError
from mixer.schemas import View, conform
from mixer.sources.files import OpenFile, open_stream
from mixer.storage.inputs import InputFile

_FIRST_PIECE_ROWS = 4096
_MAX_PIECE_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a row group is decoded at once, in bytes of memory."""

    whole_group_bytes: int = 16 * 1024 * 1024
    """Row groups that take more than this are decoded in pieces."""
    piece_bytes: int = 8 * 1024 * 1024
    """Size of such a piece, about."""

    def piece_rows(self, rows: int, stored_bytes: int, row_bytes: float | None) -> int | None:
        """Return how many rows of a row group to decode at once, or None for all of them.

        A footer tells how many bytes are stored, but one stored byte of a text that repeats may stand for many
        decoded ones. So as long as no row was seen, pieces have few rows.

        Args:
            rows: Rows of the row group.
            stored_bytes: What they take in the file before compression.
            row_bytes: What a decoded row takes, if that is known.

        >>> Limits(1000, 100).piece_rows(50, 5000, 10.0), Limits(1000, 100).piece_rows(200, 5000, 10.0)
        (None, 10)
        >>> Limits().piece_rows(10_000_000, 2_000_000, None)
        4096
        """
        known = row_bytes is not None
        expected = row_bytes if row_bytes is not None else stored_bytes / max(1, rows)
        if expected * rows <= self.whole_group_bytes and (known or rows <= _FIRST_PIECE_ROWS):
            return None
        most = _MAX_PIECE_ROWS if known else _FIRST_PIECE_ROWS
        return max(1, min(most, int(self.piece_bytes / max(expected, 1 / 8))))


def fixed_row_bytes(schema: pa.Schema) -> float | None:
    """Return what each row of `schema` takes in memory; None if that differs from row to row.

    >>> fixed_row_bytes(pa.schema({"id": pa.int64(), "x": pa.float32()}))
    12.0
    >>> fixed_row_bytes(pa.schema({"text": pa.string()})) is None
    True
    """
    try:
        return float(sum(field.type.bit_width for field in schema)) / 8
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group of one file, and what is wanted of it."""

    file: InputFile
    footer: pq.FileMetaData
    ordinal: int
    columns: tuple[str, ...]
    """Top-level columns to decode, as the file names them."""
    view: View = View()  # noqa: RUF009 - a frozen value
    """What becomes of them."""

    @property
    def rows(self) -> int:
        """How many rows it has."""
        rows: int = self.footer.row_group(self.ordinal).num_rows
        return rows

    @property
    def stored_bytes(self) -> int:
        """What all its columns take in the file before compression."""
        # Not column by column: to look at one in a damaged footer ends the process.
        stored: int = self.footer.row_group(self.ordinal).total_byte_size
        return stored


def decodes(group: RowGroup, column: str) -> bool:
    """Return whether one column of `group` can be decoded; little of it is in memory at once."""
    opened = open_stream(group.file, group.footer, 1)
    try:
        for _ in opened.parquet.iter_batches(
            batch_size=_FIRST_PIECE_ROWS, row_groups=[group.ordinal], columns=[column], use_threads=False
        ):
            pass
    except (OSError, pa.ArrowException):
        return False
    finally:
        opened.close()
    return True


OnPiece = Callable[[int, int, int], None]
"""Hears of each decoded piece: its first row, its rows, and the bytes of memory that it took at the most."""


def _brought(table: pa.Table, schema: pa.Schema, group: RowGroup, first: int, on_piece: OnPiece) -> pa.Table:
    """Return decoded rows of `group` in `schema`, after `on_piece` has heard of them."""
    conformed = conform(table, schema, group.view, first_row=first)
    on_piece(first, table.num_rows, max(table.nbytes, conformed.nbytes) if group.view.casts else conformed.nbytes)
    return conformed


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

    def __init__(self, group: RowGroup, schema: pa.Schema, opened: OpenFile, on_piece: OnPiece) -> None:
        """Decode `group` from `opened` into `schema`; `on_piece` hears of the only piece."""
        table = opened.parquet.read_row_group(group.ordinal, columns=list(group.columns), use_threads=False)
        if table.num_rows != group.rows:
            raise CorruptionError(f"expected {group.rows} rows, decoded {table.num_rows}")
        self._table = _brought(table, schema, group, 0, on_piece)

    def read(self, start: int, stop: int) -> list[pa.Table]:
        """Return the rows ``[start, stop)``, sharing memory with the whole group."""
        return [self._table.slice(start, stop - start)]

    def close(self) -> None:
        """Do nothing: memory goes with the last table that shares it."""


class StreamedGroup:
    """A row group that is decoded in pieces. Reading on is free of repetition; reading back begins anew."""

    def __init__(self, group: RowGroup, schema: pa.Schema, piece_rows: int, on_piece: OnPiece) -> None:
        """Decode `group` into `schema`, `piece_rows` rows at a time; `on_piece` hears of each with its first row."""
        self._group, self._schema, self._piece_rows, self._on_piece = group, schema, piece_rows, on_piece
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
        self._opened = open_stream(self._group.file, self._group.footer, len(self._group.columns))
        self._batches = self._opened.parquet.iter_batches(
            batch_size=self._piece_rows,
            row_groups=[self._group.ordinal],
            columns=list(self._group.columns),
            use_threads=False,
        )

    def _advance(self, first: int) -> None:
        # Let go before the next one is decoded: two pieces at once are not needed.
        self._piece = self._schema.empty_table()
        batch = next(self._batches, None)
        if batch is None:
            raise CorruptionError(f"expected {self._group.rows} rows, decoded {first}")
        table = pa.Table.from_batches([batch])
        self._piece, self._first = _brought(table, self._schema, self._group, first, self._on_piece), first
