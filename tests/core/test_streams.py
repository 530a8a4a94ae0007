"""Windows as the items of a dataset, counted and put into blocks by arithmetic."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mixer.core.passes import Passes
from mixer.core.reads import Layout, WindowLayout, reads_of
from mixer.core.streams import BLOCK_BYTES, Windows
from mixer.core.windows import window_count


@given(st.integers(0, 200), st.integers(1, 20), st.integers(1, 30))
def test_a_padded_stream_has_one_window_more_at_most(ids: int, context: int, stride: int) -> None:
    whole = Windows(context, stride).count(ids)
    assert whole == window_count(ids, context, stride)
    padded = Windows(context, stride, padded=True)
    assert padded.count(ids) - whole in {0, 1}
    if stride <= context and ids > 1:
        # Then every id but the last is an input of some window.
        _, end = padded.ids(0, padded.count(ids), ids)
        assert end == ids


@given(st.integers(0, 10**6), st.integers(1, 1 << 24), st.integers(1, 1 << 24), st.sampled_from([2, 4, 8]))
def test_blocks_hold_all_windows_and_each_about_so_many_bytes(ids: int, context: int, stride: int, width: int) -> None:
    windows = Windows(context, stride, padded=True)
    blocks = windows.blocks(ids, width)
    assert sum(blocks) == windows.count(ids)
    assert all(size == blocks[0] for size in blocks[:-1])
    assert all(0 < size * windows.length * width <= max(BLOCK_BYTES, windows.length * width) for size in blocks)


def test_a_hundred_million_windows_are_few_blocks() -> None:
    windows = Windows(context_length=1_024, stride=1)
    assert windows.count(10**8) == 10**8 - 1_024
    assert len(windows.blocks(10**8, 4)) < 7_000


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(1, 6), st.integers(1, 9), st.data())
def test_what_windows_read_are_the_row_groups_that_they_lie_in(
    groups: list[int], context: int, stride: int, data: st.DataObject
) -> None:
    rows = np.array(groups)
    layout = WindowLayout(
        Layout(rows, rows * 10, np.ones_like(rows), np.zeros(len(rows), np.bool_)), Windows(context, stride)
    )
    count = layout.windows.count(sum(groups))
    start = data.draw(st.integers(0, count))
    stop = data.draw(st.integers(start, count))
    owners = np.repeat(np.arange(len(groups)), groups)
    touched = set(owners[start * stride : (stop - 1) * stride + context + 1].tolist()) if stop > start else set()
    # All row groups from the first to the last, also those between two windows.
    expected = max(touched) - min(touched) + 1 if touched else 0
    assert reads_of(layout, Passes("web", count), start, stop).row_groups == expected
