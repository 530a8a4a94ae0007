"""The length of each item: as given, from a column without its data, or, at last, from every item itself."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch.utils.data import Subset

from mixer.core.lengths import checked_lengths

Int64s = npt.NDArray[np.int64]


def item_lengths(data_source: Any, lengths: Any = None) -> Int64s:
    """Return the length of each item, shape ``(items,)``.

    Args:
        data_source: What the items come from; None if `lengths` are given. It may have its items in a `dataset`.
        lengths: A list, a NumPy array, a tensor or an Arrow array (also chunked) of whole numbers; an Arrow array of
            lists, whose lengths are taken from its offsets; or the name of such a column of `data_source`, an Arrow
            table or a dataset of Hugging Face. None takes ``len(data_source.dataset[i])``, one item after the other.

    Raises:
        ValueError: They are no whole numbers from 0, or not one for each item of `data_source`.
    """
    items = _items(data_source)
    if lengths is None:
        return checked_lengths(_measured(items))
    if isinstance(lengths, str):
        lengths = _column(items, lengths)
    found = checked_lengths(_as_array(lengths))
    if has_length(data_source) and len(data_source) != len(found):
        raise ValueError(f"lengths: expected one for each of the {len(data_source)} items, found {len(found)}")
    return found


def has_length(value: Any) -> bool:
    """Return whether `len` says how many parts `value` has: all tensors and arrays have the method, one number too.

    >>> has_length([5]), has_length(torch.tensor(5))
    (True, False)
    """
    return isinstance(value, Sized) and not (isinstance(value, (torch.Tensor, np.ndarray)) and value.ndim == 0)


def _items(data_source: Any) -> Any:
    # A Subset's own `dataset` is the whole that it takes some items of.
    return data_source if isinstance(data_source, Subset) else getattr(data_source, "dataset", data_source)


def _measured(items: Any) -> Int64s:
    if not has_length(items) or not hasattr(items, "__getitem__"):
        raise ValueError(
            f"data_source: expected items by number, or a dataset of such, found {type(items).__name__}; "
            "give what it holds as lengths=..."
        )
    return np.fromiter((_length(items[i], i) for i in range(len(items))), dtype=np.int64, count=len(items))


def _length(item: Any, number: int) -> int:
    # The length of a record or of a pair is that of no sequence: it must not be taken for one.
    parts = isinstance(item, Mapping) or (isinstance(item, tuple) and any(has_length(part) for part in item))
    if parts or not has_length(item):
        raise ValueError(
            f"data_source: expected each item to be one sequence, found {type(item).__name__} as item {number}; "
            "give the lengths as lengths=..."
        )
    return len(item)


def _column(items: Any, name: str) -> Any:
    if isinstance(items, (pa.Table, pa.RecordBatch)):
        names, table = items.schema.names, items
    elif hasattr(items, "select_columns") and hasattr(items, "with_format"):
        names, table = items.column_names, None
    else:
        raise ValueError(
            f"lengths: expected a table of Arrow or a dataset of Hugging Face to have the column {name!r}, "
            f"found {type(items).__name__}"
        )
    if name not in names:
        raise ValueError(f"lengths: expected one of the columns {', '.join(names)}, found {name!r}")
    # In Arrow's format the files of a Hugging Face dataset stay mapped, and rows that are selected are respected.
    return (items.select_columns([name]).with_format("arrow")[:] if table is None else table).column(name)


def _as_array(lengths: Any) -> npt.ArrayLike:
    if isinstance(lengths, torch.Tensor):
        return lengths.detach().cpu().numpy()
    if not isinstance(lengths, (pa.Array, pa.ChunkedArray)):
        return np.asarray(lengths)
    if lengths.null_count:
        raise ValueError(f"lengths: expected one for each item, found {lengths.null_count} nulls")
    kind = lengths.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = pc.list_value_length(lengths)
    elif not pa.types.is_integer(kind):
        raise ValueError(f"lengths: expected an Arrow array of integers or of lists, found {kind}")
    # Offsets and integers without nulls are taken as they lie; several chunks are joined.
    array = lengths.to_numpy() if isinstance(lengths, pa.ChunkedArray) else lengths.to_numpy(zero_copy_only=False)
    return np.asarray(array)
