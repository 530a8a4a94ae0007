from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixer.core.windows import tail_start, window_count, window_range, windows_of

streams = st.lists(st.integers(0, 2**16 - 1), max_size=60)
sizes = st.integers(1, 12)


def by_hand(ids: list[int], context_length: int, stride: int) -> list[list[int]]:
    """Return every whole window: begin at 0, take T + 1 ids if they are there, go on by a stride."""
    found = []
    start = 0
    while start + context_length + 1 <= len(ids):
        found.append(ids[start : start + context_length + 1])
        start += stride
    return found


@given(streams, sizes, sizes)
def test_windows_are_those_that_are_found_by_walking(ids: list[int], context_length: int, stride: int) -> None:
    expected = by_hand(ids, context_length, stride)
    assert window_count(len(ids), context_length, stride) == len(expected)
    found = windows_of(np.array(ids, dtype=np.uint16), context_length, stride)
    assert found.dtype == np.uint16
    assert found.shape == (len(expected), context_length + 1)
    assert found.tolist() == expected


@given(streams, sizes, sizes, st.data())
def test_some_windows_are_made_of_just_the_ids_in_their_range(
    ids: list[int], context_length: int, stride: int, data: st.DataObject
) -> None:
    expected = by_hand(ids, context_length, stride)
    start = data.draw(st.integers(0, len(expected)))
    stop = data.draw(st.integers(start, len(expected)))
    first, end = window_range(start, stop, context_length, stride)
    assert 0 <= first <= end <= max(first, len(ids))
    part = np.array(ids[first:end], dtype=np.int64)
    assert windows_of(part, context_length, stride).tolist() == expected[start:stop]
    if start < stop:
        assert len(windows_of(part[:-1], context_length, stride)) == stop - start - 1


@given(streams, sizes, sizes)
def test_a_tail_begins_a_stride_on_and_holds_a_target_that_is_in_no_window(
    ids: list[int], context_length: int, stride: int
) -> None:
    starts = [number * stride for number in range(len(by_hand(ids, context_length, stride)))]
    seen = {target for start in starts for target in range(start + 1, start + context_length + 1)}
    begin = len(starts) * stride
    new = set(range(begin + 1, len(ids))) - seen
    assert tail_start(len(ids), context_length, stride) == (begin if new else None)


def test_windows_of_a_long_stream_are_a_view_of_it() -> None:
    ids = np.arange(10**6, dtype=np.uint32)
    windows = windows_of(ids, 1023, 1)
    assert windows.shape == (10**6 - 1023, 1024)
    assert np.shares_memory(ids, windows)
    assert not windows.flags.writeable
    assert windows[-1].tolist() == list(range(10**6 - 1024, 10**6))


def test_windows_of_more_ids_than_memory_holds_are_counted() -> None:
    assert window_count(10**15, 4096, 1) == 10**15 - 4096
    assert window_range(10**14, 10**14 + 2, 4096, 7) == (7 * 10**14, 7 * 10**14 + 7 + 4097)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: window_count(-1, 4, 1), "ids: expected a whole number from 0, found -1"),
        (lambda: window_count(10, 0, 1), "context_length: expected a whole number from 1, found 0"),
        (lambda: window_count(10, 4, 0), "stride: expected a whole number from 1, found 0"),
        (lambda: window_count(10, True, 1), "context_length: expected a whole number from 1, found True"),
        (lambda: window_count(10, 4, 1.0), "stride: expected a whole number from 1, found 1.0"),  # type: ignore[arg-type] # tried
        (lambda: tail_start(10, 4, -1), "stride: expected a whole number from 1, found -1"),
        (lambda: window_range(-1, 2, 4, 1), "start: expected a whole number from 0, found -1"),
        (lambda: window_range(3, 2, 4, 1), "stop: expected a whole number from 3, found 2"),
        (lambda: window_range(0, 2, 4, 0), "stride: expected a whole number from 1, found 0"),
        (lambda: windows_of(np.zeros((2, 5)), 4, 1), r"ids: expected one dimension, found the shape \(2, 5\)"),
        (lambda: windows_of(np.zeros(5), 0, 1), "context_length: expected a whole number from 1, found 0"),
    ],
)
def test_a_bad_argument_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        call()
