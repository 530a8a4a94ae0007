"""How long the tests may take: a short profile for every change, a long one for the figures that the README gives."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")

VARIABLE = "MIXER_TEST_PROFILE"
_PROFILES = ("short", "long")

PROFILE = os.environ.get(VARIABLE) or "short"
if PROFILE not in _PROFILES:
    raise ValueError(f"{VARIABLE}: expected one of {', '.join(_PROFILES)}, found {PROFILE!r}")
LONG = PROFILE == "long"


def sized(*, short: T, long: T) -> T:
    """Return what the profile in force asks for."""
    return long if LONG else short
