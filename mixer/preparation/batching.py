"""Batches of equally long rows: a copy in which each row is a batch, and each column a list of what it was.

Which rows make a batch, and in which order batches come, is that of `mixer.core.lengths`. The lengths of all rows are
read first, and kept: some 40 bytes a row. Then the rows are sorted by their place among the batches.

What padding is saved is told by comparison: if the rows that are in batches were cut into batches of the same sizes,
one after the other, but in stored order, and each row filled up to the longest of its batch, then the sum over batches
of ``rows * longest - lengths`` would be the padding. In the batches here it is none.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from mixer.config import BatchesConfig
from mixer.core.fingerprint import JSON
from mixer.core.lengths import Batches, LengthGroups, group_by_length
from mixer.errors import CorruptionError, InputError, NotEnoughDataError, SchemaError
from mixer.preparation.base import Cursor, Part, number_of
from mixer.preparation.carrying import carried_schema
from mixer.preparation.cutting import Cuts, cut
from mixer.preparation.external import Keyed, SortLimits, opened_sorter
from mixer.preparation.sorting import pieces
from mixer.sources.base import Source

Int64s = npt.NDArray[np.int64]

Measure = Callable[[pa.ChunkedArray], pa.ChunkedArray]

_MEASURES: tuple[tuple[tuple[Callable[[pa.DataType], bool], ...], Measure], ...] = (
    ((kinds.is_list, kinds.is_large_list), pc.list_value_length),
    # Of a text the number of its code points, as Python counts.
    ((kinds.is_string, kinds.is_large_string), pc.utf8_length),
    ((kinds.is_binary, kinds.is_large_binary), pc.binary_length),
    ((kinds.is_integer,), lambda numbers: numbers),
)


def batch_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of batches of rows with `schema`.

    >>> batch_schema(pa.schema({"id": pa.int64()}))
    id: list<element: int64>
      child 0, element: int64
    """
    return pa.schema([pa.field(one.name, pa.list_(pa.field("element", one.type))) for one in schema])


def padding(lengths: Int64s, sizes: Int64s) -> int:
    """Return how much is filled up if rows are cut into batches as they come, and padded to the longest of each.

    Args:
        lengths: Of the rows, shape ``(rows,)``.
        sizes: Rows of each batch, all of them together, shape ``(batches,)``.

    >>> padding(np.array([5, 3, 5, 4]), np.array([2, 2]))
    3
    """
    if not len(sizes):
        return 0
    longest = np.maximum.reduceat(lengths, np.cumsum(sizes) - sizes)
    return int((longest * sizes).sum() - lengths.sum())


def batched(rows: pa.Table, sizes: Int64s, schema: pa.Schema) -> pa.Table:
    """Return a table of one row for each batch, which are cut from `rows` one after the other.

    Args:
        rows: The rows of all batches.
        sizes: Rows of each batch, shape ``(batches,)``.
        schema: As `batch_schema` returns it.

    >>> rows = pa.table({"id": [4, 1, 2]})
    >>> batched(rows, np.array([1, 2]), batch_schema(rows.schema))["id"].to_pylist()
    [[4], [1, 2]]

    Raises:
        InputError: The batches take more than 2 GiB in one column.
    """
    offsets = pa.array(np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)]).astype(np.int32))
    columns = []
    for column, one in zip(rows.combine_chunks().columns, schema, strict=True):
        if column.num_chunks != 1:
            raise InputError(
                f"column {one.name!r}: expected batches of at most 2 GiB, found {len(sizes)} of {rows.num_rows} rows "
                f"that take more; lower their size"
            )
        columns.append(pa.ListArray.from_arrays(offsets, column.chunk(0), type=one.type))
    return pa.Table.from_arrays(columns, schema=schema)


