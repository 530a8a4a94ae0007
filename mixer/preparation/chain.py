"""Which stages make a dataset seekable, and what each of them reads: the files themselves, or the copy before it.

    rows     if the files are not Parquet
    tokens   with `window`
    batches  with `batches`
    order    with `shuffle: full`, when all datasets are there otherwise: how many passes it makes depends on them;
             of a stream of tokens it makes windows, in that order

The modules of the stages are imported when a stage is made: most runs need none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from mixer.config import DatasetConfig
from mixer.config.fields import WindowConfig
from mixer.core.fingerprint import JSON
from mixer.errors import ConfigError, InputError
from mixer.preparation.engine import Link, Place, inventory_of
from mixer.preparation.record import Copy
from mixer.schemas import Schemas, View, merge, schema_to_json
from mixer.sources.base import Source
from mixer.sources.inventory import Inventory, take_inventory
from mixer.sources.parquet import ParquetSource
from mixer.sources.windows import STREAM, check_stored, open_windows, stream_facts, windows_json
from mixer.storage.inputs import InputFile, InputListing
from mixer.storage.patterns import SUFFIXES

if TYPE_CHECKING:
    from mixer.preparation.external import SortLimits

_PREPARED = "the prepared copy of its files"
"""Where they are for people: the folder of a copy is named by a hash, and nobody has chosen its columns."""


@dataclass(frozen=True, slots=True)
class Parquet:
    """What a dataset is by now: Parquet files, its own or those of a prepared copy."""

    name: str
    inventory: Inventory
    schemas: Schemas
    copies: tuple[Copy, ...] = ()
    """The copies that were made of it, in their order."""

    def after(self, place: Place, copy: Copy) -> Parquet:
        """Return what it is after a stage that has made `copy`."""
        return Parquet(self.name, inventory_of(place, copy), [(_PREPARED, copy.schema)], (*self.copies, copy))

    @property
    def watched(self) -> tuple[InputFile, ...]:
        """The files that are to stay as they are; those of a copy do."""
        return () if self.copies else tuple(entry.file for entry in self.inventory.files)


def is_named_parquet(dataset: DatasetConfig) -> bool:
    """Return whether the config alone says that a dataset's files are Parquet, so that nobody need look at them.

    >>> is_named_parquet(DatasetConfig(path="web/*.parquet")), is_named_parquet(DatasetConfig(path="web/"))
    (True, False)
    """
    paths = [dataset.path] if isinstance(dataset.path, str) else dataset.path
    if dataset.format is not None:
        return dataset.format == "parquet"
    return all(path.lower().endswith(SUFFIXES) for path in paths)


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a dataset."""

    format: str
    listing: InputListing | None
    """None if nobody had to look at them to tell the format: of Parquet only."""

    @property
    def is_parquet(self) -> bool:
        """Whether they need not be made into rows."""
        return self.format == "parquet"


def find_files(name: str, dataset: DatasetConfig) -> Files:
    """Return the format of a dataset, and its files.

    Raises:
        ConfigError: The config says of these files what can be said of others only.
        InputError: There are none, or of several formats.
        StoreError: A remote store refused, or did not answer.
    """
    kind, listing = "parquet", None
    if not is_named_parquet(dataset):
        from mixer.formats.finding import find_rows  # noqa: PLC0415 -- see the top

        try:
            kind, listing = find_rows(dataset.path, dataset.format)
        except InputError as error:
            raise InputError(f"dataset {name!r}: {error}") from error
    if dataset.on_bad_line is not None and kind == "parquet":
        raise ConfigError(f"datasets.{name}.on_bad_line: its files are Parquet, which has no lines; leave it out")
    if dataset.document is not None and kind != "text":
        raise ConfigError(f"datasets.{name}.document: only plain text has it, and its files are {kind}; leave it out")
    return Files(kind, listing)


def rows_link(name: str, dataset: DatasetConfig, files: Files) -> Link | None:
    """Return the stage that makes Parquet of a dataset's files; None if they are Parquet."""
    if files.is_parquet or files.listing is None:
        return None
    from mixer.formats.options import RowsOptions  # noqa: PLC0415 -- see the top
    from mixer.formats.stage import RowsStage  # noqa: PLC0415 -- see the top

    options = RowsOptions(files.format, dataset.on_bad_line or "error", dataset.document or "line")
    return Link(RowsStage(name, files.listing.files, options), files.listing.files, "rows")


