"""How the files of one dataset are to be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mixer.core.fingerprint import JSON

MAX_VALUE_BYTES = 256 << 20
"""Most bytes of one line, record, document or file in a tar: a longer one is an error, whatever the policy.

To read one takes up to ten times as much memory.
"""
MAX_DEPTH = 60
"""How many levels a row may have, itself the first: each object in another one is one more, each list two, as in
Parquet, whose readers end at 100. What passes rows between libraries ends at 64, and counts what wraps a row, too."""
_UNITS = {"json": "element", "webdataset": "sample"}


@dataclass(frozen=True, slots=True)
class RowsOptions:
    """What decides the rows beside the files."""

    format: str
    """One of `mixer.formats.kinds.ROW_FORMATS`."""
    on_bad_line: Literal["error", "skip", "quarantine"] = "error"
    document: Literal["file", "line", "paragraph"] = "line"
    """Of plain text: what becomes a row."""

    @property
    def unit(self) -> str:
        """What stands behind a number in an error: where a format has no lines, its records are counted.

        >>> RowsOptions("csv").unit, RowsOptions("json").unit, RowsOptions("webdataset").unit
        ('line', 'element', 'sample')
        """
        return _UNITS.get(self.format, "line")

    def to_json(self) -> dict[str, JSON]:
        """Return what of it decides the rows of this format.

        >>> RowsOptions("csv", "skip").to_json()
        {'format': 'csv', 'on_bad_line': 'skip'}
        """
        told: dict[str, JSON] = {"format": self.format, "on_bad_line": self.on_bad_line}
        return told | {"document": self.document} if self.format == "text" else told
