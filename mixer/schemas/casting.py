"""Casts that a config asks for: exact, or an error with the row; never a wrapped, cut or lost value.

A float is the one exception, by its nature: what is cast to one becomes the nearest there is, unless an integer or
an infinity would come out as another number.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from mixer.errors import SchemaError
from mixer.schemas.types import family, is_list, unwrapped

_SAME = {"boolean", "number", "decimal", "text", "bytes", "date", "time", "duration"}
_CASTS = {
    "boolean": {"number", "text"},
    "number": {"boolean", "decimal", "text", "duration", "zoned timestamp", "unzoned timestamp"},
    "decimal": {"number", "text"},
    "text": {"boolean", "number", "decimal", "bytes", "date", "zoned timestamp", "unzoned timestamp"},
    "bytes": {"text"},
    "date": {"text", "zoned timestamp", "unzoned timestamp"},
    "time": {"text"},
    "zoned timestamp": {"text", "zoned timestamp", "unzoned timestamp"},
    "unzoned timestamp": {"text", "unzoned timestamp", "zoned timestamp", "date"},
}
"""Families whose values may be cast to each other family."""
_COUNTED = {"duration", "zoned timestamp", "unzoned timestamp"}
_MAX_INTEGER_DIGITS = 20
_MAX_DIGITS = 76


class CastError(Exception):
    """A value has no counterpart; says why."""


def never(stored: pa.DataType, target: pa.DataType) -> str | None:
    """Return why no value of `stored` can be cast to `target`, or None if some can.

    >>> never(pa.dictionary(pa.int8(), pa.string()), pa.int64())
    >>> never(pa.list_(pa.int8()), pa.int64())
    'list is never cast to number'
    """
    stored = unwrapped(stored)
    if kinds.is_null(stored):
        return None
    have, want = family(stored), family(target)
    if have is None:
        return "is never cast to anything"
    if have == want and have == "list":
        return never(stored.value_type, target.value_type)
    if have == want and have == "struct":
        return _never_struct(stored, target)
    if not (have == want and have in _SAME) and want not in _CASTS.get(have, ()):
        return f"{have} is never cast to {want}"
    return _never_leaf(stored, target)


def _never_leaf(stored: pa.DataType, target: pa.DataType) -> str | None:
    """Return why two types of families that are cast to each other are not."""
    have, want = family(stored), family(target)
    if have == "number" and want in _COUNTED and not kinds.is_integer(stored):
        return f"only whole numbers are cast to {want}"
    if have in {"unzoned timestamp", "date"} and want == "zoned timestamp" and target.tz != "UTC":
        return f"{have} is cast to a time in UTC only, as which it is taken"
    if have == "zoned timestamp" and want == "unzoned timestamp" and stored.tz != "UTC":
        return f"only a time in UTC is cast to an {want}"
    return None


def _never_struct(stored: pa.StructType, target: pa.StructType) -> str | None:
    names, wanted = [field.name for field in stored], [field.name for field in target]
    if sorted(names) != sorted(wanted):
        return f"a struct keeps its fields, {names} are not {wanted}"
    reasons = (never(stored.field(name).type, target.field(name).type) for name in names)
    return next((reason for reason in reasons if reason), None)


def plain(kind: pa.DataType) -> pa.DataType:
    """Return `kind` in the one form of several that it could have, to cast from.

    >>> plain(pa.large_list(pa.dictionary(pa.int8(), pa.large_string())))
    ListType(list<element: string>)
    """
    kind = unwrapped(kind)
    if is_list(kind):
        return pa.list_(pa.field("element", plain(kind.value_type)))
    if kinds.is_struct(kind):
        return pa.struct([pa.field(field.name, plain(field.type)) for field in kind])
    forms = {"text": pa.string(), "bytes": pa.binary(), "date": pa.date32()}
    return forms.get(family(kind) or "", kind)


def cast_column(name: str, column: pa.ChunkedArray, target: pa.DataType, first_row: int) -> pa.ChunkedArray:
    """Return `column`, whose type is a `plain` one, as `target`.

    Args:
        name: Of the column, for the message.
        column: Values.
        target: A type that `never` has nothing against.
        first_row: What to call the first row in the message.

    Raises:
        SchemaError: A value has no exact counterpart; names the first such row, and both types.
    """
    chunks = []
    for chunk in column.chunks:
        try:
            chunks.append(_cast(chunk, target))
        except CastError as error:
            place, why = _first_bad(chunk, target, error)
            raise SchemaError(
                f"column {name!r}, row {first_row + place}: a value of type {column.type} cannot be cast to {target} "
                f"({why}); repair the data, or choose another `cast`"
            ) from why
        first_row += len(chunk)
    return pa.chunked_array(chunks, type=target)


def _first_bad(array: pa.Array, target: pa.DataType, why: CastError) -> tuple[int, CastError]:
    """Return the first row of `array` that cannot be cast, and why not it; of all rows together that is `why`.

    Arrow may tell of any value of those that it has found.
    """
    good, bad = 0, len(array)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            _cast(array.slice(good, middle - good), target)
        except CastError as error:
            bad, why = middle, error
        else:
            good = middle
    return good, why


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    if array.type.equals(target):
        return array
    if kinds.is_null(array.type):
        return pa.nulls(len(array), target)
    mask = array.is_null() if array.null_count else None
    if kinds.is_list(array.type):
        offsets = array.offsets
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        values = _cast(array.values.slice(first, last - first), target.value_type)
        return pa.ListArray.from_arrays(pc.subtract(offsets, offsets[0]), values, type=target, mask=mask)
    if kinds.is_struct(array.type):
        children = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
        cast = [_cast(children[field.name], field.type) for field in target]
        return pa.StructArray.from_arrays(cast, fields=list(target), mask=mask)
    try:
        found = _leaf(array, target)
    except pa.ArrowInvalid as error:
        raise CastError(str(error).splitlines()[0]) from error
    if found.null_count != array.null_count:
        raise CastError("a value was lost")
    return found


def _leaf(array: pa.Array, target: pa.DataType) -> pa.Array:  # noqa: PLR0911 - one for each way
    """Return the cast, by way of types between where Arrow does not do it in one step, or does it inexactly."""
    have, want = family(array.type), family(target)
    if have == "boolean" and want == "number":
        return _through(array, pa.int8(), target)
    if have == "number" and want == "boolean":
        return _reversible(array, _through(array, _wider(array.type), target), pa.int8())
    if have == "number" and want in _COUNTED:
        return _through(array, pa.int64(), target)
    if kinds.is_integer(array.type) and want == "decimal":
        return _through(array, pa.decimal128(_MAX_INTEGER_DIGITS, 0), target)
    if have == "number" and want == "decimal":
        # Arrow rounds to the scale; whoever wants that can round the data.
        return _reversible(array, _through(array, _wider(array.type), target), pa.string())
    if have == "decimal" and kinds.is_floating(target):
        # Arrow multiplies by powers of ten, and may come out beside the nearest float; its parser does not.
        return _no_new_infinity(array, _through(array, pa.string(), target))
    if have == "decimal" and want == "number":
        # Arrow finds small decimals out of the bounds of large integers.
        return _through(array, pa.decimal256(_MAX_DIGITS, array.type.scale), target)
    if kinds.is_integer(array.type) and kinds.is_float16(target):
        return _reversible(array, array.cast(target), array.type)
    if have == "unzoned timestamp" and want == "date":
        return _reversible(array, array.cast(target), array.type)
    found = array.cast(target)
    return _no_new_infinity(array, found) if kinds.is_floating(target) else found


def _through(array: pa.Array, between: pa.DataType, target: pa.DataType) -> pa.Array:
    return array.cast(between).cast(target)


def _wider(kind: pa.DataType) -> pa.DataType:
    """Return what can be done more with than with half a float, which Arrow compares with nothing."""
    return pa.float32() if kinds.is_float16(kind) else kind


def _reversible(array: pa.Array, found: pa.Array, between: pa.DataType) -> pa.Array:
    """Return `found`, if it is `array` again when cast back by way of `between`."""
    wide = _wider(array.type)
    same = pc.equal(_through(found, between, array.type).cast(wide), array.cast(wide))
    if pc.all(same).as_py() is False:
        raise CastError(f"no {found.type} is the same")
    return found


def _no_new_infinity(array: pa.Array, found: pa.Array) -> pa.Array:
    infinite = pc.is_inf(found)
    if not pc.any(infinite).as_py():
        return found
    if kinds.is_floating(array.type):
        meant = pc.is_inf(array)
    elif kinds.is_string(array.type):
        meant = pc.match_substring(array, "inf", ignore_case=True)
    else:
        meant = pa.array([False] * len(array))
    if pc.any(pc.and_not(infinite, meant)).as_py():
        raise CastError(f"it is beyond the largest {found.type}")
    return found
