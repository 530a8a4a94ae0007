"""Datasets of random shape on disk, and the one table that each of them stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from mixer.schemas import merge
from mixer.sources.groups import Limits
from mixer.sources.inventory import Inventory, take_inventory
from mixer.sources.parquet import ParquetSource

Layout = Sequence[Sequence[int]]
"""Rows of each row group of each file."""

WHOLE = Limits()
PIECES = Limits(whole_group_bytes=0, piece_bytes=150)
"""So small that row groups of a few rows come in several pieces."""

layouts = st.lists(st.lists(st.integers(0, 12), max_size=4), min_size=1, max_size=5)

STORED = pa.schema(
    {
        "id": pa.int64(),
        "text": pa.string(),
        "tokens": pa.list_(pa.int32()),
        "label": pa.dictionary(pa.int8(), pa.string()),
    }
)
READ = merge({"d": [("f", STORED)]}, lineage=True).schema


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset on disk."""

    path: str
    inventory: Inventory
    table: pa.Table
    """All rows, in the types that they are read in."""
    layout: Layout

    @property
    def filled_groups(self) -> int:
        """Row groups with rows."""
        return sum(rows > 0 for file in self.layout for rows in file)

    def source(self, limits: Limits = WHOLE) -> ParquetSource:
        """A new source over it."""
        return ParquetSource("d", self.inventory, self.table.schema, limits=limits)


def rows(start: int, stop: int) -> pa.Table:
    """Return made-up rows ``[start, stop)``, as stored."""
    numbers = range(start, stop)
    return pa.table(
        [
            pa.array(numbers, pa.int64()),
            pa.array([None if number % 7 == 3 else f"text {number}" * (number % 3) for number in numbers], pa.string()),
            pa.array([list(range(number % 4)) if number % 5 else None for number in numbers], pa.list_(pa.int32())),
            pa.array(["ab"[number % 2] for number in numbers], pa.string())
            .dictionary_encode()
            .cast(STORED.field("label").type),
        ],
        schema=STORED,
    )


def written(folder: Path, layout: Layout, **options: object) -> Dataset:
    """Write a dataset of that layout and take its inventory."""
    folder.mkdir(parents=True, exist_ok=True)
    first = 0
    for number, groups in enumerate(layout):
        with pq.ParquetWriter(folder / f"part-{number:03d}.parquet", STORED, **options) as writer:
            for count in groups:
                writer.write_table(rows(first, first + count), row_group_size=max(1, count))
                first += count
    inventory, _ = take_inventory("d", str(folder))
    whole = rows(0, first)
    plain = whole.set_column(3, "label", whole["label"].cast(pa.string()))
    return Dataset(str(folder), inventory, plain.cast(READ), layout)
