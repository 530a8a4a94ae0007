"""The columns that a dataset gives, in the several ways in which people may write them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from mixer.core.type_names import parse_type

KEYS = ("name", "cast")
EXPECTED = "a list of names, or a mapping from stored names to a new name or to {name: NEW, cast: TYPE}"


def normal_columns(value: object) -> list[str] | dict[str, Any]:
    """Return `value` in its one form: names in a list, or a new name (or `name` and `cast`) by each stored name.

    >>> normal_columns({"content": "text", "n": {"cast": "double"}, "m": {"name": "k"}})
    {'content': 'text', 'n': {'name': 'n', 'cast': 'float64'}, 'm': 'k'}

    Raises:
        ValueError: It is none of these; says what was expected and found.
    """
    if not isinstance(value, list | dict):
        raise ValueError(f"expected {EXPECTED}; found {kind(value)}")  # noqa: TRY004 - a config is wrong, not a call
    if not value:
        raise ValueError(f"expected {EXPECTED}; found an empty {'list' if isinstance(value, list) else 'mapping'}")
    if isinstance(value, list):
        names = [_name(name, f"entry {number} of the list") for number, name in enumerate(value, start=1)]
        _check_once(names)
        return names
    columns = {_name(stored, "a key"): _column(stored, entry) for stored, entry in value.items()}
    _check_once([column if isinstance(column, str) else column["name"] for column in columns.values()])
    return columns


def kind(value: object) -> str:
    """Return what `value` is, for people, without saying what is in it."""
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "a mapping",
    }
    return "nothing" if value is None else names.get(type(value), type(value).__name__)


def _name(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what}: expected the name of a column, found {kind(value)}")  # noqa: TRY004 - as above
    if not value or "\0" in value:
        raise ValueError(
            f"{what}: expected the name of a column, found {'one with a NUL' if value else 'an empty text'}"
        )
    return value


def _check_once(names: list[str]) -> None:
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise ValueError(f"two columns would be called {twice!r}; give each column a name of its own")


def _column(stored: str, entry: object) -> str | dict[str, str]:
    what = f"column {stored!r}"
    if isinstance(entry, str):
        return _name(entry, what)
    if not isinstance(entry, Mapping):
        raise ValueError(  # noqa: TRY004 - as above
            f"{what}: expected its new name (the same one to keep it) or {{name: NEW, cast: TYPE}}, found {kind(entry)}"
        )
    for key in entry:
        if key not in KEYS:
            close = difflib.get_close_matches(str(key), KEYS, n=1)
            hint = f" did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"{what}: unknown key {str(key)[:60]!r};{hint} known keys are {', '.join(KEYS)}")
    new = entry.get("name")
    name = stored if new is None else _name(new, f"{what}, name")
    cast = entry.get("cast")
    if cast is None:
        return name
    if not isinstance(cast, str):
        raise ValueError(f"{what}, cast: expected the name of an Arrow type, found {kind(cast)}")  # noqa: TRY004 - as above
    try:
        return {"name": name, "cast": str(parse_type(cast))}
    except ValueError as error:
        raise ValueError(f"{what}, cast: {error}") from None
