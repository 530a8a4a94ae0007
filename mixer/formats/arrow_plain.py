"""Arrow types that Parquet does not have, and their values in one that it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as kinds

from mixer.formats.options import MAX_DEPTH
from mixer.schemas.types import is_list

_MAX_OFFSET = 2**31 - 1


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the same values in a form that Parquet has.

    >>> plain_type(pa.list_(pa.dictionary(pa.int8(), pa.string_view())))
    ListType(list<element: string>)
    >>> plain_type(pa.timestamp("s"))
    TimestampType(timestamp[ms])
    """
    if isinstance(kind, pa.ExtensionType):
        # Registered by a library, so that it would be plain where this is not imported.
        return plain_type(kind.storage_type)
    if kinds.is_dictionary(kind) or kinds.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    return next((make(kind) for test, make in _MADE if test(kind)), kind)


def _element(kind: pa.DataType) -> pa.Field:
    return pa.field("element", plain_type(kind.value_type))


_MADE: tuple[tuple[Callable[[Any], bool], Callable[[Any], pa.DataType]], ...] = (
    (kinds.is_string_view, lambda _: pa.string()),
    (kinds.is_binary_view, lambda _: pa.binary()),
    # Parquet has no times in whole seconds.
    (lambda kind: kinds.is_timestamp(kind) and kind.unit == "s", lambda kind: pa.timestamp("ms", kind.tz)),
    (kinds.is_time32, lambda _: pa.time32("ms")),
    (kinds.is_struct, lambda kind: pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])),
    (
        kinds.is_map,
        lambda kind: pa.map_(plain_type(kind.key_type), plain_type(kind.item_type), keys_sorted=kind.keys_sorted),
    ),
    (kinds.is_fixed_size_list, lambda kind: pa.list_(_element(kind), kind.list_size)),
    (lambda kind: kinds.is_list(kind) or kinds.is_list_view(kind), lambda kind: pa.list_(_element(kind))),
    (
        lambda kind: kinds.is_large_list(kind) or kinds.is_large_list_view(kind),
        lambda kind: pa.large_list(_element(kind)),
    ),
)
"""What is made of a type that Parquet does not have, or that is made of such ones."""


