"""What `mixer verify` says: a report as plain values, and those values as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mixer.cli import wording

if TYPE_CHECKING:
    from mixer.verifying import VerifyReport

LABEL_WIDTH = 12
SHOWN_ORPHANS = 10


def report_value(report: VerifyReport) -> dict[str, Any]:
    """Return what was found, as plain values."""
    return {**asdict(report), "ok": report.ok}


def found(problems: int) -> str:
    """Return how much is wrong.

    >>> found(1), found(3)
    ('1 problem found', '3 problems found')
    """
    return f"{wording.plural(problems, 'problem')} found"


def report_lines(value: Mapping[str, Any], _width: int | None) -> Iterator[str]:
    """Yield the text of a report.

    Args:
        value: What `report_value` returned.
    """
    problems, orphans = value["problems"], value["orphans"]
    for problem in problems:
        yield f"{wording.visible(problem['object'])}: {wording.visible(problem['problem'])}"
    if problems:
        yield ""
    state = "finished" if value["finished"] else "not finished"
    pairs = [
        ("Output", wording.visible(value["output"])),
        ("Run", f"{value['run']}, {state}"),
        ("Log", wording.plural(value["slots"], "slot")),
        ("Shards", f"{value['shards']:,}, {value['rows']:,} rows, {wording.size(value['bytes'])}"),
        *(("Read in", wording.visible(parent)) for parent in value["parents"]),
        ("Chain head", value["head"] or "unknown, as the log is damaged"),
        ("Result", found(len(problems)) if problems else "everything is as it was committed"),
    ]
    yield from (f"{label:<{LABEL_WIDTH}}{text}" for label, text in pairs)
    if orphans:
        yield ""
        named = "nothing names, and that harm nothing"
        if value["head"] is None:  # one may be the shard of a slot that is damaged
            named = "what can be read of the log does not name; keep them until the log is mended"
        yield f"Objects that {named}: {len(orphans):,}"
        yield from wording.listed(orphans, SHOWN_ORPHANS)
