from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from mixer.cli import wording


@given(st.integers(0, 10**25), st.integers(1, 10**25))
def test_a_percentage_is_within_half_of_its_last_digit_and_exact_if_it_can_be(part: int, whole: int) -> None:
    shown = Fraction(wording.percent(part, whole).removesuffix(" %").replace(",", ""))
    true = Fraction(100 * part, whole)
    assert abs(shown - true) <= Fraction(1, 2 * 10**wording.PERCENT_DECIMALS)
    if true.denominator <= 10**wording.PERCENT_DECIMALS and 10**wording.PERCENT_DECIMALS % true.denominator == 0:
        assert shown == true


@given(st.fractions())
def test_a_signed_fraction_reads_back(number: Fraction) -> None:
    shown = wording.signed(number).replace(",", "")
    value = sum((Fraction(part) for part in shown.lstrip("+-").split()), Fraction(0))
    assert (-value if shown.startswith("-") else value) == number


@given(st.integers(0, 2**70))
def test_a_size_is_within_a_hundredth(number: int) -> None:
    value, unit = wording.size(number).split()
    step = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB").index(unit)
    assert abs(Fraction(value) * 1024**step - number) * 100 <= number
    assert step == 6 or Fraction(value) <= 1024


@given(st.text())
def test_visible_text_steers_no_terminal(text: str) -> None:
    shown = wording.visible(text)
    assert not any(ord(sign) < 0x20 or 0x7F <= ord(sign) < 0xA0 for sign in shown)
    assert wording.visible(shown) == shown


@given(st.text(st.characters(categories=["L", "N", "P", "Z"])), st.integers(24, 80))
def test_a_shortened_text_fits_and_is_the_text_or_its_beginning(text: str, length: int) -> None:
    shown = wording.shorten(text, length)
    assert "\n" not in shown
    assert len(shown) <= length or not shown.isprintable()
    line = " ".join(text.split())
    if shown != line:
        kept, _, note = shown.rpartition("… (")
        assert note == f"{len(text):,} chars)"
        assert line.startswith(kept)


def test_durations_are_rounded_before_they_are_cut() -> None:
    assert wording.duration(59.6) == "1 min 00 s"
    assert wording.duration(3599.7) == "1 h 00 min"
    assert wording.duration(86_399.9) == "1 d 0 h"
