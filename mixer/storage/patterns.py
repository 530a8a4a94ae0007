"""Which names a glob takes: `*`, `?` and `[..]` inside one part of a path, `**` for any number of folders.

Names that begin with `.` or `_` are hidden (`_SUCCESS`, `_metadata`, `.crc` files): a wildcard takes one only
if its part of the pattern spells the first character out. A folder is the pattern ``**`` below it.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

SUFFIXES = (".parquet", ".pq")
"""What a file's name ends in, in small or capital letters, where neither the config nor a pattern says it."""

_WILDCARD = re.compile(r"[*?\[]")
_ANY_FOLDERS = "**"


class Verdict(Enum):
    """What a pattern says of one file."""

    TAKEN = "taken"
    IGNORED = "ignored"
    """It matches, but is hidden or not named as what is looked for: worth a word to the user."""
    OTHER = "other"
    """It does not match."""


def has_wildcard(path: str) -> bool:
    """Return whether `path` is a pattern rather than a name.

    >>> has_wildcard("web/part-*.parquet"), has_wildcard("web/part-0.parquet")
    (True, False)
    """
    return _WILDCARD.search(path) is not None


def is_hidden(name: str) -> bool:
    """Return whether one part of a path is hidden.

    >>> is_hidden("_SUCCESS"), is_hidden(".part.crc"), is_hidden("part_0")
    (True, True, False)
    """
    return name.startswith((".", "_"))


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern below one folder, as its parts.

    >>> pattern = Pattern(("lang=*", "**"))
    >>> pattern.judge(("lang=en", "a", "0.parquet")), pattern.judge(("lang=en", "_log", "0.parquet"))
    (<Verdict.TAKEN: 'taken'>, <Verdict.IGNORED: 'ignored'>)
    """

    parts: tuple[str, ...]
    suffixes: tuple[str, ...] = field(default=SUFFIXES, repr=False)
    """What the names end in that a part without an ending of its own takes."""

    @property
    def is_recursive(self) -> bool:
        """Whether matches may lie at any depth."""
        return _ANY_FOLDERS in self.parts

    def judge(self, names: Sequence[str]) -> Verdict:
        """Return the verdict on the file whose path below the pattern's folder has the parts `names`."""
        if not _matches(self.parts, names, hidden=True):
            return Verdict.OTHER
        # A pattern that ends in a wildcard says nothing of the kind of file; `*.parq` does.
        says_kind = not has_wildcard(self.parts[-1][-1]) and self.parts[-1][-1] != "]"
        named_well = says_kind or names[-1].lower().endswith(self.suffixes)
        return Verdict.TAKEN if named_well and _matches(self.parts, names, hidden=False) else Verdict.IGNORED

    def may_hold(self, names: Sequence[str]) -> Verdict:
        """Return whether a folder below the pattern's may hold matches: `IGNORED` if only because it is hidden."""
        if not _leads_on(self.parts, names, hidden=True):
            return Verdict.OTHER
        return Verdict.TAKEN if _leads_on(self.parts, names, hidden=False) else Verdict.IGNORED


def split_pattern(path: str, suffixes: tuple[str, ...] = SUFFIXES) -> tuple[str, Pattern]:
    """Return the deepest folder of `path` without a wildcard, and the pattern below it.

    >>> split_pattern("/data/web/lang=*/part-?.parquet")
    ('/data/web', Pattern(parts=('lang=*', 'part-?.parquet')))
    """
    parts = path.split("/")
    first = next(place for place, part in enumerate(parts) if has_wildcard(part))
    return "/".join(parts[:first]), Pattern(tuple(part for part in parts[first:] if part), suffixes)


def whole_folder(suffixes: tuple[str, ...] = SUFFIXES) -> Pattern:
    """Return the pattern of every file below a folder that is not hidden and ends in one of `suffixes`."""
    return Pattern((_ANY_FOLDERS,), suffixes)


def _matches(parts: Sequence[str], names: Sequence[str], *, hidden: bool) -> bool:
    if not parts:
        return not names
    if parts[0] != _ANY_FOLDERS:
        return (
            bool(names) and _part_matches(parts[0], names[0], hidden) and _matches(parts[1:], names[1:], hidden=hidden)
        )
    rest = parts[1:] or ("*",)
    for skipped in range(len(names)):
        if _matches(rest, names[skipped:], hidden=hidden):
            return True
        if is_hidden(names[skipped]) and not hidden:
            return False
    return False


def _leads_on(parts: Sequence[str], names: Sequence[str], *, hidden: bool) -> bool:
    for depth, name in enumerate(names):
        if depth >= len(parts):
            return False
        if parts[depth] == _ANY_FOLDERS:
            # What follows may spell a hidden folder out, as in `**/_old/*.parquet`.
            spelled = [part for part in parts[depth + 1 : -1] if is_hidden(part)]
            return hidden or all(not is_hidden(n) or _any_matches(spelled, n) for n in names[depth:])
        if not _part_matches(parts[depth], name, hidden):
            return False
    # A folder is not a match itself: something must be left for the file's name.
    return len(names) < len(parts) or _ANY_FOLDERS in parts


def _any_matches(parts: Sequence[str], name: str) -> bool:
    return any(_part_matches(part, name, hidden=False) for part in parts)


def _part_matches(part: str, name: str, hidden: bool) -> bool:  # noqa: FBT001 - private, and named by its callers
    if is_hidden(name) and not hidden and part[0] in "*?":
        return False
    return fnmatch.fnmatchcase(name, part)
