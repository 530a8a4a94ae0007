"""Figures that tests count while they run, summed over tests and processes, and shown at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

PROPERTY = "figures"
"""The property of a test's report that carries them: reports come from all processes to the one that shows them."""

Note = Callable[[str, Mapping[str, int]], None]
"""Adds counts by name to those of a group."""


def lines(properties: Iterable[tuple[str, object]]) -> list[str]:
    """Return a line for each group, in the order of their names, with the sums of its counts.

    >>> lines([("figures", ("faults", {"right": 2})), ("other", 1), ("figures", ("faults", {"right": 1, "hurt": 7}))])
    ['faults: hurt 7, right 3']
    """
    groups: dict[str, Counter[str]] = {}
    for name, value in properties:
        if name == PROPERTY and isinstance(value, (tuple, list)):
            group, counts = value
            groups.setdefault(group, Counter()).update(counts)
    return [
        f"{group}: {', '.join(f'{name} {count}' for name, count in sorted(counts.items()))}"
        for group, counts in sorted(groups.items())
    ]
