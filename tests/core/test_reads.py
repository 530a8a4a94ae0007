from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from mixer.core.order import blocks_of
from mixer.core.passes import Passes
from mixer.core.reads import NOTHING, Layout, Reads, reads_of

GROUPS = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=6)


def layout_of(groups: list[tuple[int, bool]]) -> Layout:
    """Return a layout in which a row takes 10 bytes, and each row group as many reads as it has rows."""
    rows = np.array([rows for rows, _ in groups], dtype=np.int64)
    return Layout(rows, rows * 10, rows, np.array([large for _, large in groups], dtype=np.bool_))


def by_hand(groups: list[tuple[int, bool]], passes: Passes, start: int, stop: int) -> Reads:
    """Return what is read, by going through the items one by one; each pass is begun anew."""
    firsts = np.cumsum([0, *(rows for rows, _ in groups)])
    decoded: dict[tuple[int, int], int] = {}
    epochs, stored = passes.rows(start, stop)
    for epoch, row in zip(epochs.tolist(), stored.tolist(), strict=True):
        wanted = [row]
        if passes.blocks is not None:
            ends = np.cumsum(passes.blocks)
            block = int(np.searchsorted(ends, row, side="right"))
            wanted = list(range(int(ends[block]) - passes.blocks[block], int(ends[block])))
        for each in wanted:
            group = int(np.searchsorted(firsts, each, side="right")) - 1
            size, large = groups[group]
            needed = each - int(firsts[group]) + 1 if large else size
            decoded[epoch, group] = max(decoded.get((epoch, group), 0), needed)
    rows = sum(decoded.values())
    return Reads(len(decoded), rows, 10 * rows, rows)


@given(GROUPS, st.booleans(), st.integers(1, 8), st.data())
def test_what_is_read_is_what_going_through_the_items_touches(
    groups: list[tuple[int, bool]], shuffled: bool, block_rows: int, data: st.DataObject
) -> None:
    sizes = [rows for rows, _ in groups]
    size = sum(sizes)
    assume(size)
    passes = Passes("d", size, tuple(blocks_of(sizes, block_rows).tolist()) if shuffled else None, seed=3)
    start = data.draw(st.integers(0, 3 * size))
    stop = data.draw(st.integers(start, 4 * size))
    assert reads_of(layout_of(groups), passes, start, stop) == by_hand(groups, passes, start, stop)


@given(GROUPS, st.integers(1, 4), st.data())
def test_of_a_copy_that_holds_passes_what_is_read_lies_together(
    groups: list[tuple[int, bool]], epochs: int, data: st.DataObject
) -> None:
    size = sum(rows for rows, _ in groups)
    assume(size and size % epochs == 0)
    start = data.draw(st.integers(0, size))
    stop = data.draw(st.integers(start, size))
    passes = Passes("d", size // epochs, seed=3, full=True)
    assert reads_of(layout_of(groups), passes, start, stop) == by_hand(groups, Passes("d", size), start, stop)


def test_nothing_is_read_for_nothing() -> None:
    assert reads_of(layout_of([(3, False)]), Passes("d", 3), 2, 2) == NOTHING
    assert reads_of(layout_of([(0, False)]), Passes("d", 0), 0, 0) == NOTHING
