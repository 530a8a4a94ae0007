"""One line of JSON into a row, exactly: what `json` of the standard library takes, less what would change a value."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import types as kinds

from mixer.formats.base import Problem
from mixer.formats.options import MAX_DEPTH

MAX_EXACT = 2**53
"""A double holds every integer up to this."""
_MAX_UINT64 = 2**64 - 1
_MIN_INT64 = -(2**63)
_MOST_DIGITS = 20
_SHOWN = 60
_BLANK = b" \t\r\n"
_TOO_DEEP = f"expected JSON of at most {MAX_DEPTH} levels, where an object counts as one and a list as two, found more"


class BadLineError(Exception):
    """A line is no row; the problem says why."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.problem = Problem(kind, what)


def is_blank(line: bytes) -> bool:
    """Return whether a line holds nothing but space."""
    return not line.strip(_BLANK)


def parse(line: bytes) -> dict[str, Any]:
    """Return the row of a line.

    >>> parse(b'{"a": [1, null]}')
    {'a': [1, None]}

    Raises:
        BadLineError: It is not JSON in UTF-8, no object, or holds what no column can hold.
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadLineError("encoding", f"expected UTF-8, found bytes that are not at byte {error.start + 1}") from None
    if text.startswith("\ufeff"):
        raise BadLineError("encoding", "expected JSON, found a byte order mark in the middle of a file")
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            after = text[error.pos : error.pos + _SHOWN]
            raise BadLineError("trailing", f"expected one JSON object, found more after it: {after!r}") from None
        raise BadLineError("broken", f"expected JSON, found something else: {error}") from None
    except RecursionError:
        raise BadLineError("depth", _TOO_DEEP) from None
    if not isinstance(value, dict):
        raise BadLineError("not_an_object", f"expected a JSON object, found {_shown(value)}")
    if "\\u" in text and _has_lone_surrogate(value):
        raise BadLineError("surrogate", "expected characters, found half of one (a lone surrogate such as \\ud83d)")
    if 2 * text.count("[") + text.count("{") > MAX_DEPTH and _is_too_deep(value):
        raise BadLineError("depth", _TOO_DEEP)
    return value


def fitted(value: Any, kind: pa.DataType, path: str) -> Any:
    """Return a value of a row as the column's type takes it, without any change.

    Raises:
        BadLineError: The type holds only a value next to it.
        TypeError: The type is for values of another kind, which the first pass over the same bytes has ruled out.
    """
    if value is None:
        return None
    fits = next((fit for test, of, fit in _FITS if test(kind) and isinstance(value, of)), None)
    if fits is None or (isinstance(value, bool) and not kinds.is_boolean(kind)):
        raise TypeError(f"column {path!r}: expected {kind}, found {_shown(value)}")
    return fits(value, kind, path)


def _fitted_list(value: list[Any], kind: pa.DataType, path: str) -> list[Any]:
    return [fitted(inner, kind.value_type, f"{path}[]") for inner in value]


def _fitted_object(value: dict[str, Any], kind: pa.DataType, path: str) -> dict[str, Any]:
    found = {}
    for name, inner in value.items():
        place = kind.get_field_index(name)
        if place < 0:
            raise TypeError(f"column {path!r}: found the unknown key {name!r}")
        found[name] = fitted(inner, kind.field(place).type, f"{path}.{name}" if path else name)
    return found


def _fitted_integer(value: int, kind: pa.DataType, path: str) -> int:
    if kinds.is_int64(kind) and value >= 2**63:
        raise TypeError(f"column {path!r}: expected {kind}, found {value}")
    if kinds.is_uint64(kind) and value < 0:
        raise BadLineError(
            "integer", f"column {path!r}: expected an integer of 0 to 2**64 - 1 like others, found {value}"
        )
    return value


def _fitted_number(value: float, _: pa.DataType, path: str) -> float:
    if isinstance(value, int) and abs(value) > MAX_EXACT:
        raise BadLineError(
            "inexact", f"column {path!r}: other values have fractions, and a double cannot hold {value} exactly"
        )
    return float(value)


def _unchanged(value: Any, _kind: pa.DataType, _path: str) -> Any:
    return value


_FITS: tuple[tuple[Any, Any, Any], ...] = (
    (kinds.is_string, str, _unchanged),
    (kinds.is_integer, int, _fitted_integer),
    (kinds.is_float64, (int, float), _fitted_number),
    (kinds.is_boolean, bool, _unchanged),
    (kinds.is_list, list, _fitted_list),
    (kinds.is_struct, dict, _fitted_object),
)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        # Some lines have very many keys.
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]  # None
        raise BadLineError("duplicate_key", f"expected each key once, found {twice[:_SHOWN]!r} several times")
    return found


def _constant(text: str) -> float:
    raise BadLineError("not_a_number", f"expected a number, found {text}, which JSON does not have")


def _integer(text: str) -> int:
    value = int(text) if len(text) <= _MOST_DIGITS else _MAX_UINT64 + 1
    if not _MIN_INT64 <= value <= _MAX_UINT64:
        raise BadLineError("integer", f"expected an integer of at most 64 bits, found {_cut(text)}")
    return value


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise BadLineError("number", f"expected a number that a double can hold, found {_cut(text)}")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_int=_integer, parse_float=_float)


def _has_lone_surrogate(value: Any) -> bool:
    return any(not _is_encodable(text) for text in _texts(value))


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _texts(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting += value.keys()
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _is_too_deep(value: Any) -> bool:
    """Return whether a value has more levels than `MAX_DEPTH`, without recursion."""
    waiting = [(value, 0)]
    while waiting:
        value, above = waiting.pop()
        depth = above + (1 if isinstance(value, dict) else 2)
        if depth > MAX_DEPTH:
            return True
        inner = value.values() if isinstance(value, dict) else value
        waiting += [(below, depth) for below in inner if isinstance(below, dict | list)]
    return False


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "an object"
    return _cut(json.dumps(value))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
