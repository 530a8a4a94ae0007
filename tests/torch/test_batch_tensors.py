"""Columns as tensors, whatever rows of whatever memory they are, held to what Arrow itself says of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import combinations_with_replacement, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import mixer
from mixer import building
from mixer.torch import MixedBatches
from mixer.torch.batch_tensors import Options, Ragged, Value, column_of
from tests.mixes import mix_config

PLAIN = Options({}, frozenset())
RAGGED = Options({}, frozenset({"x"}))

NUMBERS = ["int8", "uint16", "int32", "int64", "float16", "float32", "float64"]
"""All hold the whole numbers up to 127."""
LEVELS = ["list", "large_list", "fixed"]


def parts(rows: int) -> list[tuple[int, int]]:
    """Return where each part of that many rows begins and ends."""
    return list(combinations_with_replacement(range(rows + 1), 2))


def listed(value: Value) -> list[Any]:
    """Return a batch's part of a column as plain lists."""
    if isinstance(value, Ragged):
        values, offsets = value.values.tolist(), value.offsets.tolist()
        assert (offsets[0], offsets[-1]) == (0, len(values))
        return [values[start:stop] for start, stop in pairwise(offsets)]
    rows: list[Any] = value if isinstance(value, list) else value.tolist()
    return [row.tolist() if isinstance(row, Tensor) else row for row in rows]


def inside(array: pa.Array, before: int, after: int) -> pa.Array:
    """Return an equal array that is a part of a longer one, as are rows of a decoded row group."""
    first, last = (array.slice(0, 1), array.slice(len(array) - 1)) if len(array) else (array, array)
    return pa.concat_arrays([first] * before + [array] + [last] * after).slice(before * len(first), len(array))


def nested(number: str, levels: Sequence[str], shape: Sequence[int], beside: int) -> pa.Array:
    """Return lists of one shape in each other, each level of which is a part of something longer."""
    array = pa.array(np.arange(np.prod(shape, dtype=np.int64)) % 128).cast(pa.type_for_alias(number))
    for level, length in reversed(list(zip(levels, shape[1:], strict=True))):
        array = inside(array, beside, beside)
        if level == "fixed":
            array = pa.FixedSizeListArray.from_arrays(array, length)
            continue
        bounds = pa.array(range(0, len(array) + 1, length), pa.int64() if level == "large_list" else pa.int32())
        kind = pa.LargeListArray if level == "large_list" else pa.ListArray
        array = kind.from_arrays(bounds, array)
    return inside(array, beside, beside)


@pytest.mark.parametrize(
    "levels", [levels for depth in range(4) for levels in product(LEVELS, repeat=depth)], ids="-".join
)
def test_any_rows_of_regular_lists_of_any_depth_and_kind_are_what_arrow_says(levels: tuple[str, ...]) -> None:
    shape = (4, 3, 2, 2)[: len(levels) + 1]
    for number, beside in product(NUMBERS if len(levels) < 2 else ["int32"], (0, 1, 2)):
        array = nested(number, levels, shape, beside)
        expected = array.to_pylist()
        for cut in (0, 3):
            chunks = [array.slice(0, cut), array.slice(cut)] if cut else [array]
            column = column_of("x", pa.chunked_array(chunks), PLAIN)
            for start, stop in parts(4):
                assert listed(column.rows(start, stop)) == expected[start:stop]


@given(st.data(), st.sampled_from(NUMBERS), st.lists(st.integers(0, 4), min_size=1, max_size=6), st.booleans())
def test_ragged_lists_of_any_part_of_an_array_are_what_arrow_says(
    data: st.DataObject, number: str, lengths: list[int], is_deep: bool
) -> None:
    rows = [[10 * row + place for place in range(length)] for row, length in enumerate(lengths)]
    inner = pa.list_(pa.type_for_alias(number))
    whole = pa.array([[one, one] for one in rows], pa.large_list(inner)) if is_deep else pa.array(rows, inner)
    array = whole.slice(data.draw(st.integers(0, len(rows))))
    expected = array.to_pylist()
    start = data.draw(st.integers(0, len(array)))
    stop = data.draw(st.integers(start, len(array)))
    assert listed(column_of("x", pa.chunked_array([array]), RAGGED).rows(start, stop)) == expected[start:stop]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), "fixed"], ids=str)
