"""Batches by their numbers: which of a run of twelve a loader gives, and in which order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

BATCHES = 12
ALL = list(range(BATCHES))


def numbers(batches: Iterable[dict[str, Any]]) -> list[int]:
    """Return the numbers of the batches."""
    found = []
    for batch in batches:
        number = batch["_batch"].unique()
        assert len(number) == 1
        found.append(int(number))
    return found
