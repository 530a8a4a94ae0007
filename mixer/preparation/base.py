"""What the engine asks of a stage: the same parts each time, and a place to go on after each of them.

A stage reads one dataset, its files or what an earlier stage has made of them, and gives the prepared copy part by
part. The engine writes each part as a Parquet file under a name that is its number, and then a record with the
stage's cursor: so whoever goes on after a death does so from the last record, and ends in the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from mixer.core.fingerprint import JSON
from mixer.errors import CorruptionError

Cursor = Mapping[str, JSON]
"""Where a stage stands after a part, and what it has counted up to there: texts, whole numbers, lists and mappings."""

PART_BYTES = 64 << 20
"""About how many bytes of decoded rows make a part: what is lost at most when a process dies."""
ROW_GROUP_BYTES = 8 << 20
"""About how many bytes of decoded rows make a row group of a part."""


@dataclass(frozen=True, slots=True)
class BadLine:
    """A piece of an input that is not what its format says, as it is put aside."""

    file: str
    """URL of the input."""
    line: int
    """Number of the line, or of the record where the format has no lines; counted from 1."""
    problem: str
    """What is wrong with it."""
    data: bytes
    """The piece as it is stored, decompressed."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a prepared copy."""

    row_groups: Sequence[pa.Table]
    """Its rows, each table one row group: of the stage's schema, not empty, each column in one chunk. None at all only
    where nothing but bad lines is left to tell of."""
    cursor: Cursor
    """Where to go on after this part."""
    bad: Sequence[BadLine] = ()
    """What was put aside since the last part."""


class Stage(Protocol):
    """One step that makes a dataset seekable. Used by one thread."""

    @property
    def name(self) -> str:
        """The dataset's name."""
        ...

    @property
    def identity(self) -> Mapping[str, JSON]:
        """Everything that decides the bytes: the kind of stage and its version, its options, and what it reads.

        What it reads is told by URL, size and version of each file, or by the key of the stage before it.
        """
        ...

    def schema(self) -> pa.Schema:
        """Return the columns of the parts; may read all of the inputs to find out.

        Raises:
            InputError, SchemaError: The inputs give none.
        """
        ...

    def parts(self, schema: pa.Schema, after: Cursor | None) -> Iterator[Part]:
        """Yield the parts that come after the one that left the cursor `after`; all of them if that is None.

        `schema` is what `schema` returned, maybe to another process. Equal inputs give equal parts, whatever the
        part that is begun with.

        Raises:
            InputError: An input is not what its format says, and the policy does not put that aside.
            ChangedError: An input was changed meanwhile.
        """
        ...

    def facts(self, last: Cursor | None) -> Mapping[str, JSON]:
        """Return what is to be known of the prepared copy, by its last cursor: counts, hashes, the report's numbers.

        Raises:
            CorruptionError: They do not agree with each other.
        """
        ...


def number_of(cursor: Cursor | None, key: str) -> int:
    """Return a whole number that a cursor says; 0 before the first part, where there is none.

    Raises:
        CorruptionError: It says none.

    >>> number_of({"rows": 7}, "rows"), number_of(None, "rows")
    (7, 0)
    """
    if cursor is None:
        return 0
    value = cursor.get(key)
    if type(value) is not int or value < 0:
        raise CorruptionError(f"the record of a prepared copy: expected a whole number {key!r}, found {value!r:.100}")
    return value
