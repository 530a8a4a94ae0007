"""Sliding windows over one long stream of ids, by arithmetic: which there are, and where each one lies.

Window ``i`` of a context length T and a stride S is ``ids[i * S : i * S + T + 1]``: T inputs, and T targets that lie
one id further on. So N ids hold ``max(0, 1 + (N - (T + 1)) // S)`` windows, and any of them is reached at once.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from mixer.core.arguments import whole_number

Id = TypeVar("Id", bound=np.generic)


def window_count(ids: int, context_length: int, stride: int) -> int:
    """Return how many whole windows a stream holds.

    Args:
        ids: Length of the stream, N.
        context_length: Inputs of a window, T; it takes one id more.
        stride: Ids from the start of one window to the start of the next, S.

    Raises:
        ValueError: `ids` is negative, or another argument less than 1.

    >>> window_count(10, context_length=4, stride=4), window_count(10, context_length=4, stride=1)
    (2, 6)
    """
    ids, context_length, stride = _checked(ids, context_length, stride)
    return max(0, 1 + (ids - (context_length + 1)) // stride)


def tail_start(ids: int, context_length: int, stride: int) -> int | None:
    """Return where a last short window begins; None if whole windows have every target that there is.

    It begins a stride after the last whole window, and is there if it holds a target, an id after its first, that no
    whole window holds.

    Raises:
        ValueError: As `window_count`.

    >>> tail_start(10, context_length=4, stride=4), tail_start(9, context_length=4, stride=4)
    (8, None)
    """
    ids, context_length, stride = _checked(ids, context_length, stride)
    count = window_count(ids, context_length, stride)
    start = count * stride
    seen = (count - 1) * stride + context_length + 1 if count else 0
    return start if ids > max(seen, start + 1) else None


def window_range(start: int, stop: int, context_length: int, stride: int) -> tuple[int, int]:
    """Return the ids ``[first, end)`` that the windows ``[start, stop)`` cover; nothing for no windows.

    Raises:
        ValueError: `start` is negative or greater than `stop`, or another argument less than 1.

    >>> window_range(2, 4, context_length=4, stride=3)
    (6, 14)
    """
    start = whole_number("start", start, least=0)
    stop = whole_number("stop", stop, least=start)
    _, context_length, stride = _checked(0, context_length, stride)
    first = start * stride
    return first, first if start == stop else (stop - 1) * stride + context_length + 1


def windows_of(ids: npt.NDArray[Id], context_length: int, stride: int) -> npt.NDArray[Id]:
    """Return all whole windows of `ids`, as a view that cannot be written to: nothing is copied.

    Args:
        ids: Shape ``(ids,)``; those of ``window_range(start, stop, ...)`` give the windows ``[start, stop)``.
        context_length: Inputs of a window, T.
        stride: Ids from one window to the next.

    Returns:
        Shape ``(windows, T + 1)``.

    Raises:
        ValueError: `ids` has not one dimension, or another argument is less than 1.

    >>> windows_of(np.arange(10, 17), context_length=2, stride=2).tolist()
    [[10, 11, 12], [12, 13, 14], [14, 15, 16]]
    """
    if ids.ndim != 1:
        raise ValueError(f"ids: expected one dimension, found the shape {ids.shape}")
    count = window_count(len(ids), context_length, stride)
    if not count:
        return np.empty((0, context_length + 1), dtype=ids.dtype)
    return np.lib.stride_tricks.sliding_window_view(ids, context_length + 1)[::stride]


def _checked(ids: int, context_length: int, stride: int) -> tuple[int, int, int]:
    return (
        whole_number("ids", ids, least=0),
        whole_number("context_length", context_length, least=1),
        whole_number("stride", stride, least=1),
    )
