"""All rows of a dataset in a random order: a copy that holds one epoch after the other, each in an order of its own.

The order of an epoch is that of `mixer.core.order.full_order`: a random number is drawn for each row, and rows are
sorted by it. They are drawn again as rows are read, so sorting takes no memory for the order.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mixer.core.fingerprint import JSON
from mixer.core.order import full_path, random_keys
from mixer.errors import CorruptionError
from mixer.preparation.base import Cursor, Part, number_of
from mixer.preparation.carrying import carried_schema
from mixer.preparation.cutting import Cuts, cut
from mixer.preparation.external import Keyed, SortLimits, opened_sorter
from mixer.sources.base import Source

_READ_BYTES = 8 << 20
"""About how much is read of a source at once."""
_FIRST_READ_ROWS = 1
"""Of rows that nobody has seen yet one may be a window of many MiB."""
_MOST_READ_ROWS = 2048
"""Few, as the next rows may be far wider than the last ones."""


def pieces(source: Source) -> Iterator[tuple[int, pa.Table]]:
    """Yield all rows of `source` in pieces of some MiB, each with the number of its first row."""
    start, rows = 0, _FIRST_READ_ROWS
    while start < source.rows:
        stop = min(start + rows, source.rows)
        piece = source.read(start, stop)
        yield start, piece
        rows = max(1, min(_MOST_READ_ROWS, 4 * rows, (stop - start) * _READ_BYTES // max(1, piece.nbytes)))
        start = stop


@dataclass(frozen=True)
class FullShuffleStage:
    """The stage that puts all rows of a dataset in a random order, `epochs` times over."""

    name: str
    source: Source
    """The rows, in stored order."""
    reads: JSON
    """What tells `source` apart."""
    seed: int
    """Seed of the first epoch; that of the next one is greater by 1."""
    epochs: int = 1
    """How many there are, one after the other."""
    told: Mapping[str, JSON] = field(default_factory=dict)
    """What else is to be known of the copy: it follows from `reads`."""
    limits: SortLimits = field(default_factory=SortLimits)
    cuts: Cuts = Cuts()  # noqa: RUF009 -- a frozen value

    @property
    def identity(self) -> Mapping[str, JSON]:
        return {
            "kind": "full shuffle",
            "version": 1,
            # The order depends on the name.
            "name": self.name,
            "seed": self.seed,
            "epochs": self.epochs,
            "cuts": self.cuts.to_json(),
            "reads": self.reads,
        }

    def schema(self) -> pa.Schema:
        """Return the columns of the source.

        Raises:
            SchemaError: A column's type cannot be sorted along.
        """
        carried_schema(self.name, self.source.schema)
        return self.source.schema

    def parts(self, schema: pa.Schema, after: Cursor | None) -> Iterator[Part]:
        """Yield the parts; those after a cursor take one sort of what is left of its epoch.

        A cursor says how many rows there are before it, over all epochs, and by what the last of them was sorted.

        Raises:
            ConfigError: DuckDB is not installed.
            StoreError: The disk that rows are sorted on has too little room.
        """
        done = number_of(after, "rows")
        with closing(self._sorted(schema, after)) as found:
            for groups in cut(found, self.cuts):
                done += sum(group.num_rows for group in groups)
                key, place = (groups[-1].column(column)[-1].as_py() for column in (0, 1))
                rows = [group.select(range(2, group.num_columns)) for group in groups]
                yield Part(rows, {"rows": done, "key": key, "place": place})

    def facts(self, last: Cursor | None) -> Mapping[str, JSON]:
        """Return the number of epochs, and what else is told.

        Raises:
            CorruptionError: There are not as many rows as in so many epochs.
        """
        rows = number_of(last, "rows")
        if rows != self.epochs * self.source.rows:
            raise CorruptionError(
                f"dataset {self.name!r}: expected {self.epochs} times {self.source.rows} rows in the shuffled copy, "
                f"found {rows}; remove the copy, and prepare it again"
            )
        return {"epochs": self.epochs, **self.told}

    def _sorted(self, schema: pa.Schema, after: Cursor | None) -> Generator[pa.Table, None, None]:
        """Yield all epochs' rows after a cursor in their order, behind two columns: key and place."""
        size = self.source.rows
        if not size:
            return
        first, begun = divmod(number_of(after, "rows"), size)
        with_keys = pa.schema([pa.field("", pa.uint64()), pa.field("", pa.int64()), *schema])
        with opened_sorter(self.name, schema, self.limits) as sorter:
            for epoch in range(first, self.epochs):
                last = None
                if epoch == first and begun:
                    last = number_of(after, "key"), number_of(after, "place")
                with closing(sorter.sorted(self._keyed(epoch, last))) as found:
                    for piece in found:
                        columns = [pa.array(piece.keys), pa.array(piece.places), *piece.rows.columns]
                        yield pa.Table.from_arrays(columns, schema=with_keys)

    def _keyed(self, epoch: int, last: tuple[int, int] | None) -> Iterator[Keyed]:
        """Yield the rows of an epoch as they are stored, with their keys: those that come after `last`."""
        path = full_path(self.seed + epoch, self.name)
        for start, rows in pieces(self.source):
            keys = random_keys(rows.num_rows, *path, first=start)
            places = np.arange(start, start + rows.num_rows)
            if last is None:
                yield Keyed(keys, places, rows)
                continue
            comes: npt.NDArray[np.bool_] = (keys > last[0]) | ((keys == last[0]) & (places > last[1]))
            if comes.any():
                yield Keyed(keys[comes], places[comes], rows.filter(pa.array(comes)))
