"""What `mixer doctor` says: its checks as plain values, and those values as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mixer.cli import wording

if TYPE_CHECKING:
    from mixer.checkup import Checkup

_MARKS = {"ok": "ok", "warning": "warning", "failed": "FAILED"}
_WIDTH_MIN = 40


def checkup_value(checkup: Checkup) -> dict[str, Any]:
    """Return what was found, as plain values."""
    return {
        "output": checkup.output,
        "ok": checkup.ok,
        "counts": dict(checkup.counts),
        "checks": [asdict(check) for check in checkup.checks],
    }


def result(counts: Mapping[str, int]) -> str:
    """Return how it went.

    >>> result({"ok": 20, "warning": 1, "failed": 0}), result({"ok": 0, "warning": 0, "failed": 2})
    ('nothing failed, 1 warning', '2 checks failed, no warnings')
    """
    failed = f"{wording.plural(counts['failed'], 'check')} failed" if counts["failed"] else "nothing failed"
    warnings = wording.plural(counts["warning"], "warning") if counts["warning"] else "no warnings"
    return f"{failed}, {warnings}"


def checkup_lines(value: Mapping[str, Any], width: int | None) -> Iterator[str]:
    """Yield the text of all checks, one a line, folded for a window of `width` cells; None for any width.

    Args:
        value: What `checkup_value` returned.
        width: None for any width.
    """
    checks = value["checks"]
    area_width = max(len(check["area"]) for check in checks)
    name_width = max(len(wording.visible(check["name"])) for check in checks)
    for check in checks:
        start = f"{_MARKS[check['state']]:<7}  {check['area']:<{area_width}}  "
        start += f"{wording.visible(check['name']):<{name_width}}  "
        yield from _folded(start, wording.visible(check["found"]), width)
        if check["advice"]:
            yield from _folded(" " * len(start), f"-> {wording.visible(check['advice'])}", width)
    yield ""
    yield f"Result: {result(value['counts'])}"


def _folded(start: str, text: str, width: int | None) -> list[str]:
    """Return `text` after `start`, on as many lines as it takes; nothing is cut off."""
    if width is None:
        return [start + text]
    return textwrap.wrap(
        text,
        width=max(width, len(start) + _WIDTH_MIN),
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [start.rstrip()]
