"""Checks of what callers pass: one wording for all of them, which says the argument, what it may be and what it was."""

from __future__ import annotations

import operator

import numpy as np

MOST_PROCESSES = 2**31 - 1
"""So many take part at the most; products of their number with 32-bit numbers fit 64 bits."""


def whole_number(name: str, value: object, *, least: int | None = None) -> int:
    """Return `value` as an integer: Python's own, NumPy's or any other that can be an index, but no truth value.

    Args:
        name: How the caller knows the argument.
        value: What was passed.
        least: The smallest that is allowed; None allows all.

    Raises:
        ValueError: `value` is something else than a whole number, or less than `least`.

    >>> whole_number("stride", 0, least=1)
    Traceback (most recent call last):
    ValueError: stride: expected a whole number from 1, found 0
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type] # it says so itself
    except TypeError:
        number = None
    if number is None or (least is not None and number < least):
        bound = "" if least is None else f" from {least}"
        raise ValueError(f"{name}: expected a whole number{bound}, found {value!r}")
    return number


def truth_value(name: str, value: object) -> bool:
    """Return `value` as Python's own truth value.

    Raises:
        ValueError: `value` is something else than a truth value of Python or NumPy.

    >>> truth_value("padded", 1)
    Traceback (most recent call last):
    ValueError: padded: expected True or False, found 1
    """
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(  # noqa: TRY004 -- bad arguments are one kind of error
            f"{name}: expected True or False, found {value!r}"
        )
    return bool(value)


def rank_of(rank: object, world_size: object) -> tuple[int, int]:
    """Return which of how many processes this is, as integers.

    Raises:
        ValueError: `rank` is not one of `world_size`, from 0, or there are more processes than `MOST_PROCESSES`.

    >>> rank_of(4, 4)
    Traceback (most recent call last):
    ValueError: rank: expected less than world_size=4, found 4
    """
    processes = whole_number("world_size", world_size, least=1)
    if processes > MOST_PROCESSES:
        raise ValueError(f"world_size: expected at most {MOST_PROCESSES}, found {processes}")
    number = whole_number("rank", rank, least=0)
    if number >= processes:
        raise ValueError(f"rank: expected less than world_size={processes}, found {number}")
    return number, processes
