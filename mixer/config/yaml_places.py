"""YAML to plain values and the line of each, with none of YAML's guesses.

Of unquoted words only `true`, `false`, `null`, `~`, whole numbers in plain digits (`200000`, or with every three digits
set apart, `200_000`) and numbers with a decimal point are anything else than text: `no`, `010`, `1e3`, `0x10`, `1:30`
and dates stay as they are written. Keys are always text. A key may stand once in its mapping. Tags other than `!!str`
and aliases are refused, so no code runs, and a small file cannot stand for a huge one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

Path: TypeAlias = tuple[str | int, ...]
"""The keys and indices that lead to a value."""

MAX_DEPTH = 16
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,3999}|[1-9][0-9]{0,2}(?:_[0-9]{3}){1,1000})")
_DECIMAL = re.compile(r"-?[0-9]{1,100}\.[0-9]{1,100}")
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TEXT_TAG = "tag:yaml.org,2002:str"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong at a place."""

    path: Path
    line: int
    text: str
    value_unknown: bool = False
    """Whether what stands there was not understood, so that nothing else should be said of it."""


@dataclass(slots=True)
class Document:
    """A value read from YAML, the line of each part of it (of its key, if it has one), and problems."""

    value: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, path: Path) -> int:
        """Return the line of `path`, or of the nearest part around it that there is."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


class UnreadableError(Exception):
    """The text is not YAML that can be read; nothing after `line` was."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


def read(text: str) -> Document:
    r"""Return what `text` says.

    >>> document = read("on: no\nn: 200_000")
    >>> document.value, document.line(("n",))
    ({'on': 'no', 'n': 200000}, 2)

    Raises:
        UnreadableError: It is not YAML, holds several documents or aliases, or is nested too deeply.
    """
    if forbidden := _FORBIDDEN.search(text.removeprefix("\ufeff")):
        line = text.count("\n", 0, forbidden.start()) + 1
        raise UnreadableError(line, f"character U+{ord(forbidden[0]):04X} cannot stand in YAML")
    document = Document()
    try:
        events = yaml.parse(text.removeprefix("\ufeff"), Loader=_LOADER)
        _read_documents(events, document)
    except yaml.MarkedYAMLError as error:
        # What is missing at the end is found on the line after it.
        last = text.rstrip().count("\n") + 1
        line = min(error.problem_mark.line + 1, last) if error.problem_mark else 1
        reason = " ".join(part for part in (error.context, error.problem) if part)
        raise UnreadableError(line, f"not YAML: {reason}") from None
    except yaml.YAMLError as error:
        raise UnreadableError(1, f"not YAML: {error}") from None
    return document


def _read_documents(events: Iterator[Any], document: Document) -> None:
    documents = 0
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise UnreadableError(line, "a second document begins; expected one")
            document.value = _value(next(events), events, (), document)


def _value(event: Any, events: Iterator[Any], path: Path, document: Document) -> Any:
    """Return the value that begins with `event`, taking its further events."""
    line = event.start_mark.line + 1
    document.lines.setdefault(path, line)
    if isinstance(event, yaml.AliasEvent):
        raise UnreadableError(line, f"alias *{event.anchor}: aliases are not taken; write the value out")
    if len(path) > MAX_DEPTH:
        raise UnreadableError(line, f"nested more than {MAX_DEPTH} deep")
    if event.tag not in {None, "!", _TEXT_TAG}:
        text = f"tag {event.tag!r}: tags are not taken; write a plain value"
        document.problems.append(Problem(path, line, text, value_unknown=True))
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event.value) if event.implicit[0] else event.value
    if isinstance(event, yaml.SequenceStartEvent):
        values: list[Any] = []
        while not isinstance(inner := next(events), yaml.SequenceEndEvent):
            values.append(_value(inner, events, (*path, len(values)), document))
        return values
    return _mapping(events, path, document)


def _mapping(events: Iterator[Any], path: Path, document: Document) -> dict[str, Any]:
    values: dict[str, Any] = {}
    while not isinstance(key := next(events), yaml.MappingEndEvent):
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarEvent):
            raise UnreadableError(line, "a key is not a text; expected `key: value`")
        place = (*path, key.value)
        if key.value in values:
            first = document.lines[place]
            document.problems.append(Problem(place, line, f"doubled key, first on line {first}; keep one of them"))
            _value(next(events), events, place, Document())
        else:
            document.lines[place] = line
            values[key.value] = _value(next(events), events, place, document)
    return values


def _scalar(text: str) -> Any:
    """Return what an unquoted word stands for."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text.replace("_", ""))
    return float(text) if _DECIMAL.fullmatch(text) else text
