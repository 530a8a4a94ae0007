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
HEADER_OF_COPY = (*HEADER[:5], "read from", "row of it", HEADER[-1])
"""Where each place is read from elsewhere, since a copy holds the rows anew for each epoch; so as to fit 80 cells."""


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
    one_source = len({(place["file"], place["file_row"]) for place in places}) == 1
    yield from _lines(_source(places[0]) if one_source else _copy(places[0]))
    yield ""
    yield f"{value['count']:,} times in the mix:"
    rows = []
    for place in places:
        row = [wording.count(place[key]) for key in ("batch", "slot", "epoch", "shard", "shard_row")]
        if one_source:
            row += [wording.count(place[key]) for key in ("row_group", "row_group_row")]
        else:
            row += [wording.visible(place["file"].rpartition("/")[2]), wording.count(place["file_row"])]
        rows.append([*row, "yes" if place["committed"] else "not yet"])
    header, align = (HEADER, "rrrrrrrl") if one_source else (HEADER_OF_COPY, "rrrrrlrl")
    yield from table(header, rows, align=align, width=width)
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
    first, *others = place["pieces"]
    group = f"row {place['file_row_group_row']:,} of row group {place['file_row_group']:,}"
    lines = [
        _item(place),
        (_label(place), wording.visible(place["file"])),
        ("", f"{_rows(first)} of it: {'' if _is_one(first) else 'from '}{group}{'' if _is_one(first) else ' on'}"),
    ]
    for piece in others:
        lines += [("", wording.visible(piece["file"])), ("", f"{_rows(piece)} of it")]
    return lines


def _copy(place: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [_item(place), (_label(place), wording.visible(place["file"].rpartition("/")[0]))]


def _label(place: Mapping[str, Any]) -> str:
    return "File" if place["copy"] is None else "Copy"


def _item(place: Mapping[str, Any]) -> tuple[str, str]:
    said = f"{wording.visible(place['dataset'])}, {place['item']} {place['dataset_row']:,}"
    if place["item"] == "batch":
        said += " of equally long rows"
    if place["ids"] is not None:
        first, end = place["ids"]
        said += f": ids {first:,} to {end - 1:,} of the stream"
    return "Dataset", said


def _is_one(piece: Mapping[str, Any]) -> bool:
    return bool(piece["stop"] - piece["start"] == 1)


def _rows(piece: Mapping[str, Any]) -> str:
    return f"row {piece['start']:,}" if _is_one(piece) else f"rows {piece['start']:,} to {piece['stop'] - 1:,}"


def _lines(pairs: list[tuple[str, str]]) -> Iterator[str]:
    return (f"{label:<{LABEL_WIDTH}}{text}" for label, text in pairs)
