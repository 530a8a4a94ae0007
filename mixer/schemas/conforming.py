"""Tables as stored, brought to the output schema: no value is ever changed, and equal columns are not copied."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from mixer.errors import SchemaError
from mixer.schemas.casting import cast_column, never, plain
from mixer.schemas.choosing import View
from mixer.schemas.types import NoCommonTypeError, common_leaf, family, is_list, unwrapped

MAX_CHUNK_OFFSET = 2**31 - 1
"""How many bytes or list elements one chunk of a `string`, `binary` or `list` column can address."""


class _ChunkTooLargeError(Exception):
    """A chunk must be cut in two before it fits the output type."""


def conform(table: pa.Table, schema: pa.Schema, view: View = View(), *, first_row: int = 0) -> pa.Table:  # noqa: B008 - a frozen value
    """Return `table` with just the columns, order, types and metadata of `schema`, a schema from `merge`.

    Columns that have their type already are passed on as they are. Columns that `schema` lacks are left out.
    Columns over 2 GiB come out in several chunks.

    Args:
        table: Rows of a dataset as stored.
        schema: What to return.
        view: How the dataset is seen: what its columns are called, cast to, and whether they may be missing.
        first_row: What messages call the first row of `table`.

    >>> table = pa.table({"n": pa.array([1], pa.int8()), "t": pa.array(["a"]).dictionary_encode()})
    >>> conform(table, pa.schema({"t": pa.string(), "n": pa.int64()})).to_pylist()
    [{'t': 'a', 'n': 1}]

    Raises:
        SchemaError: A column is missing or doubled, or a value of it has no exact counterpart in the output type.
    """
    if view.columns is None and table.schema.equals(schema, check_metadata=True):
        return table
    columns = []
    for field in schema:
        stored = view.stored_name(field.name)
        places = [] if stored is None else table.schema.get_all_field_indices(stored)
        if view.fill and not places:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)], type=field.type))
            continue
        if len(places) != 1:
            raise SchemaError(
                f"column {stored or field.name!r}: expected once, found {len(places)} times among {table.schema.names}"
            )
        column = table.column(places[0])
        if (cast := view.casts.get(field.name)) is not None:
            column = _cast(field.name, column, cast, first_row)
        columns.append(_column(field.name, column, field.type, fill=view.fill))
    # A table of no columns still has rows to an Arrow reader, but `schema` from `merge` always has columns.
    return pa.Table.from_arrays(columns, schema=schema)


def _cast(name: str, column: pa.ChunkedArray, target: pa.DataType, first_row: int) -> pa.ChunkedArray:
    if why := never(column.type, target):
        raise SchemaError(f"column {name!r}: {column.type} {why}; plan the run again")
    kind = plain(column.type)
    if not column.type.equals(kind, check_metadata=True):
        chunks = [piece for chunk in column.chunks for piece in _pieces(name, chunk, kind)]
        column = pa.chunked_array(chunks, type=kind)
    return cast_column(name, column, target, first_row)


def _column(name: str, column: pa.ChunkedArray, target: pa.DataType, *, fill: bool) -> pa.ChunkedArray:
    if column.type.equals(target, check_metadata=True):
        return column
    _check(name, column.type, target, fill=fill)
    chunks = [piece for chunk in column.chunks for piece in _pieces(name, chunk, target)]
    return pa.chunked_array(chunks, type=target)


def _check(path: str, stored: pa.DataType, target: pa.DataType, *, fill: bool) -> None:
    """Refuse what `merge` would not have brought together, whatever Arrow could make of it."""
    stored = unwrapped(stored)
    if kinds.is_null(stored):
        return
    if family(stored) is None or family(stored) != family(target):
        raise SchemaError(f"column {path!r}: found {stored}, expected {target}; plan the run again")
    if is_list(stored):
        _check(f"{path}[]", stored.value_type, target.value_type, fill=fill)
    elif kinds.is_struct(stored):
        names, wanted = [field.name for field in stored], [field.name for field in target]
        if sorted(names) != sorted(wanted) and not (
            fill and len(set(names)) == len(names) and set(names) < set(wanted)
        ):
            raise SchemaError(f"column {path!r}: found {stored}, expected {target}; plan the run again")
        for name in names:
            _check(f"{path}.{name}", stored.field(name).type, target.field(name).type, fill=fill)
    elif not _holds(target, stored):
        raise SchemaError(f"column {path!r}: {stored} holds values that {target} does not; plan the run again")


def _holds(target: pa.DataType, stored: pa.DataType) -> bool:
    try:
        return bool(common_leaf([stored, target]) == target)
    except NoCommonTypeError:
        return False


def _pieces(name: str, chunk: pa.Array, target: pa.DataType) -> list[pa.Array]:
    try:
        return [_array(name, chunk, target)]
    except _ChunkTooLargeError:
        if len(chunk) == 1:
            raise SchemaError(
                f"column {name!r}: one value holds more than {MAX_CHUNK_OFFSET:,} bytes or elements, "
                f"which is the most that one value can have; leave that row out"
            ) from None
        middle = len(chunk) // 2
        return _pieces(name, chunk.slice(0, middle), target) + _pieces(name, chunk.slice(middle), target)


def _array(path: str, array: pa.Array, target: pa.DataType) -> pa.Array:
    if kinds.is_null(array.type):
        return pa.nulls(len(array), target)
    if kinds.is_dictionary(array.type):
        return _array(path, _decoded(array), target)
    if isinstance(array.type, pa.BaseExtensionType):
        return _array(path, array.storage, target)
    if is_list(array.type):
        return _list(path, array, target)
    if kinds.is_struct(array.type):
        return _struct(path, array, target)
    return _leaf(path, array, target)


def _leaf(path: str, array: pa.Array, target: pa.DataType) -> pa.Array:
    if kinds.is_large_string(array.type) or kinds.is_large_binary(array.type):
        array = _addressable(array)
    try:
        return array.cast(target)
    except pa.ArrowCapacityError as error:
        raise _ChunkTooLargeError from error
    except pa.ArrowInvalid as error:
        raise SchemaError(f"column {path!r}: a value of type {array.type} does not fit {target}: {error}") from error


def _decoded(array: pa.DictionaryArray) -> pa.Array:
    """Return the values of a dictionary array; a value may repeat until they take more than one chunk can hold."""
    values = array.dictionary
    if not (kinds.is_string(values.type) or kinds.is_binary(values.type)):
        return array.dictionary_decode()
    lengths = pc.take(pc.binary_length(values), array.indices)
    if (pc.sum(lengths).as_py() or 0) > MAX_CHUNK_OFFSET:
        raise _ChunkTooLargeError
    return array.dictionary_decode()


def _struct(path: str, array: pa.Array, target: pa.DataType) -> pa.Array:
    children = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    # What is missing here was let through by `_check`.
    absent = pa.nulls(len(array))
    conformed = [_array(f"{path}.{field.name}", children.get(field.name, absent), field.type) for field in target]
    return pa.StructArray.from_arrays(conformed, fields=list(target), mask=_mask(array))


def _list(path: str, array: pa.Array, target: pa.DataType) -> pa.Array:
    if kinds.is_list(array.type) or kinds.is_large_list(array.type):
        offsets = array.offsets.to_numpy()  # (len + 1,), of this slice
        elements = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        offsets = offsets - offsets[0]
    else:
        # Views and fixed sizes may hold elements that no row has.
        elements = array.flatten()
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
        offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    if len(elements) > MAX_CHUNK_OFFSET:
        raise _ChunkTooLargeError
    inner = _array(f"{path}[]", elements, target.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), inner, type=target, mask=_mask(array))


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _addressable(array: pa.Array) -> pa.Array:
    """Return the same values such that their 64-bit offsets fit 32 bits."""
    if not len(array):
        return array.slice(0, 0)
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int64)
    start, stop = int(offsets[array.offset]), int(offsets[array.offset + len(array)])
    if stop - start > MAX_CHUNK_OFFSET:
        raise _ChunkTooLargeError
    # Slices of a large chunk keep its offsets; a copy begins at 0.
    return array if stop <= MAX_CHUNK_OFFSET else array.take(pa.array(np.arange(len(array))))
