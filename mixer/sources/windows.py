"""Windows of a stream of token ids as the rows of a dataset, each made when it is read.

The stream is a dataset of its own: a column ``token`` of ids and a column ``document`` that says which document each
is in, one row an id, in small row groups. So a window is reached by its number alone, and what windows share is not
stored twice. Ids that the next windows take as well are kept from one read to the next.

Only with `shuffle: full` a copy holds the windows themselves, as rows in random orders. What is known of the stream is
then the fact `stream` of that copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mixer.config.fields import WindowConfig
from mixer.core.fingerprint import JSON
from mixer.core.streams import Windows, id_type
from mixer.core.windows import windows_of
from mixer.errors import CorruptionError, SchemaError
from mixer.schemas import View, conform
from mixer.sources.base import Source, check_range
from mixer.sources.files import OpenFiles
from mixer.sources.inventory import Inventory
from mixer.sources.parquet import ParquetSource

TOKEN = "token"  # noqa: S105 - a column of ids
DOCUMENT = "document"
INPUT_IDS = "input_ids"
DOCUMENT_IDS = "document_ids"
STREAM = "stream"
"""The fact of a copy of windows that tells of their stream."""
NO_DOCUMENT = -1
"""What `document_ids` says of an id that fills the last window up."""

_CHUNK_BYTES = (1 << 31) - 1
"""What 32-bit offsets can address."""
_UINT16: np.dtype[np.integer[Any]] = np.dtype("<u2")
_INT32: np.dtype[np.integer[Any]] = np.dtype("<i4")
_LIST = pa.list_(pa.field("element", pa.int32()))

Ids = npt.NDArray[np.integer[Any]]


def windows_in(window: WindowConfig) -> Windows:
    """Return which windows `window` asks for.

    >>> windows_in(WindowConfig(context_length=8))
    Windows(context_length=8, stride=8, padded=False)
    """
    return Windows(window.context_length, window.stride or window.context_length, padded=window.pad_id is not None)


def window_schema(window: WindowConfig) -> pa.Schema:
    """Return the columns of the windows that `window` asks for.

    >>> window_schema(WindowConfig(context_length=8, store_as="uint16", documents=True)).names
    ['input_ids', 'document_ids']
    """
    fields = [pa.field(INPUT_IDS, _LIST if window.store_as == "list" else pa.binary())]
    if window.documents:
        fields.append(pa.field(DOCUMENT_IDS, _LIST))
    return pa.schema(fields)


def id_bytes(window: WindowConfig) -> int:
    """Return what an id takes in a decoded window, with the number of its document.

    >>> id_bytes(WindowConfig(context_length=8, store_as="uint16", documents=True))
    6
    """
    dtype = _stored(window.store_as)
    return dtype.itemsize + (_INT32.itemsize if window.documents else 0)


def stream_schema(vocabulary: int, *, documents: bool = True) -> pa.Schema:
    """Return the columns of a stream of ids below `vocabulary`; without that of documents, if they do not matter.

    >>> stream_schema(50_257)
    token: uint16
    document: int64
    """
    fields = [pa.field(TOKEN, pa.from_numpy_dtype(id_type(vocabulary)))]
    if documents:
        fields.append(pa.field(DOCUMENT, pa.int64()))
    return pa.schema(fields)


def windows_json(window: WindowConfig) -> dict[str, JSON]:
    """Return what of `window` decides the windows of a stream, as plain values.

    >>> windows_json(WindowConfig(context_length=8, text="body"))["stride"]
    8
    """
    shape = windows_in(window)
    return {
        "context_length": shape.context_length,
        "stride": shape.stride,
        "pad_id": window.pad_id,
        "store_as": window.store_as,
        "documents": window.documents,
    }


def windows_to_make(window: WindowConfig | None, inventory: Inventory) -> WindowConfig | None:
    """Return the windows that a dataset's items are made into when they are read, of the stream in its files.

    None if its items are the rows of its files: those of a dataset without `window`, or a copy of the windows.

    >>> window = WindowConfig(context_length=8)
    >>> windows_to_make(window, Inventory((), (), {"ids": 40, "vocabulary": 9})) is window
    True
    >>> windows_to_make(window, Inventory((), (), {"epochs": 2, "stream": {"ids": 40, "vocabulary": 9}}))
    """
    return None if STREAM in inventory.facts else window


def ids_in(inventory: Inventory) -> JSON:
    """Return how many ids the stream of a dataset's windows has, be its files the stream or a copy of the windows.

    >>> ids_in(Inventory((), (), {"epochs": 2, "stream": {"ids": 40, "vocabulary": 9}}))
    40
    """
    return stream_facts(inventory.facts).get("ids") if STREAM in inventory.facts else inventory.rows


def stream_facts(facts: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """Return what `facts` tell of a stream, be they those of the stream or of a copy of its windows.

    >>> stream_facts({"epochs": 2, "stream": {"ids": 40}, "prepared": {}}), stream_facts({"ids": 40, "prepared": {}})
    ({'ids': 40}, {'ids': 40})
    """
    stream = facts.get(STREAM, facts)
    if not isinstance(stream, Mapping):
        raise CorruptionError(f"a prepared copy of windows: expected facts of their stream, found {stream!r:.100}")
    return {name: fact for name, fact in stream.items() if name != "prepared"}


def vocabulary_in(name: str, facts: Mapping[str, JSON]) -> int:
    """Return one more than the greatest id of the stream that `facts` tell of.

    Raises:
        CorruptionError: They tell of none.
    """
    vocabulary = stream_facts(facts).get("vocabulary")
    if type(vocabulary) is not int or vocabulary < 1:
        raise CorruptionError(f"dataset {name!r}: its prepared copy does not say how many token ids there are")
    return vocabulary


def check_stored(name: str, window: WindowConfig, facts: Mapping[str, JSON]) -> None:
    """Check that windows of the stream that `facts` tell of can be stored as `window` asks.

    Raises:
        SchemaError: Its ids, or the pad id, are too great for their type.
        CorruptionError: The facts are none of a stream.
    """
    greatest = max(vocabulary_in(name, facts) - 1, window.pad_id or 0)
    most = np.iinfo(_stored(window.store_as)).max
    if greatest > most:
        is_guessed = window.tokenizer is None and window.vocabulary is None and (window.pad_id or 0) <= most
        less = ", or say in `vocabulary` that there are fewer" if is_guessed else ""
        raise SchemaError(
            f"datasets.{name}.window.store_as: {window.store_as} holds ids up to {most:,}, and there are some up to "
            f"{greatest:,}; choose `int32` or `list`{less}"
        )


class WindowSource:
    """The windows of a stream, in their order, in the columns and types of `schema`. Used by one thread at a time."""

    def __init__(
        self,
        stream: Source,
        window: WindowConfig,
        *,
        schema: pa.Schema | None = None,
        view: View = View(),  # noqa: B008 - a frozen value
    ) -> None:
        """Read windows of `stream`.

        Args:
            stream: Its ids, with the columns of `stream_schema`; closed with this source.
            window: Which windows, and how they are stored.
            schema: Columns and types of what is returned, from `mixer.schemas.merge`; those of `window_schema` if left
                out.
            view: How the windows were seen when they were merged.
        """
        self._stream = stream
        self._window = window
        self._windows = windows_in(window)
        self._own = window_schema(window)
        self._view = view
        self.name = stream.name
        self.rows = self._windows.count(stream.rows)
        self.schema = schema if schema is not None else self._own
        # Ids from a place on that a read has left for the next one: the place, and the columns of the stream.
        self._kept: tuple[int, tuple[Ids, ...]] | None = None

    def read(self, start: int, stop: int) -> pa.Table:
        """Return the windows ``[start, stop)``, in `schema`; in several chunks where one cannot hold them.

        Raises:
            ValueError: Not ``0 <= start <= stop <= rows``.
            MixerError: As the stream's own `read`.
        """
        check_range(self, start, stop)
        # As many windows at once as a chunk can hold.
        most = max(1, _CHUNK_BYTES // (self._windows.length * _INT32.itemsize))
        tables = [self._own.empty_table()] if start == stop else []
        tables += [self._table(first, min(first + most, stop)) for first in range(start, stop, most)]
        return conform(pa.concat_tables(tables), self.schema, self._view, first_row=start)

    def close(self) -> None:
        self._kept = None
        self._stream.close()

    def _table(self, start: int, stop: int) -> pa.Table:
        first, end = self._windows.ids(start, stop, self._stream.rows)
        columns = self._columns(first, end, keep=stop * self._windows.stride)
        ids = self._grid(columns[0], stop - start, self._window.pad_id or 0)
        arrays = [_arrow(ids, self._window.store_as)]
        if self._window.documents:
            documents = self._grid(columns[1], stop - start, NO_DOCUMENT)
            # From 0 in each window, whatever the number of its first document.
            counted = np.where(documents == NO_DOCUMENT, NO_DOCUMENT, documents - documents[:, :1])
            arrays.append(_arrow(counted, "list"))
        return pa.Table.from_arrays(arrays, schema=self._own)

    def _columns(self, first: int, end: int, keep: int) -> tuple[Ids, ...]:
        """Return the ids ``[first, end)`` of the stream's columns, and keep those from `keep` on for the next read."""
        kept, self._kept = self._kept, None
        if kept is not None and kept[0] <= first < kept[0] + len(kept[1][0]):
            ahead = tuple(column[first - kept[0] : end - kept[0]] for column in kept[1])
            read = first + len(ahead[0])
            columns = ahead
            if read < end:
                more = self._decoded(read, end)
                columns = tuple(np.concatenate(both) for both in zip(ahead, more, strict=True))
        else:
            columns = self._decoded(first, end)
        if keep < end:
            # Copied, so that the rest is let go of.
            self._kept = keep, tuple(column[keep - first :].copy() for column in columns)
        return columns

    def _decoded(self, first: int, end: int) -> tuple[Ids, ...]:
        table = self._stream.read(first, end)
        return tuple(_numbers(table.column(name)) for name in self._stream.schema.names)

    def _grid(self, column: Ids, windows: int, fill: int) -> Ids:
        """Return a column of the stream as windows, of shape ``(windows, T + 1)``; what it lacks is filled up."""
        wanted = (windows - 1) * self._windows.stride + self._windows.length
        if (lacking := wanted - len(column)) > 0:
            dtype = np.promote_types(column.dtype, np.min_scalar_type(fill))
            column = np.concatenate([column.astype(dtype), np.full(lacking, fill, dtype)])
        return windows_of(column, self._windows.context_length, self._windows.stride)


