"""What only rows can tell of a plan: how fast they are mixed, and how many tokens they hold. Little is read of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as kinds

from mixer.asking import items_of, views_of
from mixer.core.passes import Passes
from mixer.errors import ChangedError, ConfigError, InputError
from mixer.planning import Planned
from mixer.schemas import Column, View, merge
from mixer.sources.inventory import FileEntry, Inventory, damaged_part, read_planned_footer
from mixer.sources.parquet import ParquetSource
from mixer.sources.windows import INPUT_IDS
from mixer.writing import encoded_shards, open_sources

SAMPLE_SECONDS = 3.0
"""After so long no further row group of the run is begun."""
SAMPLE_ROWS = 65_536
SAMPLE_BYTES = 64 << 20
"""Of each dataset's lengths, the rows that are looked at: so many, or as hold so many bytes."""
_LEAST_ROWS = 256
_ROWS_OF_ALL = 1 << 22
_READ_ROWS = 8_192

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the first batches of a run were read, mixed and encoded; none of them was written."""

    rows: int
    bytes: int
    """As encoded."""
    seconds: float

    @property
    def rows_per_second(self) -> float:
        """Rows in a second."""
        return self.rows / self.seconds

    def seconds_for(self, rows: int) -> float:
        """Return what `rows` rows take at this pace."""
        return rows * self.seconds / self.rows

    def bytes_of(self, rows: int) -> int:
        """Return what `rows` rows take as encoded, if they are like these.

        >>> Pace(rows=100, bytes=5000, seconds=2.0).bytes_of(10**6)
        50000000
        """
        return self.bytes * rows // self.rows


def measure(planned: Planned, seconds: float = SAMPLE_SECONDS) -> Pace:
    """Read, mix and encode row groups of the run from its beginning, until `seconds` are over; nothing is written.

    Raises:
        ChangedError, CorruptionError, InputError, StoreError: The inputs cannot be read as they were planned.
    """
    # A shard for each row group, so that the clock is looked at often and no shard need be finished.
    plan = replace(planned.plan, batches_per_shard=planned.plan.batches_per_row_group)
    sources = open_sources(planned)
    rows = encoded = 0
    begun = time.monotonic()
    try:
        with closing(encoded_shards(replace(planned, plan=plan), sources, range(plan.shard_count))) as shards:
            for shard, data in shards:
                rows, encoded = rows + shard.rows, encoded + len(data)
                if time.monotonic() - begun >= seconds:
                    break
        elapsed = time.monotonic() - begun
    finally:
        for source in sources.values():
            source.close()
    return Pace(rows, encoded, max(elapsed, 1e-6))


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many tokens the first rows of a dataset hold, each."""

    tokens: Int64s
    rows: int
    """Rows of the whole dataset."""
    even: bool = False
    """Whether all rows hold as many as the first, which alone was looked at."""

    @property
    def complete(self) -> bool:
        """Whether the tokens of every row are known."""
        return self.even or len(self.tokens) == self.rows

    @property
    def looked_at(self) -> int:
        """How many rows are known to hold so many."""
        return self.rows if self.even else len(self.tokens)

    @property
    def mean(self) -> Fraction:
        """Tokens a row, in those that were looked at."""
        return Fraction(int(self.tokens.sum()), max(1, len(self.tokens)))

    def taken(self, passes: Passes, items: int) -> int:
        """Return the tokens in the first `items` items of the dataset: exactly if it is complete, else by the mean.

        >>> lengths = Lengths(np.array([5, 1, 1]), rows=3)
        >>> lengths.taken(Passes("web", 3), 4), Lengths(np.array([5, 1]), rows=3).taken(Passes("web", 3), 4)
        (12, 12)
        """
        if self.even or not self.complete:
            return round(self.mean * items)
        if not self.rows:
            return 0
        if passes.full:
            # Rows of the copy, which come as they lie.
            return int(self.tokens[:items].sum())
        whole, rest = divmod(items, self.rows)
        _, rows = passes.rows(items - rest, items)
        return whole * int(self.tokens.sum()) + int(self.tokens[rows].sum())