@dataclass(frozen=True)
class BatchesStage:
    """The stage that makes batches of the equally long rows of a dataset."""

    name: str
    batches: BatchesConfig
    source: Source
    """The rows, in stored order."""
    reads: JSON
    """What tells `source` apart."""
    seed: int
    limits: SortLimits = field(default_factory=SortLimits)
    cuts: Cuts = Cuts()  # noqa: RUF009 -- a frozen value

    @property
    def identity(self) -> Mapping[str, JSON]:
        asked = self.batches
        return {
            "kind": "equal-length batches",
            "version": 1,
            # The order depends on the name.
            "name": self.name,
            "seed": self.seed,
            "by": asked.by,
            "size": asked.size,
            "sizes": [[length, size] for length, size in sorted(asked.sizes.items())],
            "max_length": asked.max_length,
            "include_partial": asked.include_partial,
            "cuts": self.cuts.to_json(),
            "reads": self.reads,
        }

    def schema(self) -> pa.Schema:
        """Return the columns of the source, each as a list.

        Raises:
            SchemaError: There is no such column to go by, it has no length, or a column's type cannot be sorted along.
        """
        _measure(self.name, self.batches.by, self.source.schema)
        carried_schema(self.name, self.source.schema)
        return batch_schema(self.source.schema)

    def parts(self, schema: pa.Schema, after: Cursor | None) -> Iterator[Part]:
        """Yield the parts; those after a cursor take one sort of the rows that are left.

        A cursor says how many batches there are before it, and what is to be known of all.

        Raises:
            ConfigError: DuckDB is not installed.
            InputError: A row has no length, or batches are too large.
            NotEnoughDataError: The rows fill not one batch.
            StoreError: The disk that rows are sorted on has too little room.
        """
        facts = self._counted
        done = number_of(after, "batches")
        with closing(self._in_batches(schema, done)) as found:
            for groups in cut(found, self.cuts):
                done += sum(group.num_rows for group in groups)
                yield Part(groups, {"batches": done, "facts": facts})

    def facts(self, last: Cursor | None) -> Mapping[str, JSON]:
        """Return how many batches there are of how many rows, what was dropped, and what padding is saved.

        Raises:
            CorruptionError: There are fewer batches than there should be.
        """
        told = last.get("facts") if last is not None else None
        facts = told if isinstance(told, Mapping) else self._counted
        found = number_of(last, "batches")
        if facts.get("batches") != found:
            raise CorruptionError(
                f"dataset {self.name!r}: expected {facts.get('batches')} batches in the prepared copy, found {found}; "
                f"remove the copy, and prepare it again"
            )
        return facts

    @cached_property
    def _lengths(self) -> Int64s:
        """The length of each row, shape ``(rows,)``."""
        by = self.batches.by
        measure = _measure(self.name, by, self.source.schema)
        found = np.empty(self.source.rows, dtype=np.int64)
        for start, rows in pieces(self.source):
            lengths = measure(rows.column(by))
            found[start : start + rows.num_rows] = _checked(self.name, by, lengths, start)
        return found

    @cached_property
    def _groups(self) -> LengthGroups:
        asked = self.batches
        return group_by_length(
            self._lengths,
            asked.size,
            length_to_size=asked.sizes,
            include_partial=asked.include_partial,
            maxlen=asked.max_length,
        )

    @cached_property
    def _made(self) -> Batches:
        made = self._groups.batches(self.seed, self.name, "batches")
        if not len(made):
            dropped = self._groups.dropped()
            raise NotEnoughDataError(
                f"dataset {self.name!r}: not one batch of rows that are equally long by {self.batches.by!r} can be "
                f"filled: {dropped}; lower `size`, raise `max_length`, or set `include_partial`"
            )
        return made

    @cached_property
    def _counted(self) -> Mapping[str, JSON]:
        made, dropped = self._made, self._groups.dropped()
        kept = self._lengths[np.sort(made.order)]
        return {
            "batches": len(made),
            "rows": dropped.items,
            "kept": dropped.kept,
            "too_long": dropped.too_long,
            "surplus": dropped.surplus,
            "length": int(kept.sum()),
            "padding_saved": padding(kept, np.diff(made.offsets)),
        }

    def _in_batches(self, schema: pa.Schema, done: int) -> Generator[pa.Table, None, None]:
        """Yield the batches from number `done` on, some at a time."""
        offsets = self._made.offsets
        waiting: list[pa.Table] = []
        first, read = done, int(offsets[done])
        with (
            opened_sorter(self.name, self.source.schema, self.limits) as sorter,
            closing(sorter.sorted(self._keyed(read))) as found,
        ):
            for piece in found:
                waiting.append(piece.rows)
                read += piece.rows.num_rows
                whole = int(np.searchsorted(offsets, read, side="right")) - 1
                if whole == first:
                    continue
                rows = pa.concat_tables(waiting)
                count = int(offsets[whole] - offsets[first])
                try:
                    yield batched(rows.slice(0, count), np.diff(offsets[first : whole + 1]), schema)
                except InputError as error:
                    raise InputError(f"dataset {self.name!r}, {error}") from error
                waiting, first = [rows.slice(count)], whole

    def _keyed(self, begin: int) -> Iterator[Keyed]:
        """Yield the rows that come at place `begin` of all batches or later, as they are stored, by these places."""
        order = self._made.order
        places = np.full(self.source.rows, -1, dtype=np.int64)
        places[order] = np.arange(len(order))
        for start, rows in pieces(self.source):
            here = places[start : start + rows.num_rows]
            comes = here >= begin
            if comes.any():
                chosen = here[comes]
                yield Keyed(chosen.astype(np.uint64), chosen, rows.filter(pa.array(comes)))


def _measure(name: str, by: str, schema: pa.Schema) -> Measure:
    """Return what gives the lengths of a column's values, null for null.

    Raises:
        SchemaError: There is no such column, or its values have no length.
    """
    if by not in schema.names:
        near = difflib.get_close_matches(by, schema.names, n=1)
        meant = f"; is {near[0]!r} meant?" if near else f"; there are {', '.join(map(repr, schema.names[:20]))}"
        raise SchemaError(f"dataset {name!r}: there is no column {by!r} for batches to go by{meant}")
    kind = schema.field(by).type
    for tests, measure in _MEASURES:
        if any(test(kind) for test in tests):
            return measure
    raise SchemaError(
        f"dataset {name!r}: batches cannot go by column {by!r}, of type {kind}; name one of lists, texts, bytes, or "
        f"whole numbers"
    )


def _checked(name: str, by: str, lengths: pa.ChunkedArray, start: int) -> Int64s:
    """Return lengths as an array, shape ``(rows,)``.

    Raises:
        InputError: One is null, negative, or beyond 64 bits.
    """
    if lengths.null_count:
        row = start + pc.index(lengths.is_null(), value=True).as_py()
        raise InputError(
            f"dataset {name!r}: expected a length in each row of column {by!r}, found null in row {row}; leave such "
            f"rows out, or go by another column"
        )
    found = lengths.to_numpy()
    wrong = found > np.iinfo(np.int64).max if kinds.is_unsigned_integer(lengths.type) else found < 0
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"dataset {name!r}: expected a length from 0 to 2**63 - 1 in each row of column {by!r}, found {found[row]} "
            f"in row {start + row}; leave such rows out, or go by another column"
        )
    checked: Int64s = found.astype(np.int64)
    return checked