def open_windows(  # noqa: PLR0913 -- what each of the two sources asks for
    name: str,
    inventory: Inventory,
    window: WindowConfig,
    *,
    schema: pa.Schema | None = None,
    view: View = View(),  # noqa: B008 - a frozen value
    files: OpenFiles | None = None,
) -> WindowSource:
    """Return the windows of the stream that `inventory` tells of; the rest is as of `WindowSource` and `ParquetSource`.

    Raises:
        CorruptionError: It tells of no stream.
    """
    ids = stream_schema(vocabulary_in(name, inventory.facts), documents=window.documents)
    stream = ParquetSource(name, inventory, ids, files=files)
    return WindowSource(stream, window, schema=schema, view=view)


def _stored(store_as: str) -> np.dtype[np.integer[Any]]:
    return _UINT16 if store_as == "uint16" else _INT32


def _numbers(column: pa.ChunkedArray) -> Ids:
    chunks = [chunk.to_numpy() for chunk in column.chunks]
    numbers: Ids = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
    return numbers


def _arrow(grid: Ids, store_as: str) -> pa.Array:
    """Return windows of shape ``(windows, T + 1)`` as one array with a value for each."""
    dtype = _stored(store_as)
    values = np.ascontiguousarray(grid, dtype=dtype)  # copies: windows overlap in the stream
    count, length = values.shape
    if store_as == "list":
        offsets = np.arange(count + 1, dtype=np.int32) * length
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.reshape(-1)), type=_LIST)
    offsets = np.arange(count + 1, dtype=np.int32) * (length * dtype.itemsize)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(values)])
