"""Prepared copies in an output beside those that its run reads: which there are, and why they stay."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from mixer.preparation.record import FOLDER, KEY_DIGITS, PREPARED_NAME
from mixer.storage.base import ObjectInfo

_COPY = re.compile(rf"{re.escape(FOLDER)}([0-9a-f]{{{KEY_DIGITS}}})/(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class OtherCopy:
    """A prepared copy that the run does not read."""

    name: str
    """Its folder, relative to the output, with a closing slash."""
    bytes: int
    """Of all its objects."""
    reason: str
    """Why it stays."""


def copy_key(name: str) -> str | None:
    """Return the key of the prepared copy in an output that the object `name` is part of; None if it is of none.

    >>> copy_key(".mixer/prepared/" + 64 * "a" + "/prepared.json") == 64 * "a", copy_key(".mixer/prepared/notes.txt")
    (True, None)
    """
    match = _COPY.fullmatch(name)
    return match[1] if match else None


def other_copies(listed: Iterable[ObjectInfo], used: Collection[str]) -> Iterator[OtherCopy]:
    """Yield the copies among the objects of an output whose keys are not among `used`.

    None may be deleted by a machine: a copy that is complete may be read by a fork of the run, or by another run that
    names this place, and one that is not may be at work. Nothing there tells, since copies have no owner.
    """
    sizes: dict[str, int] = {}
    complete = set()
    for info in listed:
        key = copy_key(info.name)
        if key is None or key in used:
            continue
        sizes[key] = sizes.get(key, 0) + info.bytes
        if info.name == f"{FOLDER}{key}/{PREPARED_NAME}":
            complete.add(key)
    for key, size_bytes in sorted(sizes.items()):
        reason = (
            "a prepared copy that this run does not read; a stage before one that it reads, or another run's"
            if key in complete
            else "half prepared: preparing goes on with it; remove the folder if nobody prepares that any more"
        )
        yield OtherCopy(f"{FOLDER}{key}/", size_bytes, reason)
