from __future__ import annotations

import pytest

from mixer.core.allocation import Allocation
from mixer.core.schedule import Schedule, Segment, single


def test_offsets_go_on_over_segments_and_carries_begin_anew() -> None:
    first = Segment(0, 2, Allocation((3, 2, 1), 4), (0, 1, 2), (0, 0, 0))
    second = Segment(2, 5, Allocation((1, 1), 3), (2, 0), (4, 3, 1))
    schedule = Schedule(3, (first, second))
    assert schedule.counts(1, 4).tolist() == [[2, 2, 0], [1, 0, 2], [2, 0, 1]]
    assert schedule.offsets_at(4) == (7, 3, 4)
    assert schedule.carries_at(2) == (0, -2, 2)  # what the first segment leaves; the second begins at 0 all the same
    assert schedule.carries_at(3) == (1, 0, -1)
    assert schedule.batches == 7


def test_segments_leave_no_gap() -> None:
    with pytest.raises(ValueError, match="expected a segment from batch 0, found one from 1"):
        Schedule(1, (Segment(1, 1, Allocation((1,), 1), (0,), (0,)),))


def test_a_batch_outside_the_run_is_refused() -> None:
    with pytest.raises(IndexError, match="batch 4: expected one from 0 to 3"):
        single(Allocation((1,), 1), batches=3).offsets_at(4)
