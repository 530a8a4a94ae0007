from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixer.core.weights import SCALE, parse_share, tempered, weights_of_shares

sizes = st.lists(st.integers(1, 10**12), min_size=1, max_size=12)
temperatures = st.fractions(min_value=Fraction(1, 10), max_value=100, max_denominator=20)


@given(st.integers(1, 100), st.integers(0, 999))
def test_a_percentage_is_just_what_is_written(whole: int, thousandths: int) -> None:
    share = Fraction(whole * 1000 + thousandths, 100_000)
    if share <= 1:
        assert parse_share(f"{whole}.{thousandths:03d}%") == share
        assert parse_share(f" {share.numerator} / {share.denominator} ") == share


@pytest.mark.parametrize(
    "text", ["0%", "0/5", "101%", "3/2", "30", "0.3", "-5%", "1/0", "1e2%", "%", "", "30%%", "\u0663\u0660%", "nan%"]
)
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_share(text)


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=8))
def test_shares_of_integers_give_these_integers_in_lowest_terms(parts: list[int]) -> None:
    divisor, total = math.gcd(*parts), sum(parts)
    shares = {str(place): Fraction(part, total) for place, part in enumerate(parts)}
    assert list(weights_of_shares(shares).values()) == [part // divisor for part in parts]


def test_shares_that_are_not_the_whole_are_refused_with_their_sum() -> None:
    with pytest.raises(ValueError, match=r"found 3/10 \+ 3/5 = 9/10 \(90\.0"):
        weights_of_shares({"a": Fraction(3, 10), "b": Fraction(3, 5)})


@given(sizes, temperatures, st.none() | st.fractions(min_value=Fraction(1, 12), max_value=1, max_denominator=100))
def test_weights_come_as_near_to_the_roots_as_a_millionth(
    rows: list[int], temperature: Fraction, most: Fraction | None
) -> None:
    if most is not None and most * len(rows) < 1:
        with pytest.raises(ValueError, match="less than the whole"):
            tempered(rows, temperature, most)
        return
    weights = tempered(rows, temperature, most)
    assert all(type(weight) is int and weight >= 1 for weight in weights)
    assert math.gcd(*weights) == 1
    total = sum(weights)
    # Each may be raised to 1 part, at the cost of the largest.
    near = (len(rows) + 1) / SCALE
    if most is not None:
        assert all(weight / total <= float(most) + near for weight in weights)
    else:
        logarithms = [math.log(size) / float(temperature) for size in rows]
        roots = [math.exp(logarithm - max(logarithms)) for logarithm in logarithms]
        for weight, root in zip(weights, roots, strict=True):
            assert weight / total == pytest.approx(root / sum(roots), abs=near)


@given(sizes)
def test_a_temperature_of_one_keeps_small_sizes_as_they_are(rows: list[int]) -> None:
    small = [size % 1000 + 1 for size in rows]
    divisor = math.gcd(*small)
    assert tempered(small, Fraction(1)) == [size // divisor for size in small]


def test_what_is_cut_off_goes_to_the_others_in_proportion() -> None:
    assert tempered([96, 3, 1], Fraction(1), Fraction(6, 10)) == [6, 3, 1]
    # What the first one loses would lift the second one above the limit, too.
    assert tempered([90, 9, 1], Fraction(1), Fraction(4, 10)) == [2, 2, 1]


def test_roots_do_not_change() -> None:
    assert tempered([10**9, 10**6, 123_456, 7], Fraction(10, 7)) == [990313, 7866, 1819, 2]


@pytest.mark.parametrize(("rows", "temperature"), [([], 1), ([0, 3], 1), ([3], 0), ([3], -1)])
def test_sizes_and_temperatures_that_make_no_sense_are_refused(rows: list[int], temperature: int) -> None:
    with pytest.raises(ValueError, match="expected positive sizes"):
        tempered(rows, Fraction(temperature))