def as_stored(name: str, dataset: DatasetConfig, files: Files) -> Parquet:
    """Return a dataset whose files are Parquet; their footers are read.

    Raises:
        InputError, StoreError: As `take_inventory`.
    """
    inventory, found = take_inventory(name, dataset.path, files.listing)
    return Parquet(name, inventory, list(zip([entry.url for entry in inventory.files], found, strict=True)))


def has_items_link(dataset: DatasetConfig) -> bool:
    """Return whether items are made of a dataset's rows."""
    return dataset.window is not None or dataset.batches is not None


@contextmanager
def items_link(dataset: DatasetConfig, now: Parquet, place: Place, *, seed: int, fill: bool) -> Iterator[Link]:
    """Give the stage that makes tokens or batches of a dataset's rows.

    Args:
        dataset: What the config says; it has `window` or `batches`.
        now: What the dataset is by now.
        place: Where copies lie; what is sorted lies there meanwhile, if that is a local disk.
        seed: The config's.
        fill: Whether columns that a file lacks are null in it.

    Raises:
        SchemaError: The files have no columns in common.
    """
    only = None if dataset.window is None else dataset.window.text
    with _read(now, fill=fill, only=only) as (source, reads):
        if dataset.window is not None:
            from mixer.preparation.tokens import TokensStage  # noqa: PLC0415 -- see the top

            yield Link(TokensStage(now.name, dataset.window, source, reads), now.watched, "tokens")
        elif dataset.batches is not None:
            from mixer.preparation.batching import BatchesStage  # noqa: PLC0415 -- see the top

            stage = BatchesStage(now.name, dataset.batches, source, reads, seed, limits=_limits(place))
            yield Link(stage, now.watched, "batches")


@contextmanager
def order_link(  # noqa: PLR0913 -- those of `items_link` and one more
    dataset: DatasetConfig, now: Parquet, place: Place, *, seed: int, epochs: int, fill: bool
) -> Iterator[Link]:
    """Give the stage that puts a dataset's rows, or its windows, into a random order, `epochs` times.

    The rest is as of `items_link`.
    """
    from mixer.preparation.sorting import FullShuffleStage  # noqa: PLC0415 -- see the top

    window = dataset.window
    told: dict[str, JSON] = {"source_bytes": now.inventory.bytes}
    if window is not None:
        told[STREAM] = stream_facts(now.inventory.facts)
    with _read(now, fill=fill) if window is None else _read_windows(now, window) as (source, reads):
        stage = FullShuffleStage(now.name, source, reads, seed, epochs, told, limits=_limits(place))
        yield Link(stage, now.watched, "order")


def _limits(place: Place) -> SortLimits:
    """Return what a sort may take, and where: beside the copies, as the disk for those is chosen for its room."""
    from mixer.preparation.external import SortLimits  # noqa: PLC0415 -- see the top

    return SortLimits() if place.scratch is None else SortLimits(scratch=place.scratch)


@contextmanager
def _read(now: Parquet, *, fill: bool, only: str | None = None) -> Iterator[tuple[Source, JSON]]:
    """Give the rows of a dataset in its own columns, or in one alone, and what tells them apart from all others."""
    schema = merge({now.name: now.schemas}, lineage=False, views={now.name: View(fill=fill)}).schema
    if only is not None and only in schema.names:
        schema = pa.schema([schema.field(only)])
    source = ParquetSource(now.name, now.inventory, schema, view=View(fill=fill))
    with closing(source):
        yield source, {"from": _came_from(now), "columns": schema_to_json(schema)["columns"]}


@contextmanager
def _read_windows(now: Parquet, window: WindowConfig) -> Iterator[tuple[Source, JSON]]:
    """Give the windows of a dataset's stream, and what tells them apart from all others.

    Raises:
        SchemaError: They cannot be stored as the config asks.
    """
    check_stored(now.name, window, now.inventory.facts)
    with closing(open_windows(now.name, now.inventory, window)) as source:
        yield source, {"from": _came_from(now), "windows": windows_json(window)}


def _came_from(now: Parquet) -> JSON:
    if now.copies:
        return {"copy": now.copies[-1].key}
    return {"files": [[entry.url, entry.bytes, entry.version, entry.footer_sha256] for entry in now.inventory.files]}
