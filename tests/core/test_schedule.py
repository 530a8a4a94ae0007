from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixer.core.allocation import Allocation
from mixer.core.schedule import Schedule, Segment, batches_that_fit, resolve, shortfall, single
from mixer.errors import NotEnoughDataError
from tests.core.rules import by_hand

few_weights = st.lists(st.integers(1, 20), min_size=1, max_size=5)


@given(few_weights, st.integers(1, 30), st.data())
def test_the_largest_number_of_batches_fits_and_one_more_does_not(
    weights: list[int], batch_size: int, data: st.DataObject
) -> None:
    sizes = data.draw(st.lists(st.integers(0, 200), min_size=len(weights), max_size=len(weights)))
    fit = batches_that_fit(Allocation(tuple(weights), batch_size), sizes)
    counts, _ = by_hand(tuple(weights), batch_size, fit + 1)
    needed = [[sum(column) for column in zip(*counts[:rows], strict=True)] for rows in (fit, fit + 1)]
    assert all(items <= size for items, size in zip(needed[0] or [0] * len(sizes), sizes, strict=True))
    assert any(items > size for items, size in zip(needed[1], sizes, strict=True))


@given(few_weights, st.integers(1, 30), st.data())
def test_error_refuses_just_what_does_not_fit_and_stop_ends_there(
    weights: list[int], batch_size: int, data: st.DataObject
) -> None:
    sizes = data.draw(st.lists(st.integers(0, 200), min_size=len(weights), max_size=len(weights)))
    asked = data.draw(st.integers(1, 40))
    rule, names = Allocation(tuple(weights), batch_size), [f"d{place}" for place in range(len(weights))]
    fit = batches_that_fit(rule, sizes)
    if asked <= fit:
        assert resolve(names, rule, sizes, batches=asked, on_exhausted="error").batches == asked
    else:
        with pytest.raises(NotEnoughDataError, match=f"the largest number that fits is {fit}"):
            resolve(names, rule, sizes, batches=asked, on_exhausted="error")
    if fit:
        assert resolve(names, rule, sizes, batches=None, on_exhausted="stop").batches == fit
        assert resolve(names, rule, sizes, batches=asked, on_exhausted="stop").batches == min(fit, asked)
    else:
        with pytest.raises(NotEnoughDataError, match="not one batch"):
            resolve(names, rule, sizes, batches=None, on_exhausted="stop")


def test_what_is_short_is_told_with_numbers_and_ways_out() -> None:
    text = shortfall(["web", "code"], Allocation((1, 1), 2), [10, 3], 5)
    assert text is not None
    for part in (
        "dataset 'code' runs out first",
        "batch 3 needs its items up to 4",
        "it has 3",
        "fits is 3",
        "1.7 times",
    ):
        assert part in text


def test_an_empty_dataset_is_told_as_empty() -> None:
    assert "and it is empty" in str(shortfall(["a"], Allocation((1,), 2), [0], 1))


def test_offsets_go_on_over_segments_and_carries_begin_anew() -> None:
    first = Segment(0, 2, Allocation((3, 2, 1), 4), (0, 1, 2), (0, 0, 0))
    second = Segment(2, 5, Allocation((1, 1), 3), (2, 0), (4, 3, 1))
    schedule = Schedule(3, (first, second))
    assert schedule.counts(1, 4).tolist() == [[2, 2, 0], [1, 0, 2], [2, 0, 1]]
    assert schedule.offsets_at(4) == (7, 3, 4)
    assert schedule.carries_at(2) == (0, 0, 0)
    assert schedule.carries_at(3) == (1, 0, -1)
    assert schedule.batches == 7


def test_segments_leave_no_gap() -> None:
    with pytest.raises(ValueError, match="expected a segment from batch 0, found one from 1"):
        Schedule(1, (Segment(1, 1, Allocation((1,), 1), (0,), (0,)),))


def test_a_batch_outside_the_run_is_refused() -> None:
    with pytest.raises(IndexError, match="batch 4: expected one from 0 to 3"):
        single(Allocation((1,), 1), batches=3).offsets_at(4)
