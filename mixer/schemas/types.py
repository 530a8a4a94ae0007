"""What Arrow types have in common: the smallest type that holds every value of several, or why there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types as kinds

MAX_DECIMAL_DIGITS = 38
"""More digits need decimal256, which some readers refuse and others read as doubles."""

_UNITS = ("s", "ms", "us", "ns")
_INTEGERS = {
    (True, 8): pa.int8(), (True, 16): pa.int16(), (True, 32): pa.int32(), (True, 64): pa.int64(),
    (False, 8): pa.uint8(), (False, 16): pa.uint16(), (False, 32): pa.uint32(), (False, 64): pa.uint64(),
}  # fmt: skip
_ONE_TYPE = {"boolean": pa.bool_(), "text": pa.string(), "bytes": pa.binary(), "date": pa.date32()}
"""Families that have one output type (Parquet's dates are days)."""
_FLOATS = ((11, pa.float16()), (24, pa.float32()), (53, pa.float64()))
"""Floats, and up to how many bits each holds every integer."""


@dataclass(frozen=True, slots=True)
class Found:
    """A type, and where it was found."""

    dataset: str
    file: str
    type: pa.DataType
    column: str = ""
    """The column of the run that it is, or is a part of."""
    stored: str = ""
    """How the file calls the column, if the run calls it otherwise."""
    cast_from: pa.DataType | None = None
    """What the file stores, if a cast makes something else of it."""
    fill: bool = False
    """Whether what is missing there is null."""
    taken: tuple[tuple[str, str], ...] = ()
    """The first columns that are taken of the file: how it calls each, and what `columns` says of it."""

    @property
    def where(self) -> str:
        named = f", stored as {self.stored!r}" if self.stored else ""
        cast = f", cast from {self.cast_from}" if self.cast_from is not None else ""
        return f"dataset {self.dataset!r} ({self.file}{named}{cast})"


class NoCommonTypeError(Exception):
    """There is no type that holds every value of all; says why."""


def unwrapped(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values themselves: of a dictionary, of JSON text, of a UUID, of a type from elsewhere.

    What a library has registered is a type of its own only in a process that has imported it; a mix must not be another
    there, so it counts as what is stored.

    >>> unwrapped(pa.dictionary(pa.int8(), pa.string()))
    DataType(string)
    """
    while True:
        if kinds.is_dictionary(kind):
            kind = kind.value_type
        elif isinstance(kind, pa.JsonType | pa.UuidType | pa.ExtensionType):
            kind = kind.storage_type
        else:
            return kind


def family(kind: pa.DataType) -> str | None:
    """Return which types `kind` may be mixed with, or None if no output column can have it.

    >>> family(pa.large_list(pa.int8())), family(pa.map_(pa.string(), pa.int8()))
    ('list', None)
    """
    return next((name for name, test in _FAMILIES if test(kind)), None)


def is_list(kind: pa.DataType) -> bool:
    return any(test(kind) for test in _LISTS)


_LISTS = (
    kinds.is_list,
    kinds.is_large_list,
    kinds.is_fixed_size_list,
    kinds.is_list_view,
    kinds.is_large_list_view,
)
_STRINGS = (kinds.is_string, kinds.is_large_string, kinds.is_string_view)
_BINARIES = (kinds.is_binary, kinds.is_large_binary, kinds.is_fixed_size_binary, kinds.is_binary_view)
_FAMILIES = (
    ("boolean", kinds.is_boolean),
    ("number", lambda kind: kinds.is_integer(kind) or kinds.is_floating(kind)),
    ("decimal", kinds.is_decimal),
    ("text", lambda kind: any(test(kind) for test in _STRINGS)),
    ("bytes", lambda kind: any(test(kind) for test in _BINARIES)),
    ("date", kinds.is_date),
    ("time", kinds.is_time),
    ("duration", kinds.is_duration),
    ("zoned timestamp", lambda kind: kinds.is_timestamp(kind) and kind.tz is not None),
    ("unzoned timestamp", kinds.is_timestamp),
    ("list", is_list),
    ("struct", lambda kind: kinds.is_struct(kind) and kind.num_fields > 0),
)


def common_leaf(leaves: Sequence[pa.DataType]) -> pa.DataType:
    """Return the smallest output type that holds every value of `leaves`, which are of one family and not nested.

    The order of `leaves` makes no difference.

    >>> common_leaf([pa.uint8(), pa.int8()]), common_leaf([pa.int32(), pa.float32()])
    (DataType(int16), DataType(double))
    >>> common_leaf([pa.decimal128(10, 2), pa.decimal128(20, 4)])
    Decimal128Type(decimal128(20, 4))

    Raises:
        NoCommonTypeError: There is none; it says why.
    """
    kind = family(leaves[0]) or ""
    if kind in _ONE_TYPE:
        return _ONE_TYPE[kind]
    if kind == "number":
        return _common_number(leaves)
    if kind == "decimal":
        return _common_decimal(leaves)
    if kind == "duration":
        return pa.duration(_finest(leaves, "s"))
    unit = _finest(leaves, "ms")
    if kind == "time":
        return pa.time32(unit) if unit == "ms" else pa.time64(unit)
    zones = {leaf.tz for leaf in leaves}
    return pa.timestamp(unit, zones.pop() if len(zones) == 1 else "UTC")


def _finest(leaves: Sequence[pa.DataType], coarsest: str) -> str:
    """Return the finest unit of `leaves`; Parquet has no times in whole seconds."""
    return _UNITS[max(_UNITS.index(unit) for unit in (coarsest, *(leaf.unit for leaf in leaves)))]


def _common_number(leaves: Sequence[pa.DataType]) -> pa.DataType:
    integers = [leaf for leaf in leaves if kinds.is_integer(leaf)]
    floats = [leaf for leaf in leaves if kinds.is_floating(leaf)]
    if not floats:
        return _common_integer(integers)
    bits = max((leaf.bit_width for leaf in integers), default=0)
    widest = max(leaf.bit_width for leaf in floats)
    for exact_bits, kind in _FLOATS:
        if kind.bit_width >= widest and exact_bits >= bits:
            return kind
    raise NoCommonTypeError("a double holds integers exactly only up to 2**53")


def _common_integer(integers: Sequence[pa.DataType]) -> pa.DataType:
    signed = max((leaf.bit_width for leaf in integers if kinds.is_signed_integer(leaf)), default=0)
    unsigned = max((leaf.bit_width for leaf in integers if not kinds.is_signed_integer(leaf)), default=0)
    if not signed or not unsigned:
        return _INTEGERS[bool(signed), signed or unsigned]
    bits = max(signed, 2 * unsigned)
    if (True, bits) not in _INTEGERS:
        raise NoCommonTypeError("no integer type holds every value of both")
    return _INTEGERS[True, bits]


def _common_decimal(leaves: Sequence[pa.DataType]) -> pa.DataType:
    scale = max(leaf.scale for leaf in leaves)
    digits = scale + max(leaf.precision - leaf.scale for leaf in leaves)
    if scale < 0 or digits > MAX_DECIMAL_DIGITS:
        raise NoCommonTypeError(f"a decimal column holds at most {MAX_DECIMAL_DIGITS} digits, none of them rounded")
    return pa.decimal128(digits, scale)


def changes(column: str, stored: pa.DataType, output: pa.DataType) -> Iterator[tuple[str, pa.DataType, pa.DataType]]:
    """Yield the leaves of `stored` that come out as another type, not only in another form, with their paths.

    >>> list(changes("n", pa.large_list(pa.int8()), pa.list_(pa.int16())))
    [('n[]', DataType(int8), DataType(int16))]
    """
    inner = unwrapped(stored)
    if kinds.is_null(inner) or isinstance(stored, pa.JsonType | pa.UuidType):
        yield column, stored, output
    elif is_list(inner):
        yield from changes(f"{column}[]", inner.value_type, output.value_type)
    elif kinds.is_struct(inner):
        for field in inner:
            yield from changes(f"{column}.{field.name}", field.type, output.field(field.name).type)
    elif common_leaf([inner]) != output:
        yield column, stored, output
