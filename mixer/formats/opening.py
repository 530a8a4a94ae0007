"""The reader of each format, by its name."""

from __future__ import annotations

from mixer.errors import ConfigError
from mixer.formats.base import RowFormat
from mixer.formats.jsonl import JsonLines
from mixer.formats.kinds import ROW_FORMATS
from mixer.formats.options import RowsOptions


def row_format(dataset: str, options: RowsOptions) -> RowFormat:
    """Return the reader of a dataset's files.

    Raises:
        ConfigError: There is none for this format.
    """
    if options.format == "jsonl":
        return JsonLines(dataset, options)
    raise ConfigError(f"dataset {dataset!r}: expected a format of {', '.join(ROW_FORMATS)}, found {options.format!r}")
