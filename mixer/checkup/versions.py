"""Which versions are installed, and whether they are new enough."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from importlib.metadata import PackageNotFoundError, requires, version

from mixer.checkup.base import Check, Checks

PACKAGES = ("mixer", "pyarrow", "fsspec", "s3fs", "prefect", "numpy")
OPTIONAL = ("gcsfs", "adlfs")
NAMED_BY_MONTH = ("fsspec", "s3fs", "gcsfs", "adlfs")
"""Packages whose versions are the year and the month that they were released in."""
PYTHON_MIN = (3, 11)
_SHORT_LISTINGS = {"s3fs", "fsspec"}
_REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?\s*(.*?)\s*(?:;.*)?")
_BOUND = re.compile(r"(>=|<)\s*([0-9.]+)")
_MONTHS = 12

_checks = Checks("versions")


def version_checks() -> Iterator[Check]:
    """Yield a check for Python and for each package that matters."""
    python = platform.python_version()
    if numbers(python) < PYTHON_MIN:
        yield _checks.failed("python", python, "expected 3.11 or newer: install one")
    else:
        yield _checks.ok("python", python)
    bounds = bounds_of(requires("mixer") or [])
    today = datetime.now(UTC).date()
    for name in (*PACKAGES, *OPTIONAL):
        try:
            found = version(name)
        except PackageNotFoundError:
            if name not in OPTIONAL:
                yield _checks.failed(name, "not installed", f"pip install '{name}'")
            continue
        yield judge(name, found, bounds.get(name, []), today)


def judge(name: str, found: str, bounds: list[tuple[str, str]], today: date) -> Check:
    """Return the check of one package.

    >>> judge("s3fs", "2026.9.0", [(">=", "2026.9")], date(2026, 11, 30)).found
    '2026.9.0, released 2 months ago'
    >>> judge("s3fs", "2024.2.0", [(">=", "2026.9")], date(2026, 11, 30)).state
    'failed'
    """
    shown = found + (f", {_age(found, today)}" if name in NAMED_BY_MONTH else "")
    for sign, bound in bounds:
        if (numbers(found) < numbers(bound)) == (sign == ">="):
            wanted = ",".join(sign + bound for sign, bound in bounds)
            why = "; a listing of an older one can be short without an error" if name in _SHORT_LISTINGS else ""
            return _checks.failed(name, shown, f"expected {wanted}{why}: pip install '{name}{wanted}'")
    return _checks.ok(name, shown)


def bounds_of(requirements: list[str]) -> dict[str, list[tuple[str, str]]]:
    """Return the bounds of each requirement, also of those of an extra.

    >>> bounds_of(["prefect<3.10,>=3.9.1", 'gcsfs>=2026.9; extra == "gcs"'])
    {'prefect': [('<', '3.10'), ('>=', '3.9.1')], 'gcsfs': [('>=', '2026.9')]}
    """
    matches = [match for match in map(_REQUIREMENT.fullmatch, requirements) if match]
    return {match[1]: [(bound[1], bound[2]) for bound in _BOUND.finditer(match[2])] for match in matches}


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with, to be compared.

    >>> numbers("3.9.1rc1"), numbers("2026.10.0") > numbers("2026.9")
    ((3, 9, 1), True)
    """
    parts = re.match(r"[0-9]+(\.[0-9]+)*", text)
    return tuple(int(part) for part in parts[0].split(".")) if parts else ()


def _age(found: str, today: date) -> str:
    year, month, *_ = (*numbers(found), 1, 1)
    months = (today.year - year) * _MONTHS + today.month - month
    if months <= 0:
        return "released this month"
    return "released 1 month ago" if months == 1 else f"released {months} months ago"