def sample_lengths(planned: Planned, column: str) -> dict[str, Lengths | None]:
    """Return the lengths that `column` tells in each dataset; None for a dataset without such a column.

    Of each dataset only this column is read, and not all of it if it is long. The column is one of the run, by its name
    there, or one of the files that the run does not take. Null counts as no token.

    Raises:
        ConfigError: No dataset has the column, or it is neither whole numbers nor a list.
        ChangedError, CorruptionError, InputError, StoreError: The inputs cannot be read as they were planned.
    """
    views = views_of(planned.config)
    most = max(_LEAST_ROWS, min(SAMPLE_ROWS, _ROWS_OF_ALL // max(1, len(views))))
    found: dict[str, Lengths | None] = {}
    for name, view in views.items():
        inventory = planned.inventories[name]
        if (window := planned.config.datasets[name].window) is not None:
            # A filled-up one counts with its pad ids, as trainers take them.
            count = items_of(planned.config.datasets[name], inventory)
            even = Lengths(np.array([window.context_length + 1]), count, even=True)
            found[name] = even if view.stored_name(column) == INPUT_IDS else None
            continue
        part = _first_files(inventory, _sample_rows(inventory, most))
        seen = _seen(planned, name, view, part, column)
        in_batches = planned.config.datasets[name].batches is not None
        found[name] = None if seen is None else _lengths(seen, inventory, most, column, in_batches=in_batches)
    if all(lengths is None for lengths in found.values()):
        raise ConfigError(f"length_column: no dataset has a column {column!r}; name one that is there, or leave it out")
    return found


def _sample_rows(inventory: Inventory, most: int) -> int:
    # The other columns count in, as the inventory knows no single ones: a list of tokens is most of its file anyway.
    row_bytes = inventory.uncompressed_bytes / max(1, inventory.rows)
    return min(inventory.rows, most, max(_LEAST_ROWS, int(SAMPLE_BYTES / max(1.0, row_bytes))))


def _first_files(inventory: Inventory, rows: int) -> Inventory:
    """Return the first files of a dataset, as many as hold `rows` rows."""
    count, seen = 0, 0
    while count < len(inventory.files) and (seen < rows or not count):
        seen += inventory.files[count].rows
        count += 1
    return replace(inventory, files=inventory.files[:count])


def _footer(name: str, part: Inventory, file: FileEntry) -> pq.FileMetaData:
    try:
        return part.footers.get(file.url) or read_planned_footer(name, file)
    except ChangedError as error:
        if part.copy_key is None:
            raise
        raise damaged_part(f"dataset {name!r}, file {file.url}", file) from error


def _seen(planned: Planned, name: str, view: View, part: Inventory, column: str) -> ParquetSource | None:
    """Return the rows of some files of a dataset in this column alone; None if they have none."""
    stored = view.stored_name(column) if column in planned.schema.names else None
    in_run = stored is not None
    if stored is None:
        stored = column
        view = View((Column(column, column),), fill=True)
    footers = [(file.url, _footer(name, part, file)) for file in part.files]
    schemas = [(url, footer.schema.to_arrow_schema()) for url, footer in footers]
    if not any(stored in schema.names for _, schema in schemas):
        return None
    schema = (
        pa.schema([planned.schema.field(column)])
        if in_run
        else merge({name: schemas}, lineage=False, views={name: view}).schema
    )
    kind = schema.field(column).type
    inner = kind.value_type if planned.config.datasets[name].batches and kinds.is_list(kind) else kind
    if not (kinds.is_integer(inner) or kinds.is_list(inner)):
        raise ConfigError(
            f"length_column: column {column!r} of dataset {name!r} is {kind}; expected whole numbers, or a list"
        )
    return ParquetSource(name, part, schema, view=view)


def _lengths(source: ParquetSource, inventory: Inventory, most: int, column: str, *, in_batches: bool) -> Lengths:
    with closing(source):
        stop = min(_sample_rows(inventory, most), source.rows)
        parts = [np.empty(0, dtype=np.int64), *_read(source, stop, column, in_batches=in_batches)]
    return Lengths(np.concatenate(parts), inventory.rows)


def _read(source: ParquetSource, stop: int, column: str, *, in_batches: bool) -> Iterator[Int64s]:
    """Yield the lengths of a source's first rows, a part after the other; of a batch those of its rows together."""
    for start in range(0, stop, _READ_ROWS):
        values = stored = source.read(start, min(stop, start + _READ_ROWS)).column(column)
        if in_batches:
            values = pc.list_flatten(stored)
        lengths = values if kinds.is_integer(values.type) else pc.list_value_length(values)
        try:
            tokens = pc.fill_null(lengths, 0).cast(pa.int64()).to_numpy()
        except pa.ArrowInvalid as error:
            raise InputError(f"length_column: column {column!r} of dataset {source.name!r}: {error}") from error
        if len(tokens) and int(tokens.min()) < 0:
            raise InputError(f"length_column: column {column!r} of dataset {source.name!r} holds negative numbers")
        if in_batches:
            ends = np.cumsum(pc.fill_null(pc.list_value_length(stored), 0).to_numpy())
            sums = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(tokens)])[ends]
            tokens = np.diff(sums, prepend=0)
        yield tokens
