"""Where row groups and parts of a prepared copy end: by the bytes of the rows, whatever pieces they come in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from mixer.preparation.base import PART_BYTES, ROW_GROUP_BYTES

Int64s = npt.NDArray[np.int64]

_LENGTH_BYTES = 16
"""What the length of a text or list, and its place, are taken for."""


@dataclass(frozen=True, slots=True)
class Cuts:
    """How large row groups and parts become: each ends with the row that fills it."""

    row_group_bytes: int = ROW_GROUP_BYTES
    row_group_rows: int = 65_536
    part_bytes: int = PART_BYTES

    def to_json(self) -> dict[str, int]:
        """Return the sizes as plain values."""
        return {
            "row_group_bytes": self.row_group_bytes,
            "row_group_rows": self.row_group_rows,
            "part_bytes": self.part_bytes,
        }


def row_bytes(table: pa.Table) -> Int64s:
    """Return about what each row takes in memory, shape ``(rows,)``; equal rows take equally much, in any table.

    >>> row_bytes(pa.table({"id": pa.array([1, None], pa.int32()), "text": ["abc", None]})).tolist()
    [23, 20]
    """
    sizes = np.zeros(table.num_rows, dtype=np.int64)
    for column in table.columns:
        start = 0
        for chunk in column.chunks:
            sizes[start : start + len(chunk)] += value_bytes(chunk)
            start += len(chunk)
    return sizes


def value_bytes(array: pa.Array) -> Int64s:
    """Return about what each value of `array` takes in memory, by nothing but the value, shape ``(values,)``.

    >>> value_bytes(pa.array([[1, 2], [], None], pa.list_(pa.int8()))).tolist()
    [18, 16, 16]
    """
    kind = array.type
    if kinds.is_struct(kind):
        # Flattened, a field is null where the struct is: what lies below a null is not part of the value.
        return sum((value_bytes(field) for field in array.flatten()), np.zeros(len(array), dtype=np.int64))
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        lengths = _filled(pc.list_value_length(array))
        ends = np.cumsum(lengths)
        sums = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(value_bytes(array.flatten()))])
        sizes: Int64s = sums[ends] - sums[ends - lengths] + _LENGTH_BYTES
        return sizes
    if _has_length(kind):
        return _filled(pc.binary_length(array)) + _LENGTH_BYTES
    return np.full(len(array), max(1, kind.bit_width // 8), dtype=np.int64)


def _has_length(kind: pa.DataType) -> bool:
    tests = (kinds.is_string, kinds.is_large_string, kinds.is_binary, kinds.is_large_binary)
    return any(test(kind) for test in tests)


def _filled(lengths: pa.Array) -> Int64s:
    filled: Int64s = lengths.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return filled


def cut(pieces: Iterable[pa.Table], cuts: Cuts) -> Iterator[list[pa.Table]]:
    """Yield the row groups of each part; a part's first row may be the first of `pieces` again.

    Args:
        pieces: Rows, in tables of any size, and with any number of chunks.
        cuts: How large row groups and parts become.

    >>> rows = pa.table({"n": range(10)})
    >>> parts = cut([rows], Cuts(row_group_bytes=16, part_bytes=48))
    >>> [[group["n"].to_pylist() for group in part] for part in parts]
    [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9]]]
    """
    part: list[pa.Table] = []
    part_bytes = 0
    for group, group_bytes in _row_groups(pieces, cuts):
        part.append(group)
        part_bytes += group_bytes
        if part_bytes >= cuts.part_bytes:
            yield part
            part, part_bytes = [], 0
    if part:
        yield part


def _row_groups(pieces: Iterable[pa.Table], cuts: Cuts) -> Iterator[tuple[pa.Table, int]]:
    """Yield each row group, its columns in one chunk, with its bytes."""
    begun: list[pa.Table] = []
    begun_bytes = begun_rows = 0
    for piece in pieces:
        ends = np.cumsum(row_bytes(piece))
        start = 0
        while start < piece.num_rows:
            before = int(ends[start - 1]) if start else 0
            filled = int(np.searchsorted(ends, cuts.row_group_bytes - begun_bytes + before)) + 1
            stop = min(filled, start + cuts.row_group_rows - begun_rows, piece.num_rows)
            begun.append(piece.slice(start, stop - start))
            begun_bytes += int(ends[stop - 1]) - before
            begun_rows += stop - start
            if begun_bytes >= cuts.row_group_bytes or begun_rows >= cuts.row_group_rows:
                yield pa.concat_tables(begun).combine_chunks(), begun_bytes
                begun, begun_bytes, begun_rows = [], 0, 0
            start = stop
    if begun:
        yield pa.concat_tables(begun).combine_chunks(), begun_bytes
