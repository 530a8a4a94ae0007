from __future__ import annotations

from fractions import Fraction
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer.core import trajectory
from mixer.core.allocation import Allocation, allocate
from tests.core.rules import batch_sizes, by_hand, weights


@given(weights, batch_sizes, st.integers(0, 60), st.integers(0, 60))
def test_counts_of_any_range_are_those_of_the_rule_slot_by_slot(
    weights: tuple[int, ...], batch_size: int, start: int, batches: int
) -> None:
    counts, _ = by_hand(weights, batch_size, start + batches)
    assert Allocation(weights, batch_size).counts(start, start + batches).tolist() == counts[start:]


@given(weights, batch_sizes, st.integers(0, 120))
def test_carries_and_offsets_at_any_batch_are_those_of_the_rule(
    weights: tuple[int, ...], batch_size: int, batch: int
) -> None:
    counts, carries = by_hand(weights, batch_size, batch)
    rule = Allocation(weights, batch_size)
    assert list(rule.carries_at(batch)) == carries[batch]
    assert list(rule.offsets_at(batch)) == [sum(column) for column in zip(*counts, strict=True)] or not counts


@given(weights, batch_sizes)
def test_counts_are_never_negative_and_sum_to_the_batch_and_carries_sum_to_zero(
    weights: tuple[int, ...], batch_size: int
) -> None:
    rule = Allocation(weights, batch_size)
    counts = rule.counts(0, 80)
    assert (counts >= 0).all()
    assert (counts.sum(axis=1) == batch_size).all()
    assert all(sum(rule.carries_at(batch)) == 0 for batch in range(80))


@given(weights, batch_sizes)
def test_no_dataset_is_ahead_of_its_share_by_a_whole_item(weights: tuple[int, ...], batch_size: int) -> None:
    rule = Allocation(weights, batch_size)
    for batch, row in enumerate(accumulate(rule.counts(0, 80).tolist(), _add), 1):
        for items, weight, carry in zip(row, weights, rule.carries_at(batch), strict=True):
            share = Fraction(batch * batch_size * weight, rule.total)
            assert items - share < 1
            assert items - share == Fraction(-carry, rule.total)
            assert carry > -rule.total


def _add(left: list[int], right: list[int]) -> list[int]:
    return [a + b for a, b in zip(left, right, strict=True)]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5).map(tuple), st.integers(1, 60))
def test_the_period_is_the_first_batch_at_which_nothing_is_owed(weights: tuple[int, ...], batch_size: int) -> None:
    rule = Allocation(weights, batch_size)
    _, carries = by_hand(weights, batch_size, rule.period)
    assert not any(carries[-1])
    if rule.period > 1 and len(weights) > 1:
        shares = [Fraction(batch_size * weight, rule.total) for weight in weights]
        # Carries of 0 mean exact shares, and no smaller number of batches makes every share whole.
        assert all(any((k * share).denominator > 1 for share in shares) for k in range(1, rule.period))


@given(weights, batch_sizes, st.integers(0, 50), st.integers(1, 10**15))
def test_the_state_at_any_batch_is_whole_periods_and_a_position_in_one(
    weights: tuple[int, ...], batch_size: int, position: int, periods: int
) -> None:
    rule = Allocation(weights, batch_size)
    far = periods * rule.period + position
    assert rule.carries_at(far) == rule.carries_at(position)
    whole = [periods * rule.period * batch_size * weight // rule.total for weight in weights]
    assert list(rule.offsets_at(far)) == [a + b for a, b in zip(whole, rule.offsets_at(position), strict=True)]
    assert rule.counts(far, far + 3).tolist() == rule.counts(position, position + 3).tolist()


@given(weights, batch_sizes, st.integers(2, 10**9))
def test_only_the_ratio_of_weights_matters(weights: tuple[int, ...], batch_size: int, factor: int) -> None:
    scaled = Allocation(tuple(weight * factor for weight in weights), batch_size)
    rule = Allocation(weights, batch_size)
    assert scaled.counts(0, 20).tolist() == rule.counts(0, 20).tolist()
    assert scaled.carries_at(7) == tuple(carry * factor for carry in rule.carries_at(7))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 5_000), min_size=2, max_size=12).map(tuple),
    st.integers(1, 600),
    st.integers(trajectory.STRIDE * 20, trajectory.STRIDE * 60),
)
def test_stretches_walked_side_by_side_end_where_the_rule_ends(
    weights: tuple[int, ...], batch_size: int, batch: int
) -> None:
    rule = Allocation(weights, batch_size)
    _, carries = by_hand(rule.weights, batch_size, batch % rule.period)
    assert list(rule.carries_at(batch)) == carries[-1]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 99), min_size=2, max_size=6).map(tuple), st.integers(1, 60))
