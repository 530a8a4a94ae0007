"""Names of Arrow types, as people write them in a config: a small grammar, read without Arrow."""

from __future__ import annotations

import difflib
import json
import re
import zoneinfo
from dataclasses import dataclass

MAX_CHARACTERS = 1000
MAX_DEPTH = 16
MAX_DECIMAL_DIGITS = 38

_PLAIN = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "string", "binary", "date32"),
)
_OTHER_NAMES = {"halffloat": "float16", "float": "float32", "double": "float64"}
_UNITS = {
    "time32": ("s", "ms"),
    "time64": ("us", "ns"),
    "timestamp": ("s", "ms", "us", "ns"),
    "duration": ("s", "ms", "us", "ns"),
}
_COMPLETE = ("timestamp[us]", "timestamp[us, UTC]", "time64[us]", "duration[us]", "decimal128(38, 9)", "list<int32>")
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NUMBER = re.compile(r"\d{1,3}", re.ASCII)
_ZONE = re.compile(r"[A-Za-z0-9_+\-/:]+", re.ASCII)
_FIELD = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s<>,:"\[\]()][^<>,:"\[\]()]*')
_OFFSET = re.compile(r"[+-]\d\d:\d\d", re.ASCII)


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type: its name, and what goes with it. As text it reads back as an equal one."""

    name: str
    parameters: tuple[int | str, ...] = ()
    """Unit and zone, or digits and scale."""
    inner: tuple[tuple[str, TypeName], ...] = ()
    """Fields of a struct, or `element` of a list."""

    def __str__(self) -> str:
        if self.name == "list":
            return f"list<{self.inner[0][1]}>"
        if self.name == "struct":
            return f"struct<{', '.join(f'{_field(name)}: {kind}' for name, kind in self.inner)}>"
        if not self.parameters:
            return self.name
        parameters = ", ".join(map(str, self.parameters))
        return f"{self.name}({parameters})" if self.name == "decimal128" else f"{self.name}[{parameters}]"


def _field(name: str) -> str:
    plain = _FIELD.fullmatch(name) and not name.startswith('"') and name == name.strip()
    return name if plain else json.dumps(name, ensure_ascii=False)


def parse_type(text: str) -> TypeName:
    """Return the type that `text` names.

    >>> str(parse_type("timestamp[us, tz=UTC]")), str(parse_type("list<element: struct<a: double>>"))
    ('timestamp[us, UTC]', 'list<struct<a: float64>>')
    >>> parse_type("decimal128(10, 2)")
    TypeName(name='decimal128', parameters=(10, 2), inner=())

    Raises:
        ValueError: It names none; says what was expected and what is near.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"expected the name of a type of at most {MAX_CHARACTERS} characters, found {len(text)}")
    reader = _Reader(text)
    kind = reader.type(0)
    reader.end()
    return kind


class _Reader:
    """A text, and how far it was read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def type(self, depth: int) -> TypeName:
        if depth > MAX_DEPTH:
            raise ValueError(f"expected a type at most {MAX_DEPTH} deep, found a deeper one")
        word = self._take(_WORD) or ""
        name = _OTHER_NAMES.get(word, word)
        if name in _PLAIN:
            if name == "date32" and self._has("["):
                self._expect("day", "]")
            return TypeName(name)
        if name in _UNITS:
            return self._timed(name)
        if name == "decimal128":
            return self._decimal()
        if name == "list":
            return self._list(depth)
        if name == "struct":
            return self._struct(depth)
        raise self._wrong(near=word)

    def end(self) -> None:
        self._space()
        if self._at != len(self._text):
            raise self._wrong()

    def _timed(self, name: str) -> TypeName:
        self._expect("[")
        unit = self._take(_WORD)
        if unit not in _UNITS[name]:
            raise ValueError(f"{name} has a unit, one of {', '.join(_UNITS[name])}, found {self._text[:60]!r}")
        parameters: tuple[str, ...] = (unit,)
        if name == "timestamp" and self._has(","):
            self._has("tz=")
            zone = self._take(_ZONE)
            if zone is None:
                raise self._wrong()
            _check_zone(zone)
            parameters = (unit, zone)
        self._expect("]")
        return TypeName(name, parameters)

    def _decimal(self) -> TypeName:
        self._expect("(")
        digits = self._take(_NUMBER)
        self._expect(",")
        scale = self._take(_NUMBER)
        self._expect(")")
        if not digits or not scale or not 1 <= int(digits) <= MAX_DECIMAL_DIGITS or int(scale) > int(digits):
            raise ValueError(
                f"decimal128(digits, scale) has 1 to {MAX_DECIMAL_DIGITS} digits and a scale from 0 to as many, "
                f"found {self._text[:60]!r}"
            )
        return TypeName("decimal128", (int(digits), int(scale)))

    def _list(self, depth: int) -> TypeName:
        self._expect("<")
        if not self._has("element:"):
            self._has("item:")
        kind = self.type(depth + 1)
        self._expect(">")
        return TypeName("list", inner=(("element", kind),))

    def _struct(self, depth: int) -> TypeName:
        self._expect("<")
        fields: dict[str, TypeName] = {}
        while not fields or self._has(","):
            name = (self._take(_FIELD) or "").strip()
            try:
                name = json.loads(name) if name.startswith('"') else name
            except ValueError:
                raise self._wrong() from None
            if not name:
                raise self._wrong()
            if name in fields:
                raise ValueError(f"a struct has field {name!r} twice")
            self._expect(":")
            fields[name] = self.type(depth + 1)
        self._expect(">")
        return TypeName("struct", inner=tuple(fields.items()))

    def _space(self) -> None:
        while self._text[self._at : self._at + 1] == " ":
            self._at += 1

    def _take(self, pattern: re.Pattern[str]) -> str | None:
        self._space()
        match = pattern.match(self._text, self._at)
        if match is None:
            return None
        self._at = match.end()
        return match[0]

    def _has(self, mark: str) -> bool:
        self._space()
        if not self._text.startswith(mark, self._at):
            return False
        self._at += len(mark)
        return True

    def _expect(self, *marks: str) -> None:
        for mark in marks:
            if not self._has(mark):
                raise self._wrong()

    def _wrong(self, near: str = "") -> ValueError:
        known = (*_PLAIN, *_OTHER_NAMES, *_COMPLETE)
        close = difflib.get_close_matches(near or self._text, known, n=1, cutoff=0.5)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return ValueError(
            f"expected the name of an Arrow type, such as int32, string, timestamp[us, UTC], decimal128(10, 2) or "
            f"list<int32>, found {self._text[:60]!r}{hint}"
        )


def _check_zone(zone: str) -> None:
    if zone == "UTC" or _OFFSET.fullmatch(zone):
        return
    try:
        zoneinfo.ZoneInfo(zone)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        close = difflib.get_close_matches(zone, sorted(zoneinfo.available_timezones()), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"there is no time zone {zone[:60]!r} on this machine{hint}") from None
