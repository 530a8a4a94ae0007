"""What `mixer plan` remarks below its figures: warnings, columns that change, files listed twice or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mixer.cli import wording
from mixer.cli.tables import folded

SHOWN = 5
"""Names listed at most; ``--json`` has all of them."""

HEADINGS = {
    "widened": "Types that change, values unchanged",
    "cast": "Columns that are cast; a value that would change stops the run",
    "filled": "Columns that are missing, and filled with null",
}


def remarks(value: Mapping[str, Any], width: int | None) -> Iterator[str]:
    """Yield blocks of lines, each after an empty one, for a window of `width` cells."""
    for line in _remarks(value):
        yield from folded(line, width, indent=4)


def _remarks(value: Mapping[str, Any]) -> Iterator[str]:
    yield from _listed("Worth knowing", value["warnings"])
    for how, heading in HEADINGS.items():
        changes = [change for change in value["type_changes"] if change["how"] == how]
        yield from _block(heading, _filled(changes) if how == "filled" else map(_change, changes))
    yield from _block("Columns that get another name", map(_renaming, value["renamed_columns"]))
    yield from _block("Streams of token ids, whose windows are the rows", map(_stream, _with_stream(value)))
    yield from _duplicates(value)
    for dataset in value["datasets"]:
        if ignored := dataset["ignored"]:
            yield from _listed(
                f"Ignored for {wording.visible(dataset['name'])}: {wording.plural(len(ignored), 'name')}", ignored
            )


def _block(heading: str, lines: Iterator[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        if not number:
            yield ""
            yield heading
        yield f"  {line}"


def _listed(heading: str, names: list[str]) -> Iterator[str]:
    if names:
        yield ""
        yield heading
        yield from wording.listed(names, SHOWN)


def _change(change: Mapping[str, str]) -> str:
    dataset, column, file = (wording.visible(change[key]) for key in ("dataset", "column", "file"))
    return f"{dataset}: column {column!r} is stored as {change['stored']} and written as {change['output']} ({file})"


def _filled(changes: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield a line for each dataset that lacks columns; ``--json`` names the first file that lacks each.

    >>> filled = [{"dataset": "web", "column": name, "output": "int64"} for name in ("n", "m")]
    >>> list(_filled([*filled, {"dataset": "hf", "column": "n", "output": "int64"}]))
    ["web: 'n' (int64), 'm' (int64) are null where files lack them", "hf: 'n' (int64) is null where files lack it"]
    """
    columns: dict[str, list[str]] = {}
    for change in changes:
        column = f"{wording.visible(change['column'])!r} ({change['output']})"
        columns.setdefault(change["dataset"], []).append(column)
    for dataset, lacking in columns.items():
        verb, them = ("is", "it") if len(lacking) == 1 else ("are", "them")
        yield f"{wording.visible(dataset)}: {', '.join(lacking)} {verb} null where files lack {them}"


def _with_stream(value: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (dataset for dataset in value["datasets"] if "stream" in dataset)


def _stream(dataset: Mapping[str, Any]) -> str:
    stream = dataset["stream"]
    end = "as they are" if stream["end_of_text"] is None else f"each closed by the id {stream['end_of_text']:,}"
    without = f"; {stream['null_documents']:,} of them null" if stream["null_documents"] else ""
    return (
        f"{wording.visible(dataset['name'])}: {wording.plural(stream['ids'], 'id')} of "
        f"{wording.plural(stream['documents'], 'document')}, {end}{without}"
    )


def _renaming(renamed: Mapping[str, str]) -> str:
    dataset, stored, name = (wording.visible(renamed[key]) for key in ("dataset", "stored", "name"))
    return f"{dataset}: column {stored!r} is written as {name!r}"


def _duplicates(value: Mapping[str, Any]) -> Iterator[str]:
    for certain, heading in (
        (True, "Files that are in more than one dataset: each takes its rows for itself"),
        (False, "Files of the same size and footer, so most likely copies of one file"),
    ):
        found = [same["files"] for same in value["duplicates"] if same["certain"] == certain]
        lines = [_same(files, one_path=certain) for files in found]
        yield from _listed(heading, lines)


def _same(files: list[Mapping[str, str]], *, one_path: bool) -> str:
    if one_path:
        return f"{files[0]['url']} in {', '.join(file['dataset'] for file in files)}"
    shown = ", ".join(f"{file['url']} ({file['dataset']})" for file in files[:SHOWN])
    return shown + (f", and {len(files) - SHOWN:,} more" if len(files) > SHOWN else "")