def test_wrong_guesses_cost_time_and_never_the_result(weights: tuple[int, ...], batch_size: int) -> None:
    rule = Allocation(weights, batch_size)
    batch = trajectory.STRIDE * 18
    wild = trajectory.Trajectory(rule._rule, period=batch + 1, step=allocate)
    guesses = trajectory._guesses
    try:
        trajectory._guesses = lambda *args: guesses(*args) * 0  # every stretch from nothing
        found = wild.carries_at(batch)
    finally:
        trajectory._guesses = guesses
    reduced = tuple(weight // rule.divisor for weight in weights)
    assert found == by_hand(reduced, batch_size, batch)[1][-1]


def test_the_order_of_weights_decides_ties() -> None:
    assert Allocation((1, 1, 1), 1).counts(0, 3).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert Allocation((3, 2, 1), 4).counts(0, 3).tolist() == [[2, 1, 1], [2, 2, 0], [2, 1, 1]]


def test_many_datasets_and_few_slots_are_right() -> None:
    weights = tuple(range(1, 3001))
    counts, carries = by_hand(weights, 7, 40)
    rule = Allocation(weights, 7)
    assert rule.counts(0, 40).tolist() == counts
    assert list(rule.carries_at(40)) == carries[-1]


@pytest.mark.parametrize("weights", [(), (0,), (1, -1), (True,), (1.0,), ("1",)])
def test_weights_are_positive_integers(weights: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"weights.*expected"):
        Allocation(weights, 1)


@pytest.mark.parametrize("batch_size", [0, -1, True, 1.5, "2"])
def test_a_batch_size_is_a_positive_integer(batch_size: int) -> None:
    with pytest.raises(ValueError, match=r"batch_size: expected a positive integer"):
        Allocation((1,), batch_size)


def test_bounds_out_of_order_are_refused() -> None:
    rule = Allocation((1, 2), 3)
    with pytest.raises(ValueError, match=r"expected 0 <= start_batch <= stop_batch, found 2 and 1"):
        rule.counts(2, 1)
    with pytest.raises(ValueError, match=r"batch: expected a number from 0, found -1"):
        rule.carries_at(-1)


def test_counts_that_leave_64_bits_are_refused_and_states_stay_exact() -> None:
    rule = Allocation((10**19, 1), 1 << 63)
    with pytest.raises(OverflowError, match="64 bits"):
        rule.counts(0, 1)
    assert sum(rule.offsets_at(100)) == 100 << 63


@given(st.lists(st.integers(1, 60), min_size=48, max_size=80), st.integers(1, 400), st.integers(0, 40))
def test_many_datasets_are_given_by_arrays_what_the_rule_says(weights: list[int], batch_size: int, start: int) -> None:
    rule = Allocation(tuple(weights), batch_size)
    counts, states = by_hand(tuple(weights), batch_size, start + 6)
    assert rule.counts(start, start + 6).tolist() == counts[start:]
    assert rule.carries_at(start + 6) == tuple(states[-1])


@given(st.tuples(st.integers(1, 50), st.integers(1, 50)), st.integers(1, 60), st.integers(0, 150))
def test_a_pair_has_the_carries_of_the_rule(pair: tuple[int, int], batch_size: int, batch: int) -> None:
    _, states = by_hand(pair, batch_size, batch)
    assert Allocation(pair, batch_size).carries_at(batch) == tuple(states[-1])


def test_a_pair_of_which_one_is_huge_is_answered_at_once() -> None:
    rule = Allocation((1, 10**18), 512)
    assert rule.offsets_at(10**30)[0] in {10**30 * 512 // (10**18 + 1), 10**30 * 512 // (10**18 + 1) + 1}
    assert sum(rule.offsets_at(10**30)) == 512 * 10**30


@given(
    st.lists(st.integers(1, 3) | st.integers(500, 900), min_size=48, max_size=60),
    st.integers(100, 3000),
    st.integers(0, 300),
)
@settings(max_examples=30)
def test_several_slots_of_a_batch_to_one_of_many_datasets_are_those_of_the_rule(
    weights: list[int], batch_size: int, batch: int
) -> None:
    rule = Allocation(tuple(weights), batch_size)
    _, states = by_hand(tuple(weights), batch_size, batch)
    assert rule.carries_at(batch) == tuple(states[batch % rule.period])
