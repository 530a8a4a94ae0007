"""Rows of several tables into batch order: one permutation a block, one gather a column, no loop over rows.

A block is some consecutive batches. Its rows come as one contiguous table of each dataset; in the result they
stand batch by batch, and within a batch dataset by dataset, each in its own order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mixer.core.allocation import Counts
from mixer.errors import InputError

Int64s = npt.NDArray[np.int64]

LINEAGE_SCHEMA = pa.schema(
    [
        pa.field("_dataset", pa.string(), nullable=False),
        pa.field("_row", pa.int64(), nullable=False),
        pa.field("_epoch", pa.int32(), nullable=False),
        pa.field("_batch", pa.int64(), nullable=False),
    ]
)
"""Where each row comes from: the dataset, the row's position in it as stored, in which pass over the dataset it was
taken (only in runs that may repeat one), and the batch that it is in."""

COLUMN_BYTES = (1 << 31) - 1
"""What 32-bit offsets can address; a block with a larger column is mixed in parts."""


def batch_order(counts: Counts) -> Int64s:
    """Return which row of the datasets' rows, laid end to end, stands at each place of the block.

    Args:
        counts: Items by batch and dataset, shape ``(batches, datasets)``.

    Returns:
        Places, shape ``(rows,)``; each row is there once.

    >>> batch_order(np.array([[2, 1], [1, 2]])).tolist()
    [0, 1, 3, 2, 4, 5]
    """
    taken = np.cumsum(counts, axis=0)  # (batches, datasets)
    first_of_dataset = np.cumsum(taken[-1]) - taken[-1]  # (datasets,)
    return _runs(first_of_dataset + taken - counts, counts)


def _runs(starts: Int64s, counts: Counts) -> Int64s:
    """Return ``start, start + 1, ...`` of each cell, `count` numbers long, one cell after the other."""
    lengths = counts.ravel()  # (cells,)
    first_place = np.cumsum(lengths) - lengths  # (cells,)
    runs: Int64s = np.arange(lengths.sum(), dtype=np.int64) + np.repeat(starts.ravel() - first_place, lengths)
    return runs


def lineage_columns(
    names: Sequence[str], counts: Counts, rows: Sequence[Int64s], epochs: Sequence[Int64s], first_batch: int
) -> dict[str, pa.Array]:
    """Return the columns of `LINEAGE_SCHEMA` for one block, by name.

    Args:
        names: The datasets.
        counts: Items by batch and dataset, shape ``(batches, datasets)``.
        rows: Of each dataset, which of its rows were taken, in the order in which they were.
        epochs: Of each dataset, in which pass over it each of them was taken.
        first_batch: Number of the block's first batch.

    >>> rows, epochs = [np.array([10, 11, 12]), np.array([20])], [np.array([0, 0, 1]), np.array([0])]
    >>> columns = lineage_columns(["a", "b"], np.array([[2, 1], [1, 0]]), rows, epochs, 7)
    >>> [columns[name].to_pylist() for name in ("_dataset", "_row", "_epoch", "_batch")]
    [['a', 'a', 'b', 'a'], [10, 11, 20, 12], [0, 0, 0, 1], [7, 7, 7, 8]]
    """
    batches, datasets = counts.shape
    order = batch_order(counts)
    dataset = np.repeat(np.tile(np.arange(datasets), batches), counts.ravel())
    batch = np.repeat(np.arange(first_batch, first_batch + batches, dtype=np.int64), counts.sum(axis=1))
    return {
        "_dataset": pa.array(names, pa.string()).take(pa.array(dataset)),
        "_row": pa.array(np.concatenate(rows)[order]),
        "_epoch": pa.array(np.concatenate(epochs)[order].astype(np.int32)),
        "_batch": pa.array(batch),
    }


def mix(tables: Sequence[pa.Table], counts: Counts) -> pa.Table:
    """Return the rows of one block in batch order.

    Each column comes out in one chunk, since a Parquet writer cuts pages differently when chunks differ; only a
    column of 2 GiB and more is cut, at places that follow from the rows alone.

    Args:
        tables: The block's rows of each dataset, all of one schema.
        counts: Items by batch and dataset, shape ``(batches, datasets)``; its sums are the tables' lengths.

    Raises:
        InputError: One value is larger than 2 GiB.

    >>> mix([pa.table({"x": [1, 2, 3]}), pa.table({"x": [7]})], np.array([[2, 1], [1, 0]]))["x"].to_pylist()
    [1, 2, 7, 3]
    """
    if _largest_column(tables) < COLUMN_BYTES:
        return _gather(pa.concat_tables(tables), batch_order(counts))
    if len(counts) > 1:
        middle = len(counts) // 2
        stops = counts[:middle].sum(axis=0).tolist()
        first = [table.slice(0, stop) for table, stop in zip(tables, stops, strict=True)]
        second = [table.slice(stop) for table, stop in zip(tables, stops, strict=True)]
        return pa.concat_tables([mix(first, counts[:middle]), mix(second, counts[middle:])])
    return _in_parts(pa.concat_tables(tables))


def reordered(table: pa.Table, order: Int64s) -> pa.Table:
    """Return the rows of `table` that `order` names, in that order.

    >>> reordered(pa.table({"x": [5, 6, 7]}), np.array([2, 0]))["x"].to_pylist()
    [7, 5]
    """
    if _largest_column([table]) < COLUMN_BYTES:
        return _gather(table, order)
    return table.take(pa.array(order))


def _largest_column(tables: Sequence[pa.Table]) -> int:
    """Return the bytes of the largest column of `tables`, taken together."""
    return max((sum(table[name].nbytes for table in tables) for name in tables[0].schema.names), default=0)


def _in_parts(table: pa.Table) -> pa.Table:
    """Return `table` in chunks that 32-bit offsets can address."""
    if _largest_column([table]) < COLUMN_BYTES:
        return _gather(table, None)
    if len(table) <= 1:
        raise InputError(
            f"a row holds a value of over 2 GiB, found columns {table.schema.names}; "
            f"Parquet readers cannot address it, split the value or leave the column out"
        )
    middle = len(table) // 2
    return pa.concat_tables([_in_parts(table.slice(0, middle)), _in_parts(table.slice(middle))])


def _gather(table: pa.Table, order: Int64s | None) -> pa.Table:
    """Return `table` in one chunk a column, its rows in `order`."""
    indices = None if order is None else pa.array(order)
    columns = [_gather_column(table.column(place), indices) for place in range(table.num_columns)]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _gather_column(column: pa.ChunkedArray, indices: pa.Array | None) -> pa.Array:
    chunks = column.chunks
    array = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.array([], column.type)
    if indices is None:
        return array
    if _is_flat_list(array):
        return _take_lists(array, indices)
    return array.take(indices)


def _is_flat_list(array: pa.Array) -> bool:
    """Whether `array` holds lists of fixed-width numbers, some of them not empty, with no null anywhere."""
    kind = array.type
    if not pa.types.is_list(kind) or not (
        pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type)
    ):
        return False
    return array.null_count == 0 and len(array.values) > 0 and array.values.null_count == 0


def _take_lists(array: pa.ListArray, indices: pa.Array) -> pa.ListArray:
    """Return ``array.take(indices)``, moving each list as one run of bytes.

    Arrow takes lists element by element; seen as binary values, over the same buffers, they move four times faster.
    """
    width = array.type.value_type.bit_width // 8
    values = array.values
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    byte_offsets = (offsets.astype(np.int64) + values.offset) * width
    as_bytes = pa.Array.from_buffers(
        pa.large_binary(), len(array), [None, pa.py_buffer(byte_offsets), values.buffers()[1]]
    ).take(indices)
    _, taken_offsets, taken_bytes = as_bytes.buffers()
    starts = np.frombuffer(taken_offsets, dtype=np.int64)[: len(indices) + 1] // width
    elements = pa.Array.from_buffers(array.type.value_type, int(starts[-1]), [None, taken_bytes])
    return pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), elements, type=array.type)
