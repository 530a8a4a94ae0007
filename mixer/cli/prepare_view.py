"""What `mixer prepare` says: the prepared copies as plain values, and those values as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mixer.cli import wording
from mixer.cli.tables import table

if TYPE_CHECKING:
    from mixer.preparing import Made, Preparation

LABEL_WIDTH = 10
HEADER = ("dataset", "stage", "rows", "parts", "bytes", "put aside", "copy")
KEY_DIGITS = 12


def preparation_value(done: Preparation) -> dict[str, Any]:
    """Return what is prepared, as plain values."""
    return {"place": done.place, "made": done.made, "stages": [_stage(stage) for stage in done.stages]}


def _stage(stage: Made) -> dict[str, Any]:
    return {
        "dataset": stage.dataset,
        "stage": stage.kind,
        "where": stage.where,
        "key": stage.key,
        "parts": stage.parts,
        "rows": stage.rows,
        "bytes": stage.bytes,
        "put_aside": stage.bad,
        "quarantine": f"{stage.where}/quarantine" if stage.bad else None,
        "new": stage.is_new,
        "facts": dict(stage.facts),
    }


def preparation_lines(value: Mapping[str, Any], width: int | None) -> Iterator[str]:
    """Yield the text of what is prepared for a window of `width` cells.

    Args:
        value: What `preparation_value` returned.
        width: None for any width.
    """
    stages = value["stages"]
    if not stages:
        yield "Nothing is to be prepared: every dataset is Parquet, and is mixed as it is."
        return
    yield f"{'Prepared':<{LABEL_WIDTH}}{_made(len(stages), value['made'])}"
    yield f"{'Place':<{LABEL_WIDTH}}{wording.visible(value['place'])}"
    yield ""
    rows = [
        (
            wording.visible(stage["dataset"]),
            stage["stage"],
            wording.count(stage["rows"]),
            wording.count(stage["parts"]),
            wording.size(stage["bytes"]),
            wording.count(stage["put_aside"]),
            f"{stage['key'][:KEY_DIGITS]}, {'new' if stage['new'] else 'was there'}",
        )
        for stage in stages
    ]
    yield from table(HEADER, rows, align="llrrrrl", width=width)
    notes = [note for stage in stages for note in _notes(stage)]
    if notes:
        yield ""
        yield from notes


def _made(copies: int, made: int) -> str:
    """Return how many copies there are, and how many are new.

    >>> _made(3, 0), _made(1, 1), _made(3, 2)
    ('3 copies, all of which were there already', '1 copy, made now', '3 copies, 2 of them made now')
    """
    found = "1 copy" if copies == 1 else f"{copies:,} copies"
    if not made:
        return f"{found}, all of which were there already" if copies > 1 else f"{found}, which was there already"
    return f"{found}, made now" if made == copies else f"{found}, {made:,} of them made now"


def _notes(stage: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line on what the stage counted, and one on where what was put aside lies."""
    told = ", ".join(_told(stage["facts"]))
    who = f"{wording.visible(stage['dataset'])}, {stage['stage']}"
    if told:
        yield f"{who}: {told}"
    if stage["quarantine"]:
        yield f"{who}: put aside in {wording.visible(stage['quarantine'])}"


def _told(facts: Mapping[str, Any], of: str = "") -> Iterator[str]:
    """Yield facts in words; those that are nothing are left out.

    >>> list(_told({"documents": 1200, "bad_lines": {"broken": 3, "ragged": 0}, "tokenizer": "ab"}))
    ['documents 1,200', 'bad lines broken 3', 'tokenizer ab']
    """
    for name, fact in facts.items():
        words = f"{of}{wording.visible(str(name)).replace('_', ' ')}"
        if isinstance(fact, Mapping):
            yield from _told(fact, f"{words} ")
        elif isinstance(fact, int) and not isinstance(fact, bool):
            if fact:
                yield f"{words} {fact:,}"
        elif isinstance(fact, str) and fact:
            yield f"{words} {wording.shorten(fact, 60)}"
