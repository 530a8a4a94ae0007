"""The tables of `mixer plan`: datasets, phases, ranks and tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from mixer.cli import wording
from mixer.cli.tables import natural_width, table

SHOWN_PHASE_LINES = 60
"""Lines of the table of phases; ``--json`` has all of them."""

Group = tuple[str, ...]
"""Headings of columns that belong together."""


def in_groups(
    first: str, groups: Sequence[Group], rows: Sequence[Sequence[str]], *, width: int | None
) -> Iterator[str]:
    r"""Yield `rows` as one table, or as several below each other if one is too wide: each repeats the first column.

    Args:
        first: Heading of the first column, which says what a row is.
        groups: Headings of the others, which are kept together.
        rows: A text for each column.
        width: Cells a line may have; None for no limit.

    >>> print("\n".join(in_groups("set", [("rows",), ("size",)], [["web", "1,200", "4 KiB"]], width=12)))
    set   rows
    web  1,200
    <BLANKLINE>
    set   size
    web  4 KiB
    """
    place = 1
    waiting: list[tuple[Group, list[list[str]]]] = []
    for group in groups:
        columns = [[*row[place : place + len(group)]] for row in rows]
        place += len(group)
        if waiting:
            joined = (*waiting[-1][0], *group)
            both = [[*before, *after] for before, after in zip(waiting[-1][1], columns, strict=True)]
            lines = [[row[0], *cells] for row, cells in zip(rows, both, strict=True)]
            if width is None or natural_width((first, *joined), lines) <= width:
                waiting[-1] = (joined, both)
                continue
        waiting.append((group, columns))
    for number, (group, columns) in enumerate(waiting):
        if number:
            yield ""
        lines = [[row[0], *cells] for row, cells in zip(rows, columns, strict=True)]
        yield from table((first, *group), lines, align="l" + "r" * len(group), width=width)


def dataset_lines(value: Mapping[str, Any], width: int | None) -> Iterator[str]:
    """Yield a line for each dataset, and one for all."""
    groups = (
        ("files", "rows", "size", "weight"),
        ("asked", "takes", "realised", "rows off", "left"),
        ("epochs", "last batch"),
    )
    rows = [*map(_cells, value["datasets"]), _sums(value)]
    yield from in_groups("dataset", groups, rows, width=width)


def _cells(dataset: Mapping[str, Any]) -> tuple[str, ...]:
    last = dataset["last_batch"]
    return (
        wording.visible(dataset["name"]),
        wording.count(dataset["files"]),
        wording.count(dataset["rows"]),
        wording.size(dataset["bytes"]),
        " / ".join(map(wording.count, dataset["weights"])),
        dataset["share_percent"],
        wording.count(dataset["rows_taken"]),
        dataset["realised_percent"],
        wording.signed(Fraction(dataset["rows_off_share"])),
        "no end" if dataset["rows_left"] is None else wording.count(dataset["rows_left"]),
        wording.decimal(Fraction(dataset["epochs"])),
        "-" if last is None else wording.count(last),
    )


def _sums(value: Mapping[str, Any]) -> tuple[str, ...]:
    sums = {key: sum(d[key] or 0 for d in value["datasets"]) for key in ("files", "rows", "bytes", "rows_left")}
    endless = any(dataset["rows_left"] is None for dataset in value["datasets"])
    weights = [sum(phase["weights"].values()) for phase in value["phases"]]
    return (
        "all",
        wording.count(sums["files"]),
        wording.count(sums["rows"]),
        wording.size(sums["bytes"]),
        " / ".join(map(wording.count, weights)),
        "100 %",
        wording.count(value["rows"]),
        "100 %",
        "0",
        "no end" if endless else wording.count(sums["rows_left"]),
        "",
        "",
    )


def phase_lines(phases: Sequence[Mapping[str, Any]], width: int | None) -> Iterator[str]:
    """Yield a line for each phase and dataset in it."""
    rows = []
    for number, phase in enumerate(phases, start=1):
        label = f"{number}: {wording.plural(phase['batches_made'], 'batch')}, period {phase['period_batches']:,}"
        for name, items in phase["rows_taken"].items():
            weight = phase["weights"].get(name)
            rows.append(
                (
                    label,
                    wording.visible(name),
                    "-" if weight is None else wording.count(weight),
                    phase["share_percent"].get(name, "-"),
                    wording.count(items),
                    wording.percent(items, phase["rows"]),
                )
            )
            label = ""
    header = ("phase", "dataset", "weight", "asked", "takes", "realised")
    yield from table(header, rows[:SHOWN_PHASE_LINES], align="llrrrr", width=width)
    if len(rows) > SHOWN_PHASE_LINES:
        yield f"and {len(rows) - SHOWN_PHASE_LINES:,} more lines (`--json` has all)"


def rank_lines(ranks: Sequence[Mapping[str, Any]], width: int | None) -> Iterator[str]:
    """Yield a line for each number of trainers."""
    rows = [
        (
            wording.count(each["ranks"]),
            _between(each["batch_rows"]),
            "yes" if each["batch_divides"] else "NO",
            _between(each["shards"]),
            "yes" if each["shards_divide"] else "NO",
        )
        for each in ranks
    ]
    header = ("ranks", "rows of a batch", "even", "whole shards", "even")
    yield from table(header, rows, align="rrrrr", width=width)


def _between(least_most: Sequence[int]) -> str:
    least, most = least_most
    return wording.count(least) if least == most else f"{least:,} to {most:,}"


def token_lines(value: Mapping[str, Any], width: int | None) -> Iterator[str]:
    """Yield a line for each dataset with its tokens, and one for all."""
    rows, total, exact, known = [], 0, True, True
    for dataset in value["datasets"]:
        tokens, name = dataset["tokens"], wording.visible(dataset["name"])
        if tokens is None:
            rows.append((name, "-", "-", "-", dataset["realised_percent"], "no such column"))
            known = known and not dataset["rows_taken"]
            continue
        about = "" if tokens["exact"] else "~"
        total, exact = total + tokens["taken"], exact and tokens["exact"]
        rows.append(
            (
                name,
                about + wording.decimal(Fraction(tokens["per_row"]), 2),
                about + wording.count(tokens["taken"]),
                "-" if tokens["share_percent"] is None else about + tokens["share_percent"],
                dataset["realised_percent"],
                "all rows" if tokens["exact"] else f"the first {wording.plural(tokens['rows_looked_at'], 'row')}",
            )
        )
    rows.append(("all", "", ("" if exact else "~") + wording.count(total) if known else "-", "", "100 %", ""))
    groups = (("tokens a row", "tokens taken", "of tokens", "of rows"), ("looked at",))
    yield from in_groups("dataset", groups, rows, width=width)
