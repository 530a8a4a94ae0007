"""Many lines of JSON at once with pyarrow's reader, where that is sure to give what `json_lines` gives.

pyarrow is told the whole schema, so it guesses nothing. It refuses doubled keys, halves of characters and integers
beyond the type by itself. What it takes and `json_lines` does not is looked for beforehand: broken UTF-8, several
values in one line or one in several, and integers in a column of doubles that these hold only nearly; or afterwards:
NaN, Infinity, and numbers so great that it has made them that.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json
from pyarrow import types as kinds

from mixer.formats.json_types import leaves
from mixer.formats.lines import is_utf8

# A byte of a number, of what may stand before or after one, or of anything else.
_SHAPES = bytes(
    ord("0") if byte in b"0123456789" else ord(":") if byte in b":,[]{}- \t\r\n" else ord("x") for byte in range(256)
)
_LONG_INTEGER = b":" + b"0" * 16
_MINUS_ZERO = re.compile(rb"-0[,\]}\s]")


def fast_table(data: bytes, lines: int, schema: pa.Schema) -> pa.Table | None:
    """Return the rows of a block of lines, None where that takes a closer look.

    Args:
        data: Whole lines, and nothing else; the last may lack its newline.
        lines: How many they are.
        schema: All columns that the rows may have.
    """
    if not len(schema) or any(_lists_nulls(field.type) for field in schema) or not _is_safe(data, lines, schema):
        return None
    try:
        table = arrow_json.read_json(
            pa.BufferReader(data),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=max(len(data) + 1, 1 << 10)),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior="error"
            ),
        )
    except (pa.ArrowException, ValueError):
        return None
    if table.num_rows != lines or not table.schema.equals(schema):
        return None
    return table if all(_is_finite(chunk) for column in table.columns for chunk in column.chunks) else None


def _lists_nulls(kind: pa.DataType) -> bool:
    """Return whether lists of a type have no element but null, of which pyarrow 26 makes arrays that are too short."""
    if kinds.is_list(kind):
        return any(kinds.is_null(leaf) for leaf in leaves(kind))
    return any(_lists_nulls(kind.field(place).type) for place in range(kind.num_fields))


def _is_safe(data: bytes, lines: int, schema: pa.Schema) -> bool:
    # With an object's braces at both ends of each line, and one object for each, no object goes over a line's end:
    # between } and { inside of one there would have to be a comma.
    ends = data.count(b"}\n") + data.count(b"}\r\n") + data.endswith(b"}")
    if not data.startswith(b"{") or ends != lines or data.count(b"\n{") != lines - 1:
        return False
    if not is_utf8(data):
        return False
    if not any(kinds.is_floating(leaf) for leaf in leaves(schema)):
        return True
    if b"-0" in data and _MINUS_ZERO.search(data):
        return False
    return _LONG_INTEGER not in data.translate(_SHAPES)


def _is_finite(array: pa.Array) -> bool:
    """Return whether no number in an array is NaN or infinite: `NaN` as such, or too great for a double."""
    if kinds.is_floating(array.type):
        return pc.all(pc.is_finite(array)).as_py() is not False
    if kinds.is_list(array.type):
        return _is_finite(array.values)
    fields = range(array.type.num_fields) if kinds.is_struct(array.type) else ()
    return all(_is_finite(array.field(place)) for place in fields)
