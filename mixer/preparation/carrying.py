"""Columns on their way through a database that knows fewer types: each travels as one that has the same bits.

A database that reads a double may give a NaN back with other bits, a time in coarser units, a text only if it is
valid. So nothing of the kind is shown to it: a column goes in as truth values, unsigned integers, bytes, or as lists
and structs of these, and comes out as what it was. Only nulls and lengths are told by their meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow import types as kinds

from mixer.errors import SchemaError

_UNSIGNED = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}
_WORDS = (
    kinds.is_integer,
    kinds.is_floating,
    kinds.is_decimal,
    kinds.is_date,
    kinds.is_time,
    kinds.is_timestamp,
    kinds.is_duration,
)
"""What has a number of bits, and takes no more than these."""


class NotCarriedError(Exception):
    """There is no such type; says of which."""


def carried_type(kind: pa.DataType) -> pa.DataType:
    """Return the type as which a column of `kind` travels; both lie alike in memory.

    >>> carried_type(pa.list_(pa.timestamp("ns", "UTC"))), carried_type(pa.struct({"": pa.decimal128(5, 2)}))
    (ListType(list<l: uint64>), StructType(struct<f0: fixed_size_binary[16]>))

    Raises:
        NotCarriedError: `kind`, or a part of it, cannot travel.
    """
    for tests, carried in _TRAVELS:
        if any(test(kind) for test in tests):
            return carried(kind)
    raise NotCarriedError(str(kind))


def _word(kind: pa.DataType) -> pa.DataType:
    return _UNSIGNED.get(kind.bit_width) or pa.binary(kind.bit_width // 8)


def _struct(kind: pa.StructType) -> pa.DataType:
    # Below a struct that is null comes null back, also where none may be.
    if not kind.num_fields or not all(field.nullable for field in kind):
        raise NotCarriedError(str(kind))
    # Names of fields may differ in case only, or be empty.
    return pa.struct([pa.field(f"f{place}", carried_type(field.type)) for place, field in enumerate(kind)])


def _list(kind: pa.ListType) -> pa.DataType:
    return pa.list_(pa.field("l", carried_type(kind.value_type)))


def _large_list(kind: pa.LargeListType) -> pa.DataType:
    return pa.large_list(pa.field("l", carried_type(kind.value_type)))


_TRAVELS: tuple[tuple[tuple[Callable[[pa.DataType], bool], ...], Callable[[Any], pa.DataType]], ...] = (
    ((kinds.is_boolean, kinds.is_fixed_size_binary), lambda kind: kind),
    ((kinds.is_string, kinds.is_binary), lambda _kind: pa.binary()),
    ((kinds.is_large_string, kinds.is_large_binary), lambda _kind: pa.large_binary()),
    ((kinds.is_list,), _list),
    ((kinds.is_large_list,), _large_list),
    ((kinds.is_struct,), _struct),
    (_WORDS, _word),
)


def carried_schema(name: str, schema: pa.Schema) -> pa.Schema:
    """Return the columns as which those of dataset `name` travel; their names are ``c0``, ``c1``, ...

    Raises:
        SchemaError: Some cannot; all of them are named.
    """
    fields, problems = [], []
    for place, field in enumerate(schema):
        try:
            fields.append(pa.field(f"c{place}", carried_type(field.type)))
        except NotCarriedError as error:
            problems.append(
                f"{field.name!r}, {field.type}" + (f" (in it {error})" if str(error) != str(field.type) else "")
            )
    if problems:
        raise SchemaError(
            f"dataset {name!r}: a sort cannot carry columns of these types: {'; '.join(problems)}; "
            f"leave them out with `columns`, or write the files with another type"
        )
    return pa.schema(fields)


def carry(batch: pa.RecordBatch, carried: pa.Schema) -> list[pa.Array]:
    """Return the columns of `batch` as they travel; nothing is copied."""
    return [column.view(field.type) for column, field in zip(batch.columns, carried, strict=True)]


def restore(columns: list[pa.Array], carried: pa.Schema, schema: pa.Schema) -> pa.RecordBatch:
    """Return what `columns` were before they travelled.

    Args:
        columns: As they came back: bytes of fixed length as bytes of any, long lists and bytes as short ones.
        carried: As what they were sent.
        schema: What they were.
    """
    return pa.RecordBatch.from_arrays(
        [column.cast(sent.type).view(field.type) for column, sent, field in zip(columns, carried, schema, strict=True)],
        schema=schema,
    )
