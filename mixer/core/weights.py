"""Weights from what people say instead: shares, and sizes with a temperature. All become integers, and stay them.

Shares are fractions, read from text: ``30%`` is 30/100 and ``1/3`` a third, never a float. A temperature needs roots,
which are seldom fractions: they are taken with 50 decimal digits, so that every machine finds the same, and rounded
to `SCALE` parts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from fractions import Fraction

SCALE = 1_000_000
"""Sum of the weights that are rounded."""
_DIGITS = Context(prec=50)
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,15})?)\s*%", re.ASCII)
_FRACTION = re.compile(r"(\d{1,18})\s*/\s*(\d{1,18})", re.ASCII)


def parse_share(text: str) -> Fraction:
    """Return the share that `text` says, exactly.

    Raises:
        ValueError: It is no percentage and no fraction, or not above 0 and at most 1.

    >>> parse_share("30%"), parse_share("12.5 %"), parse_share("1/3")
    (Fraction(3, 10), Fraction(1, 8), Fraction(1, 3))
    """
    if found := _PERCENT.fullmatch(text.strip()):
        share = Fraction(found[1]) / 100
    elif (found := _FRACTION.fullmatch(text.strip())) and int(found[2]):
        share = Fraction(int(found[1]), int(found[2]))
    else:
        raise ValueError(f"expected a percentage such as 12.5% or a fraction such as 1/3, found {text!r}")
    if not 0 < share <= 1:
        raise ValueError(f"expected a share above 0 and at most 100 %, found {text!r}")
    return share


def weights_of_shares(shares: Mapping[str, Fraction]) -> dict[str, int]:
    """Return the smallest integers that stand to each other as the shares do.

    Raises:
        ValueError: The shares are not the whole.

    >>> weights_of_shares({"web": Fraction(3, 10), "code": Fraction(7, 10)})
    {'web': 3, 'code': 7}
    """
    total = sum(shares.values(), Fraction(0))
    if total != 1:
        listed = " + ".join(str(share) for share in shares.values())
        raise ValueError(f"expected shares that make 100 %, found {listed} = {total} ({float(total):.6%})")
    scale = math.lcm(*(share.denominator for share in shares.values()))
    return {name: int(share * scale) for name, share in shares.items()}


def tempered(sizes: Sequence[int], temperature: Fraction, max_share: Fraction | None = None) -> list[int]:
    """Return weights in proportion to ``size ** (1 / temperature)``, none with more than `max_share` of their sum.

    A temperature of 1 takes datasets by their size, a greater one brings them closer together (as multilingual models
    sample languages). What `max_share` cuts off goes to the others in proportion. The result is in lowest terms, sums
    to `SCALE` before that, and is at least 1 for each dataset.

    Raises:
        ValueError: A size or the temperature is not positive, there are too many datasets, or the shares cannot be
            kept below `max_share`.

    >>> tempered([900, 100], Fraction(1)), tempered([900, 100], Fraction(2))
    ([9, 1], [3, 1])
    >>> tempered([900, 50, 50], Fraction(1), max_share=Fraction(1, 2))
    [2, 1, 1]
    """
    if not sizes or any(size < 1 for size in sizes) or temperature <= 0:
        raise ValueError(f"expected positive sizes and a positive temperature, found {list(sizes)[:5]}, {temperature}")
    if len(sizes) > SCALE:
        raise ValueError(f"expected at most {SCALE} datasets, found {len(sizes)}")
    roots = [_root(size, temperature) for size in sizes]
    total = sum(roots, Fraction(0))
    shares = _capped([root / total for root in roots], max_share)
    weights = _rounded(shares)
    divisor = math.gcd(*weights)
    return [weight // divisor for weight in weights]


def _root(size: int, temperature: Fraction) -> Fraction:
    if temperature == 1:
        return Fraction(size)
    logarithm = _DIGITS.ln(Decimal(size))
    exponent = _DIGITS.divide(
        _DIGITS.multiply(logarithm, Decimal(temperature.denominator)), Decimal(temperature.numerator)
    )
    return Fraction(_DIGITS.exp(exponent))


def _capped(shares: list[Fraction], most: Fraction | None) -> list[Fraction]:
    """Cut what is above `most`, and give it to the others in proportion, until none is above."""
    if most is None:
        return shares
    if most * len(shares) < 1:
        raise ValueError(f"max_share: {len(shares)} datasets of at most {most} each are less than the whole")
    capped: set[int] = set()
    while over := {place for place, share in enumerate(shares) if share > most and place not in capped}:
        capped |= over
        free = sum((share for place, share in enumerate(shares) if place not in capped), Fraction(0))
        left = 1 - most * len(capped)
        shares = [most if place in capped else share * left / free for place, share in enumerate(shares)]
    return shares


def _rounded(shares: Sequence[Fraction]) -> list[int]:
    """Return integers in proportion to `shares`: exact ones if small, else rounded by the largest remainder."""
    scale = math.lcm(*(share.denominator for share in shares))
    if scale <= SCALE:
        return [int(share * scale) for share in shares]
    exact = [share * SCALE for share in shares]
    weights = [max(1, math.floor(part)) for part in exact]
    missing = SCALE - sum(weights)
    by_need = sorted(range(len(shares)), key=lambda place: (weights[place] - exact[place], place))
    for place in by_need[: max(0, missing)]:
        weights[place] += 1
    # Where many are raised to 1, the largest ones pay for it.
    while (too_many := sum(weights) - SCALE) > 0:
        largest = max(range(len(weights)), key=lambda place: (weights[place], -place))
        weights[largest] -= min(too_many, weights[largest] - 1)
    return weights
