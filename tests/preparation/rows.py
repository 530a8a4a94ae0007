"""Rows of any type, drawn at random, and what is in them bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as kinds

Generator = np.random.Generator

NULLS = 0.2
"""Share of nulls, at each level."""


@dataclass
class TableSource:
    """Rows of a table as a source; counts how often each row is read."""

    table: pa.Table
    name: str = "web"
    reads: int = 0

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def read(self, start: int, stop: int) -> pa.Table:
        if not 0 <= start <= stop <= self.rows:
            raise ValueError(f"{start} to {stop} of {self.rows}")
        self.reads += stop - start
        return self.table.slice(start, stop - start)

    def close(self) -> None:
        """Nothing is open."""


def drawn(  # noqa: PLR0911 -- one for each kind
    chance: Generator, kind: pa.DataType, rows: int, *, nullable: bool = True
) -> pa.Array:
    """Return values of `kind` with any bits that it allows, and nulls where it may have them."""
    missing = pa.array(chance.random(rows) < (NULLS if nullable else -1))
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        long = kinds.is_large_list(kind)
        ends = np.concatenate([[0], np.cumsum(chance.integers(0, 4, rows))])
        values = drawn(chance, kind.value_type, int(ends[-1]), nullable=kind.value_field.nullable)
        offsets = pa.array(ends, pa.int64() if long else pa.int32())
        return (pa.LargeListArray if long else pa.ListArray).from_arrays(offsets, values, type=kind, mask=missing)
    if kinds.is_struct(kind):
        fields = [drawn(chance, field.type, rows, nullable=field.nullable) for field in kind]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=missing)
    if kinds.is_decimal(kind):
        digits = [int("".join(map(str, chance.integers(0, 10, kind.precision)))) for _ in range(rows)]
        size = kind.bit_width // 8
        return _of_words(
            kind, b"".join((-n if n % 2 else n).to_bytes(size, "little", signed=True) for n in digits), missing
        )
    if kinds.is_time(kind) or kinds.is_date64(kind):
        top = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}.get(getattr(kind, "unit", ""), 0) * 86_400
        numbers = chance.integers(0, top, rows) if top else chance.integers(-(10**5), 10**5, rows) * 86_400_000
        return _of_words(kind, numbers.astype(f"<i{kind.bit_width // 8}").tobytes(), missing)
    if kinds.is_boolean(kind):
        return pa.array(chance.random(rows) < 0.5, mask=missing.to_numpy(zero_copy_only=False))
    if kinds.is_primitive(kind) or kinds.is_fixed_size_binary(kind):
        return _of_words(kind, chance.bytes(rows * kind.bit_width // 8), missing)
    values = [b"\0\xc3\xa9"[: size % 2] + b"\xc3\xa9" * size for size in chance.integers(0, 20, rows).tolist()]
    return pa.array(values, pa.binary(), mask=missing.to_numpy(zero_copy_only=False)).cast(kind)


def _of_words(kind: pa.DataType, data: bytes, missing: pa.Array) -> pa.Array:
    present = pa.compute.invert(missing).buffers()[1]
    return pa.Array.from_buffers(kind, len(missing), [present, pa.py_buffer(data)])


def bits(array: pa.Array | pa.ChunkedArray) -> list[Any]:  # noqa: PLR0911 -- one for each kind
    """Return all that is in an array; what has other bits is another value here, such as NaNs and zeros."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in bits(chunk)]
    kind = array.type
    if kinds.is_struct(kind):
        fields = [bits(field) for field in array.flatten()]
        return [value if there else None for value, there in zip(zip(*fields, strict=True), _there(array), strict=True)]
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        values = iter(bits(array.flatten()))
        lengths = array.value_lengths().to_pylist()
        return [None if length is None else [next(values) for _ in range(length)] for length in lengths]
    if kinds.is_string(kind):
        return list(array.view(pa.binary()).to_pylist())
    if kinds.is_large_string(kind):
        return list(array.view(pa.large_binary()).to_pylist())
    if kinds.is_boolean(kind) or kinds.is_integer(kind) or kinds.is_binary(kind) or kinds.is_large_binary(kind):
        return list(array.to_pylist())
    return list(array.view(pa.binary(kind.bit_width // 8)).to_pylist())


def _there(array: pa.Array) -> list[bool]:
    return list(array.is_valid().to_pylist())
