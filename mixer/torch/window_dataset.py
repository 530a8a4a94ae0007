"""Windows over a stream of token ids as a `Dataset`: computed when they are asked for, from one copy of the stream."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from mixer.core.arguments import truth_value, whole_number
from mixer.core.windows import tail_start, window_count
from mixer.torch.streams import Stream

Int64s = npt.NDArray[np.int64]
Pair: TypeAlias = tuple[torch.Tensor, torch.Tensor]
"""Inputs and targets."""

IGNORE_INDEX = -100
"""What PyTorch's losses leave out by default."""


class SlidingWindowDataset(Dataset[Pair]):
    """Windows of T inputs and T targets: item ``i`` is ``(ids[s:s+T], ids[s+1:s+T+1])`` with ``s = i * S``.

    Tensors are of 64-bit integers, and share no memory. N ids hold ``max(0, 1 + (N - (T+1)) // S)`` windows. What is
    left at the end and fills none is dropped or, with a `pad_id`, becomes one more if it holds a target that no whole
    window holds: its inputs end in pad ids, and each target that is not in the stream is the ignore index.

    The stream may be a list, a NumPy array or memory map, a tensor, an Arrow array (also chunked) or another buffer of
    integers of up to 64 bits; but for a list it is used where it lies, whatever the stride, and must not be changed.

    >>> ds = SlidingWindowDataset(range(10, 20), context_length=4, stride=4, pad_id=0)
    >>> len(ds), SlidingWindowDataset.count(10, 4, 4), SlidingWindowDataset.count(10, 4, 4, padded=True)
    (3, 2, 3)
    >>> ds[0]
    (tensor([10, 11, 12, 13]), tensor([11, 12, 13, 14]))
    >>> ds[-1]
    (tensor([18, 19,  0,  0]), tensor([  19, -100, -100, -100]))
    """

    def __init__(
        self,
        ids: Any,
        context_length: int,
        stride: int,
        *,
        pad_id: int | None = None,
        ignore_index: int = IGNORE_INDEX,
    ) -> None:
        """Take a stream as it lies.

        Args:
            ids: The stream, shape ``(N,)``.
            context_length: T, inputs of a window.
            stride: S, ids from the start of one window to the start of the next.
            pad_id: What fills up the inputs of a last short window; None drops it.
            ignore_index: The target where there is none.

        Raises:
            ValueError: An argument is not what it should be; the message says which.
        """
        self.context_length = whole_number("context_length", context_length, least=1)
        self.stride = whole_number("stride", stride, least=1)
        self.pad_id = None if pad_id is None else whole_number("pad_id", pad_id, least=0)
        self.ignore_index = whole_number("ignore_index", ignore_index)
        self._stream = Stream(ids)
        self._whole = window_count(len(self._stream), self.context_length, self.stride)
        tail = None if pad_id is None else tail_start(len(self._stream), self.context_length, self.stride)
        self._length = self._whole + (tail is not None)

    @staticmethod
    def count(ids: int, context_length: int, stride: int, *, padded: bool = False) -> int:
        """Return how many windows a stream of `ids` ids has, without it.

        Args:
            ids: N, the length of the stream.
            context_length: T, inputs of a window.
            stride: S, ids from one window to the next.
            padded: Whether a last short window counts, as with a `pad_id`.

        Raises:
            ValueError: `ids` is negative, another number less than 1, or `padded` neither True nor False.
        """
        whole = window_count(ids, context_length, stride)
        return whole + (truth_value("padded", padded) and tail_start(ids, context_length, stride) is not None)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Pair:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Pair]:
        """Return several windows; a `DataLoader` asks for all of a batch at once."""
        numbers = np.array([self._number(index) for index in indices], dtype=np.int64)
        whole = numbers < self._whole
        # There is one window at most where a stride leads beyond the stream, and so beyond 64 bits perhaps.
        stride = min(self.stride, len(self._stream))
        windows = self._stream.read(numbers[whole] * stride, self.context_length + 1)
        inputs, targets = windows[:, :-1].copy(), windows[:, 1:].copy()
        if not whole.all():
            short_inputs, short_targets = self._tail()
            inputs, targets = _filled(inputs, whole, short_inputs), _filled(targets, whole, short_targets)
        return list(zip(torch.from_numpy(inputs), torch.from_numpy(targets), strict=True))

    def _number(self, index: int) -> int:
        number = operator.index(index)
        if not -self._length <= number < self._length:
            raise IndexError(f"window {number} of {self._length}")
        return number % self._length

    def _tail(self) -> tuple[Int64s, Int64s]:
        start = self._whole * self.stride
        held = len(self._stream) - start
        ids = self._stream.read(np.array([start]), held)[0]
        inputs = np.full(self.context_length, self.pad_id, dtype=np.int64)
        targets = np.full(self.context_length, self.ignore_index, dtype=np.int64)
        inputs[:held] = ids
        targets[: held - 1] = ids[1:]
        return inputs, targets


def _filled(rows: Int64s, places: npt.NDArray[np.bool_], other: Int64s) -> Int64s:
    """Return the rows at their places, and another one at all places else, shape ``(places, row)``."""
    filled = np.empty((len(places), rows.shape[1]), dtype=np.int64)
    filled[places] = rows
    filled[~places] = other
    return filled
