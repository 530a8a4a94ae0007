"""What `mixer gc` says: what an output holds beside its run as plain values, and those values as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mixer.cli import wording
from mixer.cli.tables import table

if TYPE_CHECKING:
    from mixer.collecting import Garbage, Item

LABEL_WIDTH = 9
HEADER = ("what becomes of it", "bytes", "name", "why")
SHOWN = 1000
"""Rows of the table at the most."""


def garbage_value(garbage: Garbage, *, delete: bool) -> dict[str, Any]:
    """Return what was found and done, as plain values; `delete` says whether it was to be done."""
    refused = [{"name": refusal.name, "error": refusal.error} for refusal in garbage.refused]
    return {
        "output": garbage.output,
        "run": garbage.run,
        "committed": garbage.committed,
        "finished": garbage.finished,
        "delete": delete,
        "found": [_item(item) for item in garbage.found],
        "kept": [_item(item) for item in garbage.kept],
        "deleted": [_item(item) for item in garbage.deleted],
        "spared": [_item(item) for item in garbage.spared],
        "refused": refused,
    }


def _item(item: Item) -> dict[str, Any]:
    return {"name": item.name, "bytes": item.bytes, "reason": item.reason}


def deleted_line(item: Item) -> str:
    """Return what is said when an object is deleted."""
    return f"deleted {wording.visible(item.name)}, {wording.size(item.bytes)}: {item.reason}"


def could_not(refused: int) -> str:
    """Return how much could not be deleted.

    >>> could_not(2)
    '2 objects could not be deleted; what was deleted is gone, the same command tries the rest again'
    """
    return (
        f"{wording.plural(refused, 'object')} could not be deleted; what was deleted is gone, the same command tries "
        f"the rest again"
    )


def garbage_lines(value: Mapping[str, Any], width: int | None) -> Iterator[str]:
    """Yield the text of what was found for a window of `width` cells.

    Args:
        value: What `garbage_value` returned.
        width: None for any width.
    """
    state = "finished" if value["finished"] else "not finished"
    found, kept, deleted = value["found"], value["kept"], value["deleted"]
    pairs = [
        ("Output", wording.visible(value["output"])),
        ("Run", f"{value['run']}, {state}, {wording.plural(value['committed'], 'shard')} committed"),
        ("Garbage", _sum(found)),
        *([("Deleted", _sum(deleted))] if value["delete"] else []),
        ("Kept", _sum(kept)),
    ]
    yield from (f"{label:<{LABEL_WIDTH}}{text}" for label, text in pairs)
    rows = list(_rows(value))
    if rows:
        yield ""
        yield from table(HEADER, rows[:SHOWN], align="lrll", width=width)
    if len(rows) > SHOWN:
        yield f"and {len(rows) - SHOWN:,} more (`--json` lists all)"
    if found and not value["delete"]:
        yield ""
        yield "Nothing was deleted; `mixer gc --delete` with this output deletes what is marked `may go`."


def _rows(value: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Yield a row for each object: what may go first."""
    became = {item["name"]: ("deleted", item["reason"]) for item in value["deleted"]}
    became |= {item["name"]: ("spared", item["reason"]) for item in value["spared"]}
    became |= {refusal["name"]: ("not deleted", refusal["error"]) for refusal in value["refused"]}
    for item in value["found"]:
        what, why = became.get(item["name"], ("may go", item["reason"]))
        yield what, wording.count(item["bytes"]), wording.visible(item["name"]), wording.visible(why)
    for item in value["kept"]:
        yield "kept", wording.count(item["bytes"]), wording.visible(item["name"]), wording.visible(item["reason"])


def _sum(items: list[Mapping[str, Any]]) -> str:
    if not items:
        return "none"
    return f"{wording.plural(len(items), 'object')}, {wording.size(sum(item['bytes'] for item in items))}"
