"""How much memory a row group takes once it is decoded, told from its footer as far as that goes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow.parquet as pq

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
_OFFSET_BYTES = 4
_REPEATED_BELOW_BYTES = 16


@dataclass(frozen=True, slots=True)
class DecodedSize:
    """An estimate for some columns of one row group."""

    bytes: int
    """Of all columns whose size the footer tells, and the least that the others take."""
    repeated: tuple[str, ...]
    """Top-level columns of texts or bytes that repeat a lot: one stored byte may stand for many decoded ones."""


def decoded_size(group: pq.RowGroupMetaData, columns: Collection[str]) -> DecodedSize:
    """Return what the top-level `columns` of `group` take when decoded."""
    wanted = frozenset(columns)
    total = 0
    repeated: dict[str, None] = {}
    for index in range(group.num_columns):
        chunk = group.column(index)
        top = top_level(chunk.path_in_schema, wanted)
        if top is None:
            continue
        stored = chunk.total_uncompressed_size
        if width := _WIDTHS.get(chunk.physical_type):
            total += max(stored, chunk.num_values * width)
        else:
            total += stored + chunk.num_values * _OFFSET_BYTES
            if chunk.has_dictionary_page and stored < chunk.num_values * _REPEATED_BELOW_BYTES:
                repeated[top] = None
    return DecodedSize(total, tuple(repeated))


def top_level(path: str, columns: Collection[str]) -> str | None:
    """Return the one of `columns` that the leaf at `path` belongs to, None if to none. A name may hold dots.

    >>> top_level("a.list.element", {"a", "b"}), top_level("a.b", {"a.b"}), top_level("ab", {"a"})
    ('a', 'a.b', None)
    """
    parts = path.split(".")
    names = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
    return next((name for name in names if name in columns), None)
