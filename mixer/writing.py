"""Rows into the bytes of shards: read, mix and encode, a row group at a time.

A block, some consecutive batches, is read, gathered, encoded and dropped before the one after it, so it stays in
the processor's cache and memory does not grow with the shard. The next block is read in a thread meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from mixer.asking import views_of
from mixer.core.plan import Plan, ShardSpec
from mixer.mixing import lineage_columns, mix
from mixer.planning import Planned
from mixer.schemas import View
from mixer.shards import encode, footer
from mixer.sources.base import Source
from mixer.sources.files import OpenFiles
from mixer.sources.parquet import ParquetSource
from mixer.sources.passes import PassedSource
from mixer.sources.windows import open_windows, windows_to_make


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of some consecutive batches, still apart by dataset: what becomes one row group."""

    first_batch: int
    batches: int
    starts: tuple[int, ...]
    """Offset of the first item in each dataset."""
    tables: tuple[pa.Table, ...]
    """The rows of each dataset."""


def open_sources(planned: Planned) -> dict[str, Source]:
    """Return the run's datasets, each in its order and in the run's schema; nothing is opened before it is read."""
    # Together, so that very many datasets do not keep a file open each.
    files = OpenFiles()
    views = views_of(planned.config)
    return {
        one.name: PassedSource(_opened(planned, one.name, views[one.name], files), one) for one in planned.plan.passes
    }


def _opened(planned: Planned, name: str, view: View, files: OpenFiles) -> Source:
    """Return a dataset as stored, or the windows of its stream, in the run's schema."""
    inventory = planned.inventories[name]
    window = windows_to_make(planned.config.datasets[name].window, inventory)
    if window is None:
        return ParquetSource(name, inventory, planned.schema, view=view, files=files)
    return open_windows(name, inventory, window, schema=planned.schema, view=view, files=files)


def encoded_shards(
    planned: Planned, sources: Mapping[str, Source], shards: range
) -> Generator[tuple[ShardSpec, bytes], None, None]:
    """Yield each of `shards` with the bytes of its Parquet file; each is made when it is asked for.

    Args:
        planned: The run.
        sources: The run's datasets, in the run's schema. They are read in one thread, and in order.
        shards: Consecutive shards.
    """
    plan = planned.plan
    with closing(_ahead(_blocks(plan, sources, shards))) as blocks:
        for index in shards:
            shard = plan.shard(index)
            count = -(-shard.batches // plan.batches_per_row_group)
            tables = (_mixed(block, planned) for block in islice(blocks, count))
            yield shard, encode(tables, planned.shard_schema, planned.settings, footer(plan, shard, planned.run))


def _blocks(plan: Plan, sources: Mapping[str, Source], shards: range) -> Iterator[Block]:
    """Yield the blocks of `shards`, read from `sources` in the order in which they lie."""
    for index in shards:
        shard = plan.shard(index)
        for first in range(shard.first_batch, shard.stop_batch, plan.batches_per_row_group):
            stop = min(first + plan.batches_per_row_group, shard.stop_batch)
            starts, stops = plan.schedule.offsets_at(first), plan.schedule.offsets_at(stop)
            tables = tuple(
                sources[name].read(start, end) for name, start, end in zip(plan.names, starts, stops, strict=True)
            )
            yield Block(first, stop - first, starts, tables)


def _ahead(blocks: Iterator[Block]) -> Generator[Block, None, None]:
    """Yield `blocks`, each read in a thread while the one before it is worked on."""
    with ThreadPoolExecutor(1, thread_name_prefix="mixer-read") as reader:
        future = reader.submit(next, blocks, None)
        while (block := future.result()) is not None:
            future = reader.submit(next, blocks, None)
            yield block


def _mixed(block: Block, planned: Planned) -> pa.Table:
    """Return the block's rows in batch order, with their lineage."""
    plan = planned.plan
    counts = plan.counts(block.first_batch, block.first_batch + block.batches)
    table = mix(block.tables, counts)
    if not planned.definition["lineage"]:
        return table
    taken = [
        passes.rows(start, start + len(part))
        for passes, start, part in zip(plan.passes, block.starts, block.tables, strict=True)
    ]
    epochs, rows = zip(*taken, strict=True)
    lineage = lineage_columns(plan.names, counts, rows, epochs, block.first_batch)
    columns = {**dict(zip(table.column_names, table.columns, strict=True)), **lineage}
    return pa.Table.from_arrays([columns[name] for name in planned.shard_schema.names], schema=planned.shard_schema)
