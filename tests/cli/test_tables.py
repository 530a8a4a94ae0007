from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from mixer.cli.tables import folded, table

CELL = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=12)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str]], str]:
    columns = draw(st.integers(1, 6))
    row = st.lists(CELL, min_size=columns, max_size=columns)
    return (
        draw(row),
        draw(st.lists(row, min_size=1, max_size=5)),
        draw(st.text("lr", min_size=columns, max_size=columns)),
    )


@given(tables(), st.integers(1, 100))
def test_every_cell_is_there_whole_whatever_the_width(
    content: tuple[list[str], list[list[str]], str], width: int
) -> None:
    header, rows, align = content
    text = "\n".join(table(header, rows, align=align, width=width))
    for cell in [*header, *(cell for row in rows for cell in row)]:
        assert cell in text


@given(tables(), st.integers(1, 100))
def test_columns_are_flush_and_fit_or_rows_become_blocks(
    content: tuple[list[str], list[list[str]], str], width: int
) -> None:
    header, rows, align = content
    lines = table(header, rows, align=align, width=width)
    unbounded = table(header, rows, align=align)
    if lines == unbounded:
        assert len(lines) == 1 + len(rows)
    else:
        assert max(map(cell_len, unbounded)) > width or align.endswith("l")
        assert len(lines) == len(rows) * len(header) + len(rows) - 1


def test_wide_characters_take_two_cells() -> None:
    assert table(["set", "rows"], [["中文", "1"], ["abcd", "22"]], align="lr") == [
        "set   rows",
        "中文     1",
        "abcd    22",
    ]


@given(st.text(st.characters(categories=["L", "N", "Zs"]), max_size=120), st.integers(1, 60), st.integers(0, 12))
def test_a_folded_line_loses_no_word_and_fits_unless_a_word_does_not(line: str, width: int, indent: int) -> None:
    parts = folded(line, width, indent=indent)
    assert [word for part in parts for word in part.split(" ") if word] == [word for word in line.split(" ") if word]
    for part in parts:
        assert cell_len(part) <= width or len(part.strip(" ").split(" ")) == 1
    for part in parts[1:]:
        assert part.startswith(" " * indent)
