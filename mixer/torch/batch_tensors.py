"""Columns of several batches as tensors, cut into batches without a loop over rows.

A column of numbers becomes a tensor of shape ``(rows,)``; lists of numbers, one as long as the other within a batch,
one of shape ``(rows, length)``; lists of lists, where they are as regular, ``(rows, n, length)``. Lists that are not
are said to be *ragged* by whoever reads them, and come as a `Ragged`. A binary column may hold numbers, little-endian,
as token windows often do; its reader says which. All else is a Python list.

Memory is that of the decoded rows wherever a tensor can share it. Nobody else has that memory, so tensors may be
written to; the batches of one row group lie in one piece of memory, each in its own part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from mixer.errors import ConfigError

NUMBERS = {
    name: np.dtype(name).newbyteorder("<")
    for name in (
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
    )
}
"""Types of the numbers in a tensor, by name."""


class Ragged(NamedTuple):
    """Lists of different lengths: row ``i`` is ``values[offsets[i]:offsets[i + 1]]``.

    ``torch.nested.nested_tensor_from_jagged(*ragged)`` makes a nested tensor of it.
    """

    values: Tensor
    offsets: Tensor
    """int64, shape ``(rows + 1,)``, from 0."""


Value = Tensor | Ragged | list[Any]
"""What a batch has of a column."""


class Column(Protocol):
    """A column of consecutive batches, which may be sent to another process."""

    def rows(self, start: int, stop: int) -> Value:
        """Return the rows ``[start, stop)``."""
        ...

    def pinned(self) -> Column:
        """Return the same in pinned memory."""
        ...


@dataclass(frozen=True, slots=True)
class Plain:
    """A tensor whose first dimension is rows."""

    values: Tensor

    def rows(self, start: int, stop: int) -> Value:
        return self.values[start:stop]

    def pinned(self) -> Column:
        return Plain(self.values.pin_memory())


@dataclass(frozen=True, slots=True)
class Lists:
    """Lists, or lists of lists, of numbers."""

    name: str
    values: Tensor
    """All numbers, shape ``(numbers,)``, or ``(numbers, n, ...)`` if the innermost lists have a fixed size."""
    offsets: tuple[Tensor, ...]
    """For each level of lists from the outermost on, int64 of shape ``(lists + 1,)``: where they begin in the next."""
    ragged: bool

    def rows(self, start: int, stop: int) -> Value:
        if not self.ragged:
            return _regular(self.name, self.values, self.offsets, start, stop)
        if len(self.offsets) > 1:
            return [
                _regular(self.name, self.values, self.offsets, row, row + 1).squeeze(0) for row in range(start, stop)
            ]
        offsets = self.offsets[0][start : stop + 1]
        return Ragged(self.values[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0])

    def pinned(self) -> Column:
        return replace(self, values=self.values.pin_memory())


@dataclass(frozen=True, slots=True)
class Things:
    """Anything that no tensor holds."""

    values: list[Any]

    def rows(self, start: int, stop: int) -> Value:
        return self.values[start:stop]

    def pinned(self) -> Column:
        return self


def _regular(name: str, values: Tensor, offsets: Sequence[Tensor], start: int, stop: int) -> Tensor:
    """Return the rows ``[start, stop)`` of lists that are equally long at each level.

    Raises:
        ConfigError: They are not.
    """
    shape = [stop - start]
    for level in offsets:
        bounds = level[start : stop + 1]
        lengths = torch.diff(bounds)
        length = int(lengths[0]) if len(lengths) else 0
        if len(lengths) and not bool((lengths == length).all()):
            raise ConfigError(
                f"column {name!r}: its lists have from {int(lengths.min())} to {int(lengths.max())} elements within a "
                f"batch, which one tensor cannot hold; name it in `ragged`, or leave it out of `columns`"
            )
        shape.append(length)
        start, stop = int(bounds[0]), int(bounds[-1])
    return values[start:stop].reshape(*shape, *values.shape[1:])


@dataclass(frozen=True, slots=True)
class Options:
    """What the reader says of columns whose types do not say it."""

    binary: Mapping[str, str]
    """The type of the numbers in binary columns."""
    ragged: frozenset[str]

    @classmethod
    def of(cls, binary: object, ragged: object) -> Self:
        """Return the options that a caller has passed; whether there are such columns only a schema can say.

        Raises:
            ConfigError: `binary` is neither None nor a mapping of names to types, or `ragged` no names.

        >>> Options.of({"input_ids": "uint16"}, ["labels"])
        Options(binary={'input_ids': 'uint16'}, ragged=frozenset({'labels'}))
        """
        types = {} if binary is None else binary
        if not isinstance(types, Mapping):
            raise ConfigError(
                f"binary: expected the types of numbers in columns by name, such as {{'input_ids': 'uint16'}}, "
                f"found {binary!r}"
            )
        for name, number in types.items():
            if not isinstance(number, str) or number not in NUMBERS:
                raise ConfigError(f"binary: column {name!r}: expected one of {', '.join(NUMBERS)}, found {number!r}")
        # The letters of a text could be names, too.
        names: list[Any] = list(ragged) if isinstance(ragged, Iterable) and not isinstance(ragged, str) else [None]
        if not all(isinstance(name, str) for name in names):
            raise ConfigError(f"ragged: expected a list of names of columns, found {ragged!r}")
        return cls(dict(types), frozenset(names))

    def check(self, schema: pa.Schema) -> None:
        """Check that they are about columns of `schema`.

        Raises:
            ConfigError: They are not.
        """
        for name in self.binary:
            if name not in schema.names or not _is_binary(schema.field(name).type):
                raise ConfigError(f"binary: expected binary columns that are read, found {name!r}; {_told(schema)}")
        for name in self.ragged:
            if name not in schema.names or not (name in self.binary or _is_list(schema.field(name).type)):
                raise ConfigError(f"ragged: expected columns of lists that are read, found {name!r}; {_told(schema)}")


def _told(schema: pa.Schema) -> str:
    return "there are " + ", ".join(f"{field.name} ({field.type})" for field in schema)


def column_of(name: str, column: pa.ChunkedArray, options: Options) -> Column:
    """Return a column of a table.

    Raises:
        ConfigError: It has nulls, which no tensor holds, or a binary column holds no whole numbers of bytes.
    """
    kind = column.type
    if name in options.binary:
        return _binary(name, _one(column), options.binary[name], ragged=name in options.ragged)
    if _number(kind) or pa.types.is_boolean(kind):
        return Plain(_tensor(name, _one(column)))
    if _is_list(kind) and _number(_innermost(kind)):
        return _lists(name, _one(column), ragged=name in options.ragged)
    return Things(column.to_pylist())


def _one(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _lists(name: str, array: pa.Array, *, ragged: bool) -> Lists:
    offsets: list[Tensor] = []
    while _is_list(array.type):
        _refuse_nulls(name, array)
        if pa.types.is_fixed_size_list(array.type):
            offsets.append(torch.arange(len(array) + 1) * array.type.list_size)
            array = array.flatten()
            continue
        bounds = array.offsets.to_numpy().astype(np.int64)
        start, stop = int(bounds[0]), int(bounds[-1])
        offsets.append(torch.from_numpy(bounds - start))
        array = array.values.slice(start, stop - start)
    return Lists(name, _tensor(name, array), tuple(offsets), ragged)


def _tensor(name: str, array: pa.Array) -> Tensor:
    _refuse_nulls(name, array)
    if pa.types.is_boolean(array.type):
        return torch.from_numpy(np.array(array.to_numpy(zero_copy_only=False)))
    dtype = NUMBERS[_number(array.type)]
    return torch.from_numpy(_writable(array.buffers()[1], array.offset * dtype.itemsize, len(array), dtype))


def _binary(name: str, array: pa.Array, number: str, *, ragged: bool) -> Lists:
    _refuse_nulls(name, array)
    dtype = NUMBERS[number]
    if pa.types.is_fixed_size_binary(array.type):
        width = array.type.byte_width
        bounds = np.arange(len(array) + 1, dtype=np.int64) * width + array.offset * width
        data = array.buffers()[1]
    else:
        wide = pa.types.is_large_binary(array.type)
        _, ends, data = array.buffers()
        bounds = np.frombuffer(ends, np.int64 if wide else np.int32)[array.offset :][: len(array) + 1].astype(np.int64)
    start = int(bounds[0])
    bounds = bounds - start
    if (bounds % dtype.itemsize).any():
        raise ConfigError(f"column {name!r}: expected numbers of {dtype.itemsize} bytes ({number}) in each row")
    bounds = bounds // dtype.itemsize
    numbers = _writable(data, start, int(bounds[-1]), dtype)
    return Lists(name, torch.from_numpy(numbers), (torch.from_numpy(bounds),), ragged)


class _Memory:
    """A part of a buffer, for NumPy, which keeps the buffer alive by it."""

    def __init__(self, buffer: pa.Buffer, start: int, numbers: int, dtype: np.dtype[Any]) -> None:
        self.buffer = buffer
        self.__array_interface__ = {
            "version": 3,
            "shape": (numbers,),
            "typestr": dtype.str,
            "data": (buffer.address + start, False),
        }


def _writable(buffer: pa.Buffer | None, start: int, numbers: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return `numbers` numbers of a buffer from byte `start` on, without a copy where nobody else has its memory."""
    if not numbers or buffer is None:
        return np.empty(0, dtype)
    # Not checked by NumPy, as an address has no length.
    if start + numbers * dtype.itemsize > buffer.size:
        raise AssertionError(f"{numbers} numbers from byte {start} on do not lie in {buffer.size} bytes")
    array = np.asarray(_Memory(buffer, start, numbers, dtype))
    return array if buffer.is_mutable and array.flags.aligned else array.copy()


def _refuse_nulls(name: str, array: pa.Array) -> None:
    if array.null_count:
        raise ConfigError(
            f"column {name!r}: has nulls, which a tensor cannot hold; leave it out of `columns`, or take Arrow tables "
            f"from mixer.read"
        )


def _number(kind: pa.DataType) -> str:
    """Return the name of a number's type; empty for anything else."""
    name = {"halffloat": "float16", "float": "float32", "double": "float64"}.get(str(kind), str(kind))
    return name if name in NUMBERS else ""


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _innermost(kind: pa.DataType) -> pa.DataType:
    while _is_list(kind):
        kind = kind.value_type
    return kind
