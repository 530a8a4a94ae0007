"""Numbers, sizes, times and foreign text as people read them: pure, exact where a number decides something."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

PERCENT_DECIMALS = 4
"""A share that needs more decimals than this is rounded, half up."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SPACE = re.compile(r"\s+")


def count(number: int) -> str:
    """Return an integer with its thousands apart.

    >>> count(1200000)
    '1,200,000'
    """
    return f"{number:,}"


def plural(number: int, noun: str) -> str:
    """Return a count and what it counts.

    >>> plural(1, "file"), plural(1200, "batch"), plural(2, "entry")
    ('1 file', '1,200 batches', '2 entries')
    """
    if number == 1:
        return f"1 {noun}"
    if noun.endswith(("ch", "sh", "s", "x")):
        return f"{number:,} {noun}es"
    return f"{number:,} {noun[:-1]}ies" if noun.endswith("ry") else f"{number:,} {noun}s"


def size(number: int) -> str:
    """Return a number of bytes in the largest unit of 1024 that it fills, to three digits.

    >>> size(999), size(1536), size(5_368_709_120), size(1023 * 1024)
    ('999 B', '1.50 KiB', '5.00 GiB', '1023 KiB')
    """
    if number < 1024:  # noqa: PLR2004 -- the step between the units
        return f"{number} B"
    unit = min((number.bit_length() - 1) // 10, len(_UNITS) - 1)
    value = number / (1 << 10 * unit)
    digits = max(0, 2 - int(math.log10(value)))
    return f"{value:.{digits}f} {_UNITS[unit]}"


def percent(part: int | Fraction, whole: int) -> str:
    """Return ``part / whole`` in per cent: exact if that takes few decimals, else rounded half up; no float is used.

    >>> percent(1, 2), percent(1, 3), percent(2, 3), percent(0, 7)
    ('50 %', '33.3333 %', '66.6667 %', '0 %')
    """
    if not whole:
        return "-"
    scale = 10**PERCENT_DECIMALS
    scaled = (2 * part * 100 * scale + whole) // (2 * whole)
    whole_part, decimals = divmod(scaled, scale)
    text = f"{decimals:0{PERCENT_DECIMALS}d}".rstrip("0")
    return f"{whole_part:,}.{text} %" if text else f"{whole_part:,} %"


def decimal(number: Fraction, places: int = PERCENT_DECIMALS) -> str:
    """Return a number from 0 with at most so many decimals, rounded half up; no float is used.

    >>> decimal(Fraction(3)), decimal(Fraction(1, 8)), decimal(Fraction(2, 3), 2), decimal(Fraction(12345, 10))
    ('3', '0.125', '0.67', '1,234.5')
    """
    scale = 10**places
    whole, decimals = divmod((2 * number.numerator * scale + number.denominator) // (2 * number.denominator), scale)
    text = f"{decimals:0{places}d}".rstrip("0")
    return f"{whole:,}.{text}" if text else f"{whole:,}"


def signed(number: Fraction) -> str:
    """Return an exact number with its sign, as a mixed fraction.

    >>> signed(Fraction(-2, 3)), signed(Fraction(7, 4)), signed(Fraction(0)), signed(Fraction(3))
    ('-2/3', '+1 3/4', '0', '+3')
    """
    if not number:
        return "0"
    whole, rest = divmod(abs(number.numerator), number.denominator)
    parts = [f"{whole:,}"] if whole else []
    if rest:
        parts.append(f"{rest}/{number.denominator}")
    return ("-" if number < 0 else "+") + " ".join(parts)


def duration(seconds: float) -> str:
    """Return a time span in the two units that matter.

    >>> duration(0.4), duration(12.2), duration(185), duration(3725), duration(200000)
    ('under 1 s', '12 s', '3 min 05 s', '1 h 02 min', '2 d 7 h')
    """
    whole = round(seconds)
    if whole < 1:
        return "under 1 s"
    minutes, left_seconds = divmod(whole, 60)
    hours, left_minutes = divmod(minutes, 60)
    days, left_hours = divmod(hours, 24)
    if days:
        return f"{days:,} d {left_hours} h"
    if hours:
        return f"{hours} h {left_minutes:02d} min"
    return f"{minutes} min {left_seconds:02d} s" if minutes else f"{left_seconds} s"


def visible(text: str) -> str:
    r"""Return `text` with every character spelled out that would steer a terminal or hide what is there.

    >>> visible("a\x1b[2Jb\n\u202e")
    'a\\x1b[2Jb\\x0a\\u202e'
    """
    return _CONTROL.sub(_spelled, text)


def visible_lines(text: str) -> str:
    r"""Return `text` as `visible` does, line by line.

    >>> visible_lines("a\x1b[2J\nb\r\n")
    'a\\x1b[2J\nb\\x0d\n'
    """
    return "\n".join(map(visible, text.split("\n")))


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"  # noqa: PLR2004 -- where two digits end


def shorten(text: str, length: int) -> str:
    r"""Return `text` on one line; of one that is longer than `length` characters its beginning and its length.

    >>> shorten("It was a  bright\ncold day in April", 26)
    'It was a brigh… (34 chars)'
    >>> shorten("a clear day", 26)
    'a clear day'
    """
    line = _SPACE.sub(" ", text[: 4 * length]).strip()
    if len(text) <= 4 * length and len(line) <= length:
        return visible(line)
    note = f"… ({len(text):,} chars)"
    return visible(line[: max(1, length - len(note))].rstrip()) + note


def listed(names: Sequence[str], most: int) -> Iterator[str]:
    """Yield a line for each of the first `most` names, and how many more there are.

    >>> list(listed(["a", "b", "c"], 2))
    ['  a', '  b', '  and 1 more (`--json` lists all)']
    """
    yield from (f"  {visible(name)}" for name in names[:most])
    if len(names) > most:
        yield f"  and {len(names) - most:,} more (`--json` lists all)"
