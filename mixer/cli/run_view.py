"""What `mixer run` and `mixer status` say of a run: a summary as plain values, and those values as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mixer.cli import wording
from mixer.cli.tables import table

if TYPE_CHECKING:
    from mixer.building import RunSummary

LABEL_WIDTH = 13


def summary_value(summary: RunSummary) -> dict[str, Any]:
    """Return how far a run is, as plain values."""
    return asdict(summary)


def summary_lines(value: Mapping[str, Any], width: int | None) -> Iterator[str]:
    """Yield the text of a summary for a window of `width` cells.

    Args:
        value: What `summary_value` returned.
        width: None for any width.
    """
    done, shards, last = value["committed"], value["shards"], value["last_commit"]
    state = "finished" if value["finished"] else f"{wording.percent(done, shards)} done, can be resumed"
    pairs = [
        ("Output", wording.visible(value["output"])),
        ("Run", f"{value['run']}, {_extended(value['extensions'])}{state}"),
        ("Shards", f"{done:,} of {shards:,} committed, {wording.size(value['bytes'])}"),
        *([("Forked", _forked(value["parent"]))] if value["parent"] else []),
        ("Rows", f"{value['rows']:,} in {wording.plural(value['batches'], 'batch')}"),
        ("Last commit", _commit(last) if last else "none yet"),
        ("Chain head", value["head"]),
    ]
    yield from (f"{label:<{LABEL_WIDTH}}{text}" for label, text in pairs)
    yield ""
    offsets, carries = value["state"]["offsets"], value["state"]["remainder_carry"]
    rows = [(wording.visible(name), wording.count(offsets[name]), wording.count(carries[name])) for name in offsets]
    yield from table(("dataset", "offset", "carry"), rows, align="lrr", width=width)


def _forked(parent: Mapping[str, Any]) -> str:
    taken = wording.plural(parent["shards"], "shard")
    return (
        f"the first {taken}, {wording.plural(parent['batches'], 'batch')}, lie in {wording.visible(parent['output'])}"
    )


def _extended(times: int) -> str:
    return f"extended {'once' if times == 1 else f'{times:,} times'}, " if times else ""


def _commit(commit: Mapping[str, Any]) -> str:
    return f"shard {commit['shard']:,}: {commit['rows']:,} rows, {wording.size(commit['bytes'])}, {commit['path']}"
