"""Sorting more rows than fit into memory: DuckDB sorts, and nothing of a row is shown to it but bits.

DuckDB's sort holds about 120,000 rows at a time, whatever they take, before it gives back the first one. So rows that
are wide do not go through it: they are put aside in a file of their own, and only where they lie there is sorted.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mixer.errors import ConfigError, MixerError, StoreError
from mixer.preparation.carrying import carried_schema, carry, restore
from mixer.preparation.cutting import row_bytes
from mixer.preparation.scratch import scratch_file, scratch_folder

Int64s = npt.NDArray[np.int64]

_ROWS_HELD = 122_880
"""Rows that each thread of DuckDB holds decoded while it merges."""
_ROWS_GIVEN = 8192
"""Rows of a batch that comes out of it."""
_ASIDE_BYTES = 16 << 20
"""About how much of what was put aside is read at a time."""
_NO_ROOM = ("Out of Memory Error", "IO Error")
"""How DuckDB's errors begin that tell of memory and disks."""
_KEYS = pa.schema(
    {"sort_key": pa.uint64(), "sort_place": pa.int64(), "aside_at": pa.int64(), "aside_length": pa.int64()}
)


@dataclass(frozen=True, slots=True)
class SortLimits:
    """What a sort may take; it makes no difference to what comes of it."""

    memory_bytes: int = 1 << 30
    """Memory of the sort itself; beside it the process takes some 100 MiB."""
    threads: int = 1
    """More of them need more memory, and wait for the reader."""
    scratch: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))
    """Folder on a disk with room for all the rows, decoded."""
    narrow_bytes: int | None = None
    """Rows of more than this are put aside; as memory allows, if left out."""

    @property
    def narrow(self) -> int:
        """Rows of more bytes than this are put aside.

        >>> SortLimits().narrow
        4369
        """
        if self.narrow_bytes is not None:
            return self.narrow_bytes
        return self.memory_bytes // (2 * self.threads * _ROWS_HELD)


@dataclass(frozen=True, slots=True)
class Keyed:
    """Rows, and what they are sorted by."""

    keys: npt.NDArray[np.uint64]
    """Shape ``(rows,)``."""
    places: Int64s
    """What comes first of equal keys; no two rows have both alike; shape ``(rows,)``."""
    rows: pa.Table

    def slice(self, start: int, stop: int) -> Keyed:
        """Return the rows ``[start, stop)``."""
        return Keyed(self.keys[start:stop], self.places[start:stop], self.rows.slice(start, stop - start))


@dataclass(frozen=True)
class Sorter:
    """A database that sorts rows of one kind, as often as it is asked; for one thread."""

    name: str
    """The dataset's, for messages."""
    schema: pa.Schema
    """The columns of the rows."""
    limits: SortLimits
    folder: Path
    """For what does not fit into memory."""
    database: Any
    carried: pa.Schema
    """The columns as they travel."""

    def sorted(self, rows: Iterable[Keyed]) -> Generator[Keyed, None, None]:
        """Yield `rows` by key, then by place, bit for bit as they were, some MiB at a time; to be closed.

        Args:
            rows: In pieces of some MiB; they are taken when the first sorted row is asked for.

        Raises:
            StoreError: The disk of the scratch folder has too little room, or fails.
        """
        with _blaming(self.name, self.limits.scratch), scratch_file(self.folder, "aside") as aside:
            feed = _Feed(rows, self.carried, self.limits.narrow, aside)
            try:
                self.database.register("feed", pa.RecordBatchReader.from_batches(feed.schema, feed.batches()))
                columns = ", ".join(feed.schema.names)
                query = f"SELECT {columns} FROM feed ORDER BY sort_key, sort_place"  # noqa: S608 -- names made here
                for batch in self.database.sql(query).to_arrow_reader(_ROWS_GIVEN):
                    yield from _given_back(batch, self.schema, self.carried, aside)
            except (_duckdb(self.name).Error, pa.ArrowException, OSError) as error:
                if feed.failure is not None:
                    raise feed.failure from None
                # Of what is raised while sorted rows are taken only the text is left.
                if any(kind in str(error) for kind in _NO_ROOM):
                    raise _no_room(self.name, self.limits.scratch, error) from error
                raise


@contextmanager
def opened_sorter(name: str, schema: pa.Schema, limits: SortLimits) -> Iterator[Sorter]:
    """Give a sorter; what it has left on a disk is removed at the end, and what killed ones have left before.

    Args:
        name: The dataset's name, for messages.
        schema: The columns of the rows.
        limits: What a sort may take.

    Raises:
        ConfigError: DuckDB is not installed.
        SchemaError: A column's type cannot be carried, see `carried_schema`.
        StoreError: The scratch folder cannot be used.
    """
    duckdb = _duckdb(name)
    carried = carried_schema(name, schema)
    with (
        _blaming(name, limits.scratch),
        scratch_folder(_there(limits.scratch)) as folder,
        closing(_connected(duckdb, folder, limits)) as database,
    ):
        yield Sorter(name, schema, limits, folder, database, carried)


def _there(scratch: Path) -> Path:
    """Return the scratch folder, made if it is not there, but not where it lies: that may have been removed."""
    scratch.parent.mkdir(exist_ok=True)
    scratch.mkdir(exist_ok=True)
    return scratch


