"""Where row groups and parts end: decided by bytes alone, and by nothing that came before the last part."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from mixer.errors import CorruptionError
from mixer.formats.base import Piece, Position
from mixer.preparation.base import BadLine, Cursor, Part


@dataclass(slots=True)
class Cutter:
    """Pieces on their way into a part, and the counts since the first file began."""

    schema: pa.Schema
    part_bytes: int
    row_group_bytes: int
    file: int = 0
    position: Position = field(default_factory=Position)
    rows: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    _groups: list[pa.Table] = field(default_factory=list)
    _tables: list[pa.Table] = field(default_factory=list)
    _group_bytes: int = 0
    _closed_bytes: int = 0
    _bad: list[BadLine] = field(default_factory=list)
    _has_news: bool = False

    @property
    def wanted_bytes(self) -> int:
        """How much the row group still lacks."""
        return max(1, self.row_group_bytes - self._group_bytes)

    @property
    def is_full(self) -> bool:
        """Whether a part is ready; never inside a row group."""
        return self._closed_bytes >= self.part_bytes and not self._group_bytes

    @property
    def has_news(self) -> bool:
        """Whether something was added since the last part: rows, bad lines or counts."""
        return self._has_news

    def add(self, piece: Piece) -> None:
        """Add the next piece of the file."""
        self.position = piece.after
        self.rows += piece.table.num_rows
        self.counts.update(piece.counts)
        self._bad += piece.bad
        self._group_bytes += piece.bytes
        self._has_news |= bool(piece.table.num_rows or piece.counts or piece.bad)
        if piece.table.num_rows:
            self._tables.append(piece.table)
        if self._group_bytes >= self.row_group_bytes:
            self._close_group()

    def next_file(self) -> None:
        """Go on to the next file."""
        self.file += 1
        self.position = Position()

    def part(self) -> Part:
        """Return what was added since the last part."""
        self._close_group()
        part = Part(tuple(self._groups), self.cursor(), tuple(self._bad))
        self._groups, self._bad = [], []
        self._closed_bytes = 0
        self._has_news = False
        return part

    def cursor(self) -> Cursor:
        """Return where the next part begins, and what was counted up to there."""
        return {
            "file": self.file,
            "offset": self.position.offset,
            "line": self.position.line,
            "taken": self.position.rows,
            "rows": self.rows,
            "counts": dict(sorted(self.counts.items())),
        }

    def _close_group(self) -> None:
        self._closed_bytes += self._group_bytes
        self._group_bytes = 0
        if self._tables:
            group = pa.concat_tables(self._tables).combine_chunks()
            self._groups.append(pa.Table.from_batches(group.to_batches(), self.schema))
            self._tables = []


def cutter_after(after: Cursor | None, schema: pa.Schema, part_bytes: int, row_group_bytes: int) -> Cutter:
    """Return a cutter that goes on from the cursor of a part, or from the beginning.

    Raises:
        CorruptionError: It is no cursor.
    """
    cutter = Cutter(schema, part_bytes, row_group_bytes)
    if after is not None:
        numbers, counts = read_cursor(after)
        cutter.file, cutter.rows, cutter.counts = numbers["file"], numbers["rows"], Counter(counts)
        cutter.position = Position(numbers["offset"], numbers["line"], numbers["taken"])
    return cutter


def read_cursor(cursor: Cursor) -> tuple[dict[str, int], dict[str, int]]:
    """Return the numbers of a cursor, and its counts by kind.

    Raises:
        CorruptionError: It is no cursor.
    """
    found: dict[str, Any] = dict(cursor)
    counts = found.pop("counts", None)
    names = {"file", "offset", "line", "taken", "rows"}
    if (
        not isinstance(counts, dict)
        or found.keys() != names
        or not all(map(_is_count, (*found.values(), *counts.values())))
    ):
        raise CorruptionError(
            f"expected the cursor of a part of rows, found {dict(cursor)!r}; remove the prepared copy and prepare again"
        )
    return found, counts


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
