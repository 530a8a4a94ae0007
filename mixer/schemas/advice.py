"""What to do about columns that do not fit: the option of the config that resolves it, spelt out."""

from __future__ import annotations

import json
import re

import pyarrow as pa
from pyarrow import types as kinds

from mixer.schemas.casting import never, plain
from mixer.schemas.choosing import type_name
from mixer.schemas.types import Found, NoCommonTypeError, common_leaf, family

LEAVE_OUT = "leave it out with `columns`"
_RANK = ("text", "decimal", "zoned timestamp", "unzoned timestamp", "number", "boolean", "date", "bytes")
"""Families to cast to, those that take most of the others first."""
_SHOWN_BESIDE = 4
"""Columns that are named beside the one to cast, at most."""
MOST_TAKEN = _SHOWN_BESIDE + 2
"""How many columns `Found.taken` has to hold: those, the one to cast, and one to tell that there are more."""


def in_flow(text: str) -> str:
    """Return `text` as it stands in a YAML mapping in braces.

    >>> in_flow("list<int32>"), in_flow("timestamp[us, UTC]")
    ('list<int32>', '"timestamp[us, UTC]"')
    """
    return text if re.fullmatch(r"[^\W\d][\w<>]*", text) else json.dumps(text, ensure_ascii=False)


def in_columns(name: str, cast: str | None, *, renamed: bool) -> str:
    """Return what the option `columns` says of a column: the `name` that it gets, and the type that it is cast to.

    >>> in_columns("n", None, renamed=True), in_columns("n", "int8", renamed=True)
    ('n', '{name: n, cast: int8}')
    >>> in_columns("n", "int8", renamed=False)
    '{cast: int8}'
    """
    if cast is None:
        return in_flow(name)
    return f"{{name: {in_flow(name)}, cast: {cast}}}" if renamed else f"{{cast: {cast}}}"


def cast_option(item: Found, target: str) -> str:
    """Return the option that casts the column of `item` to `target`, the name of a type, and keeps those beside it.

    >>> taken = (("text", "text"), ("n", "n"))
    >>> cast_option(Found("web", "a.parquet", pa.int8(), "n", taken=taken), "string")
    "`columns: {text: text, n: {cast: string}}` at dataset 'web'"
    """
    stored = item.stored or item.column
    beside = [f"{in_flow(name)}: {said}" for name, said in item.taken if name != stored]
    # What the option does not name is not taken. Three dots make no config, so that whoever leaves them in is told.
    shown = beside[:_SHOWN_BESIDE] + ["..."] * (len(beside) > _SHOWN_BESIDE)
    own = f"{in_flow(stored)}: {in_columns(item.column, target, renamed=stored != item.column)}"
    rest = " with its other columns for the dots" if len(beside) > _SHOWN_BESIDE else ""
    return f"`columns: {{{', '.join([*shown, own])}}}` at dataset {item.dataset!r}{rest}"


def about_clash(path: str, first: Found, second: Found) -> str:
    """Return what to do about two types that have none in common, found at `path`, a column or a part of one."""
    if path != first.column:
        return f"store both as one type, or cast the whole column: {cast_option(first, '...')}"
    options = [
        (item, target)
        for item, other in ((first, second), (second, first))
        if not never(item.cast_from or item.type, target := _target(other)) and _together(target, other.type)
    ]
    for item, target in sorted(options, key=lambda option: _rank(option[1])):
        if name := type_name(target):
            return f"store both as one type, or cast one of them: {cast_option(item, in_flow(name))}"
    return f"store both as one type, or {LEAVE_OUT}"


def about_size(path: str, item: Found) -> str:
    """Return what to do about a type that is larger than any that can be written."""
    smaller = f"decimal128(38, {min(38, max(0, item.type.scale))})" if kinds.is_decimal(item.type) else "..."
    shown = in_flow(smaller) if path == item.column else "..."
    return f"store it as a smaller type, or cast it: {cast_option(item, shown)}"


def _together(target: pa.DataType, other: pa.DataType) -> bool:
    try:
        common_leaf([target, plain(other)])
    except NoCommonTypeError:
        return False
    return True


def _target(item: Found) -> pa.DataType:
    kind = plain(item.type)
    if kinds.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if kinds.is_floating(kind):
        return pa.float64()
    return pa.int64() if kinds.is_integer(kind) else kind


def _rank(kind: pa.DataType) -> tuple[int, int]:
    found = family(kind)
    inner = 0 if kinds.is_floating(kind) else 1 if kinds.is_signed_integer(kind) else 2
    return _RANK.index(found) if found in _RANK else len(_RANK), inner
