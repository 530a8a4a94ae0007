"""What `mixer head` says: rows as plain values, and as lines that fit."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mixer.cli import wording
from mixer.cli.tables import GAP, table

if TYPE_CHECKING:
    from mixer.heading import Rows

LINEAGE = ("_batch", "_dataset", "_row")
VALUE_WIDTH = 60
"""Characters of a value where there is room for them."""
VALUE_WIDTH_MIN = 16
"""A column narrower than this says too little: rows become blocks."""


def rows_value(rows: Rows) -> dict[str, Any]:
    """Return rows as plain values, whole."""
    return {
        "output": rows.output,
        "run": rows.run,
        "batch_size": rows.batch_size,
        "first_row": rows.first_row,
        "rows": [{name: plain(value) for name, value in row.items()} for row in rows.table.to_pylist()],
    }


def plain(value: Any) -> Any:
    r"""Return what JSON can say of a value: bytes in base64, other things as text.

    >>> plain([1, None, b"\x00", float("nan"), {"a": True}])
    [1, None, {'base64': 'AA=='}, 'nan', {'a': True}]
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, (list, tuple)) else str(value)


def rows_lines(rows: Rows, width: int | None) -> Iterator[str]:
    """Yield rows as text for a window of `width` cells; None for any width."""
    names = rows.table.column_names
    lineage = [name for name in LINEAGE if name in names]
    data = [name for name in names if name not in lineage]
    if not len(rows.table):
        yield "no rows are committed yet"
        return
    records = rows.table.to_pylist()
    fixed = [[str(rows.first_row + place)] + [str(row[name]) for name in lineage] for place, row in enumerate(records)]
    header = ["row", *lineage, *data]
    room = _room(["row", *lineage], fixed, len(data), width)
    if room is None:
        room = max(VALUE_WIDTH_MIN, (width or 0) - max(map(len, header)) - len(GAP))
    cells = [
        [*map(wording.visible, place), *(wording.shorten(shown(row[name]), room) for name in data)]
        for place, row in zip(fixed, records, strict=True)
    ]
    align = "".join("r" if name == "row" or _is_number(records[0].get(name)) else "l" for name in header)
    yield from table([wording.visible(name) for name in header], cells, align=align, width=width)


def _room(header: Sequence[str], fixed: Sequence[Sequence[str]], columns: int, width: int | None) -> int | None:
    """Return the characters that each of `columns` may have beside the fixed ones; None if too few are left."""
    if width is None or not columns:
        return VALUE_WIDTH
    taken = sum(max(map(len, column)) + len(GAP) for column in zip(header, *fixed, strict=True))
    room = (width - taken + len(GAP)) // columns - len(GAP)
    return min(VALUE_WIDTH * 4, room) if room >= VALUE_WIDTH_MIN else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def shown(value: Any) -> str:
    """Return a value as people read it.

    >>> shown("text"), shown(None), shown([1, 2]), shown(b"abc")
    ('text', '-', '[1, 2]', '3 bytes')
    """
    if value is None:
        return "-"
    return wording.plural(len(value), "byte") if isinstance(value, bytes) else str(value)
