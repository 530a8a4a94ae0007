from __future__ import annotations

import array
import io
import itertools
import pickle
from collections.abc import Sequence
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer.torch import SlidingWindowDataset
from tests.profiles import sized

KINDS: list[Any] = [np.uint8, np.uint16, np.uint32, np.int32, np.int64, np.uint64, np.dtype(">i4")]


def chunked(ids: list[int], cuts: list[int], kind: pa.DataType) -> pa.ChunkedArray:
    edges = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    return pa.chunked_array([ids[start:stop] for start, stop in itertools.pairwise(edges)], kind)


def pairs(ds: SlidingWindowDataset, indices: Sequence[int] | None = None) -> list[tuple[list[int], list[int]]]:
    """Return all windows, or those asked for, one by one."""
    found = []
    for index in range(len(ds)) if indices is None else indices:
        inputs, targets = ds[index]
        assert inputs.dtype == targets.dtype == torch.int64
        assert inputs.shape == targets.shape == (ds.context_length,)
        found.append((inputs.tolist(), targets.tolist()))
    return found


streams = st.lists(st.integers(0, 250), max_size=40)
sizes = st.integers(1, 9)


@settings(max_examples=sized(short=40, long=1000))
@given(streams, sizes, sizes, st.lists(st.integers(0, 40), max_size=4), st.booleans())
def test_windows_are_slices_of_any_buffer(
    ids: list[int], context_length: int, stride: int, cuts: list[int], padded: bool
) -> None:
    expected = []
    start = 0
    while start + context_length + 1 <= len(ids):
        expected.append((ids[start : start + context_length], ids[start + 1 : start + context_length + 1]))
        start += stride
    seen = start - stride + context_length if expected else 0
    if padded and len(ids) - 1 > max(seen, start):
        inputs, targets = ids[start:], ids[start + 1 :]
        expected.append(
            (inputs + [251] * (context_length - len(inputs)), targets + [-7] * (context_length - len(targets)))
        )
    buffers: list[Any] = [
        ids,
        tuple(ids),
        array.array("H", ids),
        torch.tensor(ids, dtype=torch.int32),
        torch.tensor(ids, dtype=torch.uint16),
        pa.array(ids, pa.uint32()),
        pa.array([9, *ids, 9], pa.int64()).slice(1, len(ids)),
        chunked(ids, cuts, pa.uint16()),
        *(np.array(ids, dtype=kind) for kind in KINDS),
        np.repeat(np.array(ids, dtype=np.int16), 2)[::2],
        np.array(ids[::-1], dtype=np.int64)[::-1],
    ]
    for buffer in buffers:
        ds = SlidingWindowDataset(buffer, context_length, stride, pad_id=251 if padded else None, ignore_index=-7)
        assert len(ds) == len(expected)
        assert pairs(ds) == expected
        assert pairs(pickle.loads(pickle.dumps(ds))) == expected  # noqa: S301 -- our own
    assert SlidingWindowDataset.count(len(ids), context_length, stride, padded=padded) == len(expected)
    if not padded:
        assert len(expected) == max(0, 1 + (len(ids) - (context_length + 1)) // stride)


@settings(max_examples=sized(short=50, long=1000))
@given(streams, sizes, sizes, st.lists(st.integers(0, 40), max_size=4), st.data())
def test_several_windows_at_once_are_those_one_by_one(
    ids: list[int], context_length: int, stride: int, cuts: list[int], data: st.DataObject
) -> None:
    for buffer in (ids, chunked(ids, cuts, pa.int32())):
        ds = SlidingWindowDataset(buffer, context_length, stride, pad_id=0)
        if not len(ds):
            assert ds.__getitems__([]) == []
            continue
        wanted = data.draw(st.lists(st.integers(-len(ds), len(ds) - 1), max_size=8))
        several = ds.__getitems__(wanted)
        assert [(inputs.tolist(), targets.tolist()) for inputs, targets in several] == [
            pairs(ds)[index] for index in wanted
        ]


def test_no_window_shares_memory_with_another_or_with_the_stream() -> None:
    ids = np.arange(20)
    ds = SlidingWindowDataset(ids, 4, 1)
    several = ds.__getitems__([0, 1])
    for inputs, targets in several:
        inputs.zero_()
        targets.fill_(1)
    assert several[1][0].tolist() == [0] * 4
    assert ids.tolist() == list(range(20))
    assert ds[0][1].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("index", [3, -4, 100])
def test_a_window_that_is_not_there_is_an_index_error(index: int) -> None:
    ds = SlidingWindowDataset(range(7), 4, 1)
    with pytest.raises(IndexError, match=f"^window {index} of 3$"):
        ds[index]
    with pytest.raises(IndexError, match=f"^window {index} of 3$"):
        ds.__getitems__([0, index])
    assert len(list(ds)) == 3  # type: ignore[call-overload] # ends by the IndexError


def test_a_stride_beyond_64_bits_leads_to_one_window() -> None:
    ds = SlidingWindowDataset(range(7), 4, 10**30)
    assert [window.tolist() for window in ds[0]] == [[0, 1, 2, 3], [1, 2, 3, 4]]
    assert len(ds) == 1


def test_numbers_of_other_libraries_are_numbers() -> None:
    ds = SlidingWindowDataset(range(7), 4, 1)
    for index in (np.int64(2), torch.tensor(2), -1):
        assert ds[index][0].tolist() == [2, 3, 4, 5]  # type: ignore[index] # tried
    with pytest.raises(TypeError):
        ds[1.0]  # type: ignore[index] # tried


@pytest.mark.parametrize("kind", ["numpy", "tensor", "arrow", "chunked arrow"])
def test_a_stream_is_used_where_it_lies(kind: str) -> None:
    ids = np.arange(1000, dtype=np.uint16)
    buffers: dict[str, Any] = {
        "numpy": ids,
        "tensor": torch.from_numpy(ids),
        "arrow": pa.array(ids),
        "chunked arrow": pa.chunked_array([pa.array(ids[:500]), pa.array(ids[500:])]),
    }
    ds = SlidingWindowDataset(buffers[kind], 4, 1)
    ids[499:501] = 7
    assert ds[498][0].tolist() == [498, 7, 7, 501]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of ids after 6 bytes of something else, a page and more of them."""
    path = tmp_path / "tokens.bin"
    path.write_bytes(b"header" + (np.arange(100_000) % 65_521).astype("<u2").tobytes())
    return path


@pytest.mark.parametrize(
    "part",
    [
        slice(None),
        slice(50_000, 50_040),
        slice(99_980, None),
        slice(10, 200, 3),
        slice(200, 10, -2),
    ],
    ids=str,
)
def test_a_mapped_file_is_sent_to_processes_by_its_path(file: Path, part: slice) -> None:
    mapped = np.memmap(file, dtype="<u2", mode="r", offset=6)
    for ids in (mapped[part], np.asarray(mapped)[part]):
        ds = SlidingWindowDataset(ids, 8, 8)
        sent = pickle.dumps(ds)
        assert len(sent) < 2000
        assert str(file).encode() in sent
        some = [0, 1, len(ds) // 2, -1]
        assert pairs(pickle.loads(sent), some) == pairs(ds, some)  # noqa: S301 -- our own
        again = pickle.loads(pickle.dumps(pickle.loads(sent)))  # noqa: S301 -- our own
        assert again[-1][0].tolist() == ds[-1][0].tolist()


def test_a_map_far_into_a_file_is_sent_too(file: Path) -> None:
    mapped = np.memmap(file, dtype="<u2", mode="r+", offset=6 + 2 * 70_000, shape=(1000,))
    ds = SlidingWindowDataset(mapped[100:], 8, 8)
    sent = pickle.dumps(ds)
    assert len(sent) < 2000
    assert pairs(pickle.loads(sent)) == pairs(ds)  # noqa: S301 -- our own


def test_a_map_that_was_changed_in_memory_alone_is_sent_as_it_is(file: Path) -> None:
    mapped = np.memmap(file, dtype="<u2", mode="c", offset=6)
    mapped[:9] = 5
    sent = pickle.loads(pickle.dumps(SlidingWindowDataset(mapped, 8, 8)))  # noqa: S301 -- our own
    assert sent[0][1].tolist() == [5] * 8


def test_a_mapped_array_of_numpys_own_format_is_sent_by_its_path(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.arange(50_000, dtype=np.uint32))
    ds = SlidingWindowDataset(np.load(tmp_path / "ids.npy", mmap_mode="r"), 8, 8)
    sent = pickle.dumps(ds)
    assert len(sent) < 2000
    assert pairs(pickle.loads(sent), [5, -1]) == pairs(ds, [5, -1])  # noqa: S301 -- our own


def sent_size(ds: SlidingWindowDataset) -> int:
    """Return the bytes that a process of PyTorch is sent."""
    buffer = io.BytesIO()
    ForkingPickler(buffer).dump(ds)
    return len(buffer.getvalue())


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_a_stream_in_memory_is_shared_with_processes_and_not_sent(kind: Any) -> None:
    ds = SlidingWindowDataset(kind(list(range(50_000))), 8, 8)
    expected = pairs(ds, [0, 9, -1])
    assert sent_size(ds) < 2000
    assert sent_size(ds) < 2000
    assert pairs(ds, [0, 9, -1]) == expected


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"ids": [1.5, 2.0]}, "ids: expected whole numbers of at most 64 bits, found float64"),
        ({"ids": [True, False]}, "ids: expected whole numbers of at most 64 bits, found bool"),
        ({"ids": [2**70]}, "ids: expected whole numbers of at most 64 bits, found object"),
        ({"ids": ["a"]}, "ids: expected whole numbers of at most 64 bits, found <U1"),
        ({"ids": np.zeros(3)}, "ids: expected whole numbers of at most 64 bits, found float64"),
        ({"ids": np.zeros(0)}, "ids: expected whole numbers of at most 64 bits, found float64"),
        ({"ids": np.zeros((2, 3), dtype=int)}, r"ids: expected one dimension, found the shape \(2, 3\)"),
        ({"ids": 5}, r"ids: expected one dimension, found the shape \(\)"),
        ({"ids": pa.array([1, None])}, "ids: expected an id at each place, found 1 nulls"),
        ({"ids": pa.chunked_array([["a"]])}, "ids: expected whole numbers of at most 64 bits, found Arrow's string"),
        ({"ids": pa.chunked_array([], pa.float32())}, "ids: expected whole numbers .*, found Arrow's float"),
        ({"context_length": 0}, "context_length: expected a whole number from 1, found 0"),
        ({"stride": 0}, "stride: expected a whole number from 1, found 0"),
        ({"stride": 1.0}, "stride: expected a whole number from 1, found 1.0"),
        ({"pad_id": -1}, "pad_id: expected a whole number from 0, found -1"),
        ({"ignore_index": None}, "ignore_index: expected a whole number, found None"),
    ],
)
def test_a_bad_argument_is_named(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        SlidingWindowDataset(**{"ids": [1, 2, 3], "context_length": 2, "stride": 1, **bad})


def test_an_id_that_is_too_large_for_a_tensor_is_named_when_it_is_met() -> None:
    ds = SlidingWindowDataset(np.array([1, 2, 3, 2**63], dtype=np.uint64), 2, 1)
    assert ds[0][0].tolist() == [1, 2]
    with pytest.raises(ValueError, match=rf"^ids: expected at most 2\*\*63 - 1, found {2**63}$"):
        ds[1]


@pytest.mark.parametrize("bad", [(-1, 4, 1), (5, 0, 1), (5, 4, 0)])
def test_a_count_of_something_bad_is_refused(bad: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r": expected a whole number from "):
        SlidingWindowDataset.count(*bad)


@pytest.mark.parametrize("padded", [None, [], "x", 1])
def test_a_count_that_is_neither_padded_nor_not_is_refused(padded: Any) -> None:
    for ids in (10, 9):
        with pytest.raises(ValueError, match=r"^padded: expected True or False, found "):
            SlidingWindowDataset.count(ids, 4, 4, padded=padded)