def plain_values(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the same values as `kind`, the plain type of `array`.

    >>> runs = pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"])
    >>> plain_values(runs, pa.string()).to_pylist()
    ['a', 'a', 'b']

    Raises:
        pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowCapacityError: A value has no counterpart, or Arrow knows
            no way.
    """
    if array.type.equals(kind, check_metadata=True):
        return array
    if isinstance(array.type, pa.ExtensionType):
        return plain_values(array.storage, kind)
    if kinds.is_run_end_encoded(array.type):
        places = np.arange(array.offset, array.offset + len(array))
        runs = np.searchsorted(array.run_ends.to_numpy(), places, side="right")
        return plain_values(array.values, kind).take(pa.array(runs))
    if kinds.is_dictionary(array.type):
        # Arrow decodes no dictionary of views.
        return plain_values(array.dictionary, kind).take(array.indices)
    return _plain_nested(array, kind) if _holds_unknown_to_casts(array.type) else array.cast(kind)


def _plain_nested(array: pa.Array, kind: pa.DataType) -> pa.Array:
    mask = array.is_null() if array.null_count else None
    if kinds.is_struct(array.type):
        children = [plain_values(array.field(place), field.type) for place, field in enumerate(kind)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if kinds.is_fixed_size_list(array.type):
        size = array.type.list_size
        elements = array.values.slice(array.offset * size, len(array) * size)
        return pa.FixedSizeListArray.from_arrays(plain_values(elements, kind.value_type), type=kind, mask=mask)
    return _plain_list(array, kind, mask)


def _plain_list(array: pa.Array, kind: pa.DataType, mask: pa.Array | None) -> pa.Array:
    # Null lists and views may stand over elements that no row has; `flatten` leaves these out.
    elements = plain_values(array.flatten(), kind.value_type)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))  # (len + 1,)
    if kinds.is_large_list(kind):
        return pa.LargeListArray.from_arrays(pa.array(offsets), elements, type=kind, mask=mask)
    if len(elements) > _MAX_OFFSET:
        raise pa.ArrowCapacityError(f"a batch of {len(elements):,} list elements, of which {_MAX_OFFSET:,} have room")
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), elements, type=kind, mask=mask)


def _holds_unknown_to_casts(kind: pa.DataType) -> bool:
    """Return whether a type is, or is made of, one that pyarrow 26 casts not at all, or to arrays that are broken."""
    if isinstance(kind, pa.ExtensionType):
        return True
    if kinds.is_run_end_encoded(kind) or kinds.is_list_view(kind) or kinds.is_large_list_view(kind):
        return True
    if kinds.is_map(kind):
        return False
    if kinds.is_dictionary(kind):
        return not kind.value_type.equals(plain_type(kind.value_type))
    return any(_holds_unknown_to_casts(kind.field(place).type) for place in range(kind.num_fields))


def unstorable(fields: Sequence[pa.Field]) -> tuple[pa.Field, str] | None:
    """Return the first of `fields`, of plain types, that Parquet cannot hold, and why; None if it can hold all.

    >>> unstorable([pa.field("a", pa.int8()), pa.field("b", pa.list_(pa.int8(), 0))])[1]
    'lists of the fixed length 0 have no place in it'
    """
    for field in fields:
        if any(kinds.is_fixed_size_list(kind) and kind.list_size == 0 for kind in parts(field.type)):
            return field, "lists of the fixed length 0 have no place in it"
        if 1 + levels(field.type) > MAX_DEPTH:
            return field, f"it has more than {MAX_DEPTH} levels (a struct counts as one, a list as two)"
    why = _refusal(fields)
    if why is None:
        return None
    reasons = ((field, _refusal([field])) for field in fields)
    return next(((field, reason) for field, reason in reasons if reason is not None), (fields[0], why))


def _refusal(fields: Sequence[pa.Field]) -> str | None:
    """Return what Parquet's writer has against `fields`, if anything; nothing is written but memory."""
    try:
        pq.ParquetWriter(pa.BufferOutputStream(), pa.schema(fields)).close()
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, OSError) as error:
        return str(error)
    return None


def levels(kind: pa.DataType) -> int:
    """Return how many levels of groups a type has in Parquet: one for a struct, two for a list or a map.

    >>> levels(pa.int8()), levels(pa.struct({"a": pa.list_(pa.int8())}))
    (0, 3)
    """
    if isinstance(kind, pa.BaseExtensionType):
        return levels(kind.storage_type)
    if kinds.is_map(kind):
        return 2 + max(levels(kind.key_type), levels(kind.item_type))
    if kinds.is_struct(kind):
        return 1 + max((levels(field.type) for field in kind), default=0)
    return 2 + levels(kind.value_type) if is_list(kind) else 0


def undecodable(schema: pa.Schema) -> str | None:
    """Return what text of a schema is not UTF-8: a name, or a time zone; None if there is no such text."""
    for place in range(len(schema)):
        try:
            _texts(schema.field(place))
        except UnicodeDecodeError as error:
            return f"a text of column {place + 1}, or of a part of it: {error.object!r}"
    return None


def _texts(field: pa.Field) -> list[str]:
    """Return the names and time zones of a field and of all that it is made of."""
    texts = [field.name]
    for kind in parts(field.type):
        texts += [kind.field(place).name for place in range(kind.num_fields)]
        if kinds.is_timestamp(kind):
            texts.append(kind.tz)
    return texts


def parts(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield a type and all that it is made of."""
    waiting = [kind]
    while waiting:
        kind = waiting.pop()
        yield kind
        if kinds.is_dictionary(kind) or kinds.is_run_end_encoded(kind):
            waiting.append(kind.value_type)
        elif isinstance(kind, pa.BaseExtensionType):
            waiting.append(kind.storage_type)
        else:
            waiting += [kind.field(place).type for place in range(kind.num_fields)]
