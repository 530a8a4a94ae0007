"""One long stream of ids, wherever it lies: parts are taken when they are asked for, and nothing else is copied.

NumPy arrays, memory maps, tensors, Arrow arrays and other buffers are used in place. A list becomes an array once. For
a worker process that is spawned, a memory map is opened anew by its path; a stream in memory is shared by way of
PyTorch, and one of Arrow is sent whole.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

Int64s = npt.NDArray[np.int64]
Ids: TypeAlias = npt.NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class _SharedIds:
    """Ids in memory that processes of PyTorch can share: the tensor moves to shared memory when it is sent to one."""

    held: torch.Tensor
    """Their bytes, since not all tensors of unsigned integers can be pickled."""
    dtype: str

    def array(self) -> Ids:
        # Taken anew for each use, since a tensor that was sent to a process lies elsewhere from then on.
        ids: Ids = self.held.numpy().view(self.dtype)
        return ids


class Stream:
    """Ids in one or several arrays, one after the other."""

    def __init__(self, ids: Any) -> None:
        """Take the ids as they lie.

        Raises:
            ValueError: They are no whole numbers of at most 64 bits, or have not one dimension, or one is missing.
        """
        self._parts = [_kept(part) for part in _parts_of(ids)]
        self._ends = _ends(self._parts)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, starts: Int64s, width: int) -> Int64s:
        """Return the `width` ids from each start on, all of which must be there, shape ``(starts, width)``.

        Raises:
            ValueError: An id is greater than a signed 64-bit integer can be.
        """
        if len(self._parts) == 1:
            return _read(_array(self._parts[0]), starts, width)
        out = np.empty((len(starts), width), dtype=np.int64)
        first = np.searchsorted(self._ends, starts, side="right")
        last = np.searchsorted(self._ends, starts + width, side="left")
        begins = np.concatenate([[0], self._ends[:-1]])
        for part in np.unique(first[first == last]).tolist():
            rows = np.flatnonzero((first == part) & (last == part))
            out[rows] = _read(_array(self._parts[part]), starts[rows] - begins[part], width)
        for row in np.flatnonzero(first != last).tolist():
            at = int(starts[row])
            pieces = [
                _wide(_array(self._parts[part])[max(0, at - int(begins[part])) : at + width - int(begins[part])])
                for part in range(int(first[row]), int(last[row]) + 1)
            ]
            out[row] = np.concatenate(pieces)
        return out

    def __getstate__(self) -> dict[str, Any]:
        return {"parts": [_packed(part) for part in self._parts]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._parts = [part.open() if isinstance(part, _MappedIds) else part for part in state["parts"]]
        self._ends = _ends(self._parts)


def _ends(parts: list[Ids | _SharedIds]) -> Int64s:
    return np.cumsum([len(_array(part)) for part in parts], dtype=np.int64)


def _read(ids: Ids, starts: Int64s, width: int) -> Int64s:
    if not len(starts):
        return np.empty((0, width), dtype=np.int64)
    return _wide(np.lib.stride_tricks.sliding_window_view(ids, width)[starts])


def _wide(ids: Ids) -> Int64s:
    wide = ids.astype(np.int64)
    if ids.dtype.kind == "u" and ids.dtype.itemsize == wide.itemsize and (wide < 0).any():
        raise ValueError(f"ids: expected at most 2**63 - 1, found {int(ids.max())}")
    return wide


def _parts_of(ids: Any) -> list[Ids]:
    if isinstance(ids, pa.ChunkedArray):
        parts = [_of_arrow(chunk) for chunk in ids.chunks if len(chunk)]
        return parts or [_of_arrow(pa.array([], ids.type))]
    if isinstance(ids, pa.Array):
        return [_of_arrow(ids)]
    array = ids.detach().cpu().numpy() if isinstance(ids, torch.Tensor) else np.asanyarray(ids)
    if array.ndim != 1:
        raise ValueError(f"ids: expected one dimension, found the shape {array.shape}")
    if not len(array) and not isinstance(ids, np.ndarray):
        return [array.astype(np.int64)]
    if array.dtype.kind not in "iu":
        raise ValueError(f"ids: expected whole numbers of at most 64 bits, found {array.dtype}")
    return [array]


def _of_arrow(ids: pa.Array) -> Ids:
    if not pa.types.is_integer(ids.type):
        raise ValueError(f"ids: expected whole numbers of at most 64 bits, found Arrow's {ids.type}")
    if ids.null_count:
        raise ValueError(f"ids: expected an id at each place, found {ids.null_count} nulls")
    array: Ids = ids.to_numpy()
    return array


@dataclass(frozen=True, slots=True)
class _MappedIds:
    """Where ids lie in a file."""

    path: str
    dtype: str
    place: int
    """The byte at which the first one begins."""
    number: int
    stride: int
    """Bytes from one to the next."""

    def open(self) -> Ids:
        reach = (self.number - 1) * self.stride
        low, high = self.place + min(0, reach), self.place + max(0, reach) + np.dtype(self.dtype).itemsize
        held = np.memmap(self.path, dtype=np.uint8, mode="r", offset=low, shape=(high - low,))
        return np.ndarray((self.number,), self.dtype, held, self.place - low, (self.stride,))


def _kept(ids: Ids) -> Ids | _SharedIds:
    if _mapped(ids) is None and ids.flags.writeable and ids.flags.c_contiguous:
        return _SharedIds(torch.from_numpy(np.asarray(ids).view(np.uint8)), ids.dtype.str)
    return ids


def _array(part: Ids | _SharedIds) -> Ids:
    return part.array() if isinstance(part, _SharedIds) else part


def _packed(part: Ids | _SharedIds) -> Ids | _SharedIds | _MappedIds:
    if isinstance(part, _SharedIds):
        return part
    return _mapped(part) or np.asarray(part)


def _mapped(ids: Ids) -> _MappedIds | None:
    """Return where ids lie in a file if they are mapped from one, as a `numpy.memmap` or a part of one."""
    base: Any = ids
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    held = getattr(base, "_mmap", None)
    if held is None or base.filename is None or base.mode == "c" or not len(ids):
        return None
    # A part of a map has the offset of the whole, so its place follows from where it lies in memory; and what is mapped
    # begins at a whole page, at or before the offset.
    begin = np.frombuffer(held, dtype=np.uint8).ctypes.data
    place = base.offset - base.offset % mmap.ALLOCATIONGRANULARITY + ids.ctypes.data - begin
    return _MappedIds(str(base.filename), ids.dtype.str, place, len(ids), ids.strides[0])
