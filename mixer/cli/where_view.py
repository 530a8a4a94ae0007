"""What `mixer where` says: places of the mix as plain values, and those values as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mixer.cli import wording
from mixer.cli.tables import table

if TYPE_CHECKING:
    from mixer.locating import Whereabouts

LABEL_WIDTH = 9
HEADER = ("batch", "slot", "epoch", "shard", "row of it", "row group", "row of it", "written")


def where_value(found: Whereabouts) -> dict[str, Any]:
    """Return what was found as plain values."""
    return {**asdict(found), "places": [asdict(place) for place in found.places]}


def where_lines(value: Mapping[str, Any], width: int | None) -> Iterator[str]:
    """Yield the text of what was found for a window of `width` cells.

    Args:
        value: What `where_value` returned.
        width: None for any width.
    """
    places = value["places"]
    if not places:
        yield f"nowhere: {wording.visible(value['why'])}"
        return
    if value["count"] == 1:
        yield from _one(places[0])
        return
    yield from _lines(_source(places[0]))
    yield ""
    yield f"{value['count']:,} times in the mix:"
    rows = [
        [
            *(wording.count(place[key]) for key in ("batch", "slot", "epoch", "shard", "shard_row")),
            *(wording.count(place[key]) for key in ("row_group", "row_group_row")),
            "yes" if place["committed"] else "not yet",
        ]
        for place in places
    ]
    yield from table(HEADER, rows, align="rrrrrrrl", width=width)
    if value["count"] > len(places):
        yield f"and {value['count'] - len(places):,} more; `--epoch` asks for one of them"
    for output in dict.fromkeys(place["output"] for place in places if place["output"] != places[-1]["output"]):
        shards = [place["shard"] for place in places if place["output"] == output]
        yield f"shard {', '.join(map(str, dict.fromkeys(shards)))}: in {wording.visible(output)}"


def _one(place: Mapping[str, Any]) -> Iterator[str]:
    written = "" if place["committed"] else ", which is not written yet"
    yield from _lines([
        ("Batch", f"{place['batch']:,}, slot {place['slot']:,}: row {place['row']:,} of the mix"),
        ("Shard", f"{wording.visible(place['output'])}/{place['path']}{written}"),
        ("", f"row {place['shard_row']:,} of it: row {place['row_group_row']:,} of row group {place['row_group']:,}"),
        *_source(place),
        ("Taken", f"in epoch {place['epoch']:,}, as item {place['offset']:,} of the dataset"),
    ])  # fmt: skip


def _source(place: Mapping[str, Any]) -> list[tuple[str, str]]:
    in_file = f"row {place['file_row_group_row']:,} of row group {place['file_row_group']:,}"
    return [
        ("Dataset", f"{wording.visible(place['dataset'])}, row {place['dataset_row']:,}"),
        ("File", wording.visible(place["file"])),
        ("", f"row {place['file_row']:,} of it: {in_file}"),
    ]


def _lines(pairs: list[tuple[str, str]]) -> Iterator[str]:
    return (f"{label:<{LABEL_WIDTH}}{text}" for label, text in pairs)
