"""Tables as lines of text, whole on any width: columns where they fit, one block a row where they do not.

Nothing is ever cut off: a number that lost digits to a narrow window would be a wrong number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len

GAP = "  "


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, align: str, width: int | None = None) -> list[str]:
    r"""Return `rows` under `header`, as columns if they fit into `width` cells, else as a block for each row.

    Args:
        header: A title for each column.
        rows: A text for each column.
        align: A letter for each column: ``l`` flush left, ``r`` flush right.
        width: Cells a line may have; None for no limit.

    >>> print("\n".join(table(["set", "rows"], [["web", "1,200"], ["code", "7"]], align="lr")))
    set    rows
    web   1,200
    code      7
    >>> print("\n".join(table(["set", "rows"], [["web", "1,200"]], align="lr", width=8)))
    set   web
    rows  1,200
    """
    if width is None or natural_width(header, rows) <= width:
        widths = _widths(header, rows)
        return [_line(cells, widths, align) for cells in (header, *rows)]
    titles = max(map(cell_len, header))
    lines: list[str] = []
    for place, row in enumerate(rows):
        if place:
            lines.append("")
        pairs = zip(header, row, strict=True)
        lines += [f"{_padded(title, titles, 'l')}{GAP}{cell}".rstrip() for title, cell in pairs if cell]
    return lines


def folded(line: str, width: int | None, *, indent: int) -> list[str]:
    """Return `line` in parts that fit into `width` cells, folded at spaces.

    All but the first begin with `indent` spaces. A word that is wider than the window stays whole.

    >>> folded("Size  about 5 MiB", 12, indent=6)
    ['Size  about', '      5 MiB']
    """
    if width is None or cell_len(line) <= width:
        return [line]
    parts: list[str] = []
    for word in re.findall(r" *[^ ]+", line):
        if parts and cell_len(parts[-1] + word) <= width:
            parts[-1] += word
        else:
            parts.append(" " * indent + word.lstrip(" ") if parts else word)
    return parts


def natural_width(header: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the cells of a line that `rows` take as columns.

    >>> natural_width(["set", "rows"], [["web", "1,200"]])
    10
    """
    widths = _widths(header, rows)
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _widths(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(header, *rows, strict=True)]


def _line(cells: Sequence[str], widths: Sequence[int], align: str) -> str:
    padded = [_padded(*parts) for parts in zip(cells, widths, align, strict=True)]
    return GAP.join(padded).rstrip()


def _padded(text: str, width: int, side: str) -> str:
    blank = " " * (width - cell_len(text))
    return blank + text if side == "r" else text + blank