def _duckdb(name: str) -> ModuleType:
    try:
        import duckdb  # noqa: PLC0415 -- an extra
    except ImportError as error:
        raise ConfigError(
            f"dataset {name!r}: DuckDB, which sorts its rows, is not installed; install it with "
            f"pip install 'mixer[sort]'"
        ) from error
    return duckdb


def _connected(duckdb: ModuleType, folder: Path, limits: SortLimits) -> Any:
    database = duckdb.connect(
        ":memory:",
        config={
            "threads": limits.threads,
            "memory_limit": f"{limits.memory_bytes}B",
            "temp_directory": str(folder / "duckdb"),
            # Rows come in the order of the query; that in which they were read is nobody's business.
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        },
    )
    # In a notebook it would draw one.
    database.execute("SET enable_progress_bar = false")
    return database


class _Feed:
    """Rows on their way into the sort."""

    def __init__(self, rows: Iterable[Keyed], carried: pa.Schema, narrow_bytes: int, aside: IO[bytes]) -> None:
        self.schema = pa.schema([*_KEYS, *carried])
        self.failure: MixerError | OSError | None = None
        """What was raised by whoever gives the rows, or by the file of those that are put aside."""
        self._rows = rows
        self._carried = carried
        self._narrow_bytes = narrow_bytes
        self._aside = aside
        self._aside_bytes = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows with their keys, as they travel."""
        try:
            for piece in self._rows:
                is_wide = row_bytes(piece.rows) > self._narrow_bytes
                if not is_wide.any():
                    yield from self._narrow(piece)
                    continue
                for mask, batches in ((~is_wide, self._narrow), (is_wide, self._wide)):
                    chosen = piece.rows.filter(pa.array(mask))
                    yield from batches(Keyed(piece.keys[mask], piece.places[mask], chosen))
        except (MixerError, OSError) as error:
            # What comes through the database has lost its type.
            self.failure = error
            raise

    def _narrow(self, piece: Keyed) -> Iterator[pa.RecordBatch]:
        start = 0
        for batch in piece.rows.combine_chunks().to_batches():
            stop = start + batch.num_rows
            none = np.full(batch.num_rows, -1, dtype=np.int64)
            yield self._batch(piece.slice(start, stop), none, none, carry(batch, self._carried))
            start = stop

    def _wide(self, piece: Keyed) -> Iterator[pa.RecordBatch]:
        lengths = []
        for batch in piece.rows.to_batches():
            for row in range(batch.num_rows):
                data = batch.slice(row, 1).serialize()
                written = 0
                while written < data.size:
                    written += self._aside.write(memoryview(data)[written:])
                lengths.append(data.size)
        ends = np.cumsum(lengths, dtype=np.int64) + self._aside_bytes
        self._aside_bytes = int(ends[-1])
        nothing = [pa.nulls(len(lengths), column.type) for column in self._carried]
        yield self._batch(piece, ends - lengths, np.array(lengths, dtype=np.int64), nothing)

    def _batch(self, piece: Keyed, at: Int64s, lengths: Int64s, columns: list[pa.Array]) -> pa.RecordBatch:
        keys = [pa.array(each) for each in (piece.keys, piece.places, at, lengths)]
        return pa.RecordBatch.from_arrays([*keys, *columns], schema=self.schema)


def _given_back(batch: pa.RecordBatch, schema: pa.Schema, carried: pa.Schema, aside: IO[bytes]) -> Iterator[Keyed]:
    """Yield the rows of a sorted batch as they were, with those that were put aside."""
    keys, places, at, lengths = (batch.column(place).to_numpy() for place in range(len(_KEYS)))
    rows = pa.Table.from_batches([restore(batch.columns[len(_KEYS) :], carried, schema)])
    loads = np.cumsum(np.maximum(lengths, 0))
    start = 0
    while start < len(at):
        before = int(loads[start - 1]) if start else 0
        stop = min(len(at), int(np.searchsorted(loads, before + _ASIDE_BYTES)) + 1)
        pieces = []
        done = start
        for row in (start + np.flatnonzero(at[start:stop] >= 0)).tolist():
            pieces.append(rows.slice(done, row - done))
            data = _read_at(aside, int(at[row]), int(lengths[row]))
            pieces.append(pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(data), schema)]))
            done = row + 1
        pieces.append(rows.slice(done, stop - done))
        yield Keyed(keys[start:stop], places[start:stop], pa.concat_tables(pieces))
        start = stop


def _read_at(file: IO[bytes], start: int, length: int) -> bytearray:
    data = bytearray(length)
    done = 0
    # A single call reads at most 2 GiB.
    while done < length:
        read = os.preadv(file.fileno(), [memoryview(data)[done:]], start + done)
        if not read:
            raise OSError(f"{file.name}: expected {length} bytes from {start}, found {done}")
        done += read
    return data


@contextmanager
def _blaming(name: str, scratch: Path) -> Iterator[None]:
    """Turn what goes wrong with the scratch folder into an error that says so."""
    try:
        yield
    except MixerError:
        raise
    except OSError as error:
        raise _no_room(name, scratch, error) from error


def _no_room(name: str, scratch: Path, error: Exception) -> StoreError:
    reason = str(error).strip().split("\n")[0]
    return StoreError(
        f"dataset {name!r}: its rows cannot be sorted in {scratch}: {reason}; the sort needs room there for all the "
        f"rows, decoded: make room, or name another place of prepared copies with `prepared` (if that is in a store: "
        f"another folder with the environment variable TMPDIR), then run again"
    )
