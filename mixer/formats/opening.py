"""The reader of each format, by its name."""

from __future__ import annotations

from mixer.errors import ConfigError
from mixer.formats.arrow import ArrowFiles
from mixer.formats.base import RowFormat
from mixer.formats.delimited import Delimited
from mixer.formats.json_array import JsonArrays
from mixer.formats.jsonl import JsonLines
from mixer.formats.kinds import ROW_FORMATS
from mixer.formats.options import RowsOptions
from mixer.formats.text import PlainText
from mixer.formats.webdataset import WebDataset

_FORMATS: dict[str, type[RowFormat]] = {
    "jsonl": JsonLines,
    "json": JsonArrays,
    "csv": Delimited,
    "tsv": Delimited,
    "text": PlainText,
    "arrow": ArrowFiles,
    "huggingface": ArrowFiles,
    "webdataset": WebDataset,
}


def row_format(dataset: str, options: RowsOptions) -> RowFormat:
    """Return the reader of a dataset's files.

    Raises:
        ConfigError: There is none for this format.
    """
    if options.format not in _FORMATS:
        raise ConfigError(
            f"dataset {dataset!r}: expected a format of {', '.join(ROW_FORMATS)}, found {options.format!r}"
        )
    return _FORMATS[options.format](dataset, options)