def test_numbers_in_binary_rows_of_any_part_of_an_array_are_what_was_put_there(kind: Any, number: str) -> None:
    dtype = np.dtype(number).newbyteorder("<")
    lengths = [3, 3, 3, 3] if kind == "fixed" else [2, 0, 3, 1]
    rows = [[20 * row + place for place in range(length)] for row, length in enumerate(lengths)]
    whole = pa.array(
        [np.array(row, dtype).tobytes() for row in rows], pa.binary(3 * dtype.itemsize) if kind == "fixed" else kind
    )
    for first, last in parts(4):
        array = pa.chunked_array([whole.slice(first, last - first)])
        column = column_of("x", array, Options({"x": number}, frozenset({"x"})))
        for start, stop in parts(last - first):
            assert listed(column.rows(start, stop)) == rows[first:last][start:stop]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_each_rank_gets_its_rows_from_any_batch_of_a_row_group_on(tmp_path: Path, world_size: int) -> None:
    rows = range(48)
    lengths = [2 + row // 6 % 3 for row in rows]
    ids = [[100 * row + place for place in range(length)] for row, length in zip(rows, lengths, strict=True)]
    columns = {
        "ids": pa.array(ids, pa.list_(pa.int32())),
        "deep": pa.array([[one, one] for one in ids], pa.list_(pa.list_(pa.int64()))),
        "pair": pa.array([[row, -row] for row in rows], pa.list_(pa.int16(), 2)),
        "ragged": pa.array([[row] * (row % 4) for row in rows], pa.list_(pa.uint8())),
        "windows": pa.array([np.array(one, "<u2").tobytes() for one in ids], pa.binary()),
        "x": [row / 8 for row in rows],
    }
    pq.write_table(pa.table(columns), tmp_path / "lists.parquet")
    datasets = {"lists": {"path": str(tmp_path / "lists.parquet"), "weight": 1}}
    config = mix_config(
        tmp_path, batch_size=6, batches=8, batches_per_shard=8, batches_per_row_group=4, datasets=datasets
    )
    building.build(config)
    part: dict[str, Any] = {"rank": world_size - 1, "world_size": world_size, "columns": list(columns)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = [table.to_pydict() for table in mixer.read(config.output, **part)]
    assert expected[0]["ids"] == ids[: len(expected[0]["ids"]) * world_size][world_size - 1 :: world_size]
    for batch in expected:
        batch["windows"] = batch["ids"]
    for start in range(8):
        found = MixedBatches(config.output, start_batch=start, binary={"windows": "uint16"}, ragged=["ragged"], **part)
        assert [{name: listed(value) for name, value in batch.items()} for batch in found] == expected[start:]


def test_memory_that_somebody_else_has_is_copied_before_it_may_be_written_to() -> None:
    # As a shard that was read whole is held.
    data = np.arange(6, dtype="<i4").tobytes()
    plain = pa.Array.from_buffers(pa.int32(), 6, [None, pa.py_buffer(data)])
    lists = pa.ListArray.from_arrays(pa.array([0, 3, 6], pa.int32()), plain)
    bounds = pa.py_buffer(np.array([0, 12, 24], np.int32).tobytes())
    binary = pa.Array.from_buffers(pa.binary(), 2, [None, bounds, pa.py_buffer(data)])
    fixed = pa.Array.from_buffers(pa.binary(12), 2, [None, pa.py_buffer(data)])
    for array, options in (
        (plain, PLAIN),
        (lists, PLAIN),
        (binary, Options({"x": "int32"}, frozenset())),
        (fixed, Options({"x": "int32"}, frozenset())),
    ):
        value = column_of("x", pa.chunked_array([array]), options).rows(0, len(array))
        assert not isinstance(value, Ragged | list)
        assert value.flatten().tolist() == list(range(6))
        value.fill_(-1)
        assert data == np.arange(6, dtype="<i4").tobytes()


def test_memory_that_nobody_else_has_is_not_copied() -> None:
    array = pa.compute.add(pa.array(range(6)), 1)
    value = column_of("x", pa.chunked_array([array.slice(2)]), PLAIN).rows(1, 3)
    assert not isinstance(value, Ragged | list)
    assert value.data_ptr() == array.buffers()[1].address + 3 * 8
    value.fill_(-1)
    assert array.to_pylist() == [1, 2, 3, -1, -1, 6]


def test_numbers_at_an_odd_place_of_a_binary_column_are_brought_to_an_even_one(tmp_path: Path) -> None:
    """A row of another length before them, in a batch that is not read, moves them to wherever it ends."""
    rows = [b"odd"] + [np.arange(row, row + 2, dtype="<i8").tobytes() for row in range(1, 8)]
    pq.write_table(pa.table({"windows": pa.array(rows, pa.binary())}), tmp_path / "a.parquet")
    datasets = {"a": {"path": str(tmp_path / "a.parquet"), "weight": 1}}
    config = mix_config(
        tmp_path, batch_size=1, batches=8, batches_per_shard=8, batches_per_row_group=8, datasets=datasets
    )
    building.build(config)
    dataset = MixedBatches(config.output, start_batch=1, columns=["windows"], binary={"windows": "int64"})
    windows = [batch["windows"] for batch in dataset]
    assert [window.tolist() for window in windows] == [[[row, row + 1]] for row in range(1, 8)]
    assert [window.data_ptr() % 8 for window in windows] == [0] * 7
