"""The stage that makes rows of files: the same row groups and parts, whatever part one begins with.

All that decides what comes after a part is in its cursor. A piece of a file begins where the last one ended and takes
what the row group still lacks, so cuts depend on the bytes alone; a file that is not compressed is entered by a seek,
a compressed one is decompressed up to there and no row of it is parsed twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from mixer.core.fingerprint import JSON
from mixer.formats.base import BAD, RowFormat
from mixer.formats.cutting import cutter_after, read_cursor
from mixer.formats.opening import row_format
from mixer.formats.options import RowsOptions
from mixer.preparation.base import PART_BYTES, ROW_GROUP_BYTES, Cursor, Part
from mixer.storage.inputs import InputFile

_VERSION = 1
"""Goes up when the same files would give other rows, or the same rows other parts."""


class RowsStage:
    """Rows of the files of one dataset, which are not Parquet. Used by one thread.

    Args:
        name: The dataset's name.
        files: Its files, in their order.
        options: How they are read.
        part_bytes: About how many bytes of the decompressed files make a part.
        row_group_bytes: About how many of these make a row group.
    """

    def __init__(
        self,
        name: str,
        files: Sequence[InputFile],
        options: RowsOptions,
        *,
        part_bytes: int = PART_BYTES,
        row_group_bytes: int = ROW_GROUP_BYTES,
    ) -> None:
        self._name, self._files, self._options = name, tuple(files), options
        self._part_bytes, self._row_group_bytes = part_bytes, row_group_bytes
        self._format: RowFormat = row_format(name, options)

    @property
    def name(self) -> str:
        """The dataset's name."""
        return self._name

    @property
    def identity(self) -> Mapping[str, JSON]:
        """What decides the bytes: format, options, sizes of parts, and URL, size and version of each file."""
        return {
            "stage": "rows",
            "version": _VERSION,
            "options": self._options.to_json(),
            "part_bytes": self._part_bytes,
            "row_group_bytes": self._row_group_bytes,
            "files": [{"url": file.url, "bytes": file.bytes, "version": file.version} for file in self._files],
        }

    def schema(self) -> pa.Schema:
        """Return the columns of the rows; reads all of JSON, and the headers of what else has them.

        Raises:
            InputError: A file is not what its format says.
            SchemaError: There is no column, or the files have none in common.
        """
        return self._format.schema(self._files)

    def parts(self, schema: pa.Schema, after: Cursor | None) -> Iterator[Part]:
        """Yield the parts after the cursor `after`, each of about `part_bytes`; all of them if that is None.

        Raises:
            InputError: A file is not what its format says, and the policy does not put that aside.
            ChangedError: A file was changed meanwhile.
        """
        cutter = cutter_after(after, schema, self._part_bytes, self._row_group_bytes)
        while cutter.file < len(self._files):
            with self._format.begin(self._files[cutter.file], schema, cutter.position) as reading:
                while (piece := reading.take(cutter.wanted_bytes)) is not None:
                    cutter.add(piece)
                    if cutter.is_full:
                        yield cutter.part()
            cutter.next_file()
        if cutter.has_news:
            yield cutter.part()

    def facts(self, last: Cursor | None) -> Mapping[str, JSON]:
        """Return the counts of the whole copy: rows, bad lines by kind, and what was taken in another way than usual.

        Raises:
            CorruptionError: The cursor is not one of this stage's.
        """
        if last is None:
            return {"rows": 0, "bad_lines": {}, "passed": {}}
        numbers, counts = read_cursor(last)
        bad = {kind.removeprefix(BAD): count for kind, count in counts.items() if kind.startswith(BAD)}
        passed = {kind: count for kind, count in counts.items() if not kind.startswith(BAD)}
        return {"rows": numbers["rows"], "bad_lines": bad, "passed": passed}
