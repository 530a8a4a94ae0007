"""What `mixer plan --diff` says: a difference as plain values, and those values as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mixer.cli import wording
from mixer.comparing import Difference

HEADINGS = {
    "refused": "Refused: these decide which rows come out, and a run is never changed; choose another output",
    "needs_extend": "Refused without --extend: these only make the run longer",
    "needs_allow_repack": "Refused without --allow-repack: the same rows in other bytes",
    "no_matter": "No matter to a run that has begun",
}


def difference_value(difference: Difference, config: str) -> dict[str, Any]:
    """Return everything that a comparison says, as plain values."""
    return {
        "config": config,
        "old": difference.old,
        "old_is": "run" if difference.is_run else "config",
        "verdict": difference.verdict,
        "refused": list(difference.refused),
        "why": difference.why if difference.refused else None,
        "needs_extend": list(difference.extends),
        "needs_allow_repack": list(difference.repack),
        "no_matter": list(difference.harmless),
    }


def difference_lines(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield the text of a comparison."""
    run = f"the run in {wording.visible(value['old'])}"
    if value["old_is"] == "config":
        run = f"a run that was started with {wording.visible(value['old'])}"
    yield f"With {wording.visible(value['config'])}, {run} {_outcome(value)}"
    for key, heading in HEADINGS.items():
        if value[key]:
            yield ""
            yield heading
            for line in value[key]:
                yield from (f"  {wording.visible(part)}" for part in line.split("\n"))
            if key == "refused" and value["old_is"] == "config":
                yield "  (What only makes a run longer, --extend allows: compare with the run's output to see.)"
            elif key == "refused" and value["why"]:
                yield f"  {wording.visible(value['why'])}"


def _outcome(value: Mapping[str, Any]) -> str:
    if value["refused"]:
        return "would refuse to go on"
    flags = {"--extend": value["needs_extend"], "--allow-repack": value["needs_allow_repack"]}
    if needed := [flag for flag, lines in flags.items() if lines]:
        return f"goes on only with {' and '.join(needed)}"
    return "goes on" if value["no_matter"] else "goes on: nothing differs"
