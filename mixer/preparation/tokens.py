"""The stage that makes rows one stream of token ids: documents in their order, each closed by the end-of-text id.

The stream has a row for each id: the id, and the number of the document it is in, which is its row in the dataset. The
second column takes next to nothing in a file, and answers both questions: which document an id is in, and (as it never
falls) where a document starts. Row groups are cut at fixed numbers of ids, and parts at fixed numbers of row groups, so
a document may lie in several of either.

Texts are read, encoded and written at the same time, in threads. Whoever goes on after a part encodes the document that
the part ended in once more, and leaves out the ids that are there already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace

import numpy as np
import pyarrow as pa
from pyarrow import types as kinds

from mixer.config.fields import WindowConfig
from mixer.core.fingerprint import JSON
from mixer.core.streams import id_type
from mixer.errors import ConfigError, CorruptionError, SchemaError
from mixer.preparation.base import Cursor, Part, number_of
from mixer.sources.base import Source
from mixer.sources.windows import TOKEN, stream_schema
from mixer.tokenizing import Encoded, Tokenizer, checked, open_tokenizer
from mixer.tokenizing.ahead import mapped_ahead
from mixer.tokenizing.base import ID_MAX, Ids, Int64s
from mixer.tokenizing.columns import ids_of_lists, ids_of_texts

VERSION = 1
"""Of the stage; raised when the ids or the cuts of equal inputs change."""
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Sizes:
    """How the stream is cut, and how much text is under work at once."""

    row_group_ids: int = 1 << 19
    """A window is read by decoding the row groups it lies in: a millisecond or two each."""
    part_row_groups: int = 16
    """What is encoded once more after a death, at the most."""
    batch_bytes: int = 1 << 20
    """Bytes of text that are encoded by one call: the library `tokenizers` takes some hundred times as many for it."""
    read_rows: int = 256
    """Rows that are read at once, at the most."""


SIZES = Sizes()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the stream stands."""

    ids: int = 0
    row: int = 0
    """The document that comes next, or that goes on."""
    skip: int = 0
    """How many of its ids are there already."""
    closed: int = 0
    """How many end-of-text ids there are."""
    nulls: int = 0
    """Documents before `row` that were null, and so empty ones."""

    def cursor(self) -> Cursor:
        return asdict(self)

    @classmethod
    def of(cls, cursor: Cursor | None) -> _Place:
        if cursor is None:
            return cls()
        if cursor.keys() != asdict(cls()).keys():
            raise CorruptionError(f"expected the cursor of a stream of ids, found {cursor!r:.200}")
        return cls(**{name: number_of(cursor, name) for name in cursor})


@dataclass(frozen=True, slots=True)
class _Texts:
    """Some consecutive documents, as they are stored."""

    first: int
    """Number of the first one."""
    column: pa.ChunkedArray


@dataclass(frozen=True, slots=True)
class _Documents:
    """The same, encoded and closed."""

    first: int
    encoded: Encoded
    nulls: Int64s
    """How many documents up to each one, itself with them, were null; shape ``(documents,)``."""


class TokensStage:
    """The stream of ids of a dataset's documents. Used by one thread, it has others of its own."""

    def __init__(
        self,
        name: str,
        window: WindowConfig,
        source: Source,
        reads: JSON,
        sizes: Sizes | None = None,
    ) -> None:
        """Encode the rows of `source`.

        Args:
            name: The dataset's name.
            window: What encodes them, and which column.
            source: The dataset's rows.
            reads: What tells them apart from others.
            sizes: How the stream is cut; None for `SIZES`.

        Raises:
            ConfigError: The tokenizer cannot be used, or something it needs is not said.
            SchemaError: The column is not there, or holds something else.
        """
        self.name = name
        self._column = window.text
        self._source = source
        self._sizes = sizes = SIZES if sizes is None else sizes
        kind = _kind(name, window, source.schema)
        self._tokenizer: Tokenizer | None = None
        if window.tokenizer is not None:
            self._tokenizer = open_tokenizer(name, window)
            self._end_of_text: int | None = self._tokenizer.end_of_text
            self._vocabulary = self._tokenizer.vocabulary
        else:
            self._end_of_text, self._vocabulary = _given(name, window, kind)
        self.identity: Mapping[str, JSON] = {
            "stage": "tokens",
            "stage_version": VERSION,
            "tokenizer": None if self._tokenizer is None else dict(self._tokenizer.identity),
            "column": window.text,
            "end_of_text": self._end_of_text,
            "vocabulary": self._vocabulary,
            "row_group_ids": sizes.row_group_ids,
            "part_row_groups": sizes.part_row_groups,
            "reads": reads,
        }

    def schema(self) -> pa.Schema:
        """Return the columns of the stream."""
        return stream_schema(self._vocabulary)

    def parts(self, schema: pa.Schema, after: Cursor | None) -> Iterator[Part]:
        """Yield the parts of the stream after the one that left `after`; see `mixer.preparation.base.Stage`.

        Raises:
            InputError: A document cannot be encoded, or holds the end-of-text id.
        """
        place = _Place.of(after)
        stream = _Stream(schema, self._sizes, place, self._end_of_text)
        threads = 1 if self._tokenizer is None else self._tokenizer.threads
        with closing(mapped_ahead(self._encoded, self._texts(place.row), threads)) as encoded:
            for documents in encoded:
                yield from stream.parts_with(documents)
        yield from stream.last_part()

    def facts(self, last: Cursor | None) -> Mapping[str, JSON]:
        """Return the stream's length, its tokenizer, and the counts of documents and of end-of-text ids, which agree.

        Raises:
            CorruptionError: They do not.
        """
        place, documents = _Place.of(last), self._source.rows
        if self._end_of_text is not None and place.closed != documents:
            raise CorruptionError(
                f"dataset {self.name!r}: expected an end-of-text id for each of {documents:,} documents, found "
                f"{place.closed:,}; delete the prepared copy, and prepare it again"
            )
        return {
            "ids": place.ids,
            "documents": documents,
            "end_of_text": self._end_of_text,
            "end_of_text_ids": None if self._end_of_text is None else place.closed,
            "null_documents": place.nulls,
            "vocabulary": self._vocabulary,
            "tokenizer": None if self._tokenizer is None else dict(self._tokenizer.identity),
        }

    def _texts(self, start: int) -> Iterator[_Texts]:
        """Yield the documents from `start` on, as many at once as are worth a call."""
        first, held, held_bytes, rows = start, [], 0, 1
        at = start
        while at < self._source.rows:
            stop = min(at + rows, self._source.rows)
            column = self._source.read(at, stop).column(self._column)
            held += column.chunks
            held_bytes += column.nbytes
            if held_bytes >= self._sizes.batch_bytes or stop == self._source.rows:
                yield _Texts(first, pa.chunked_array(held, column.type))
                first, held, held_bytes = stop, [], 0
            # Not many large ones at once because those before them were small.
            fitting = self._sizes.batch_bytes * (stop - at) // max(1, column.nbytes)
            rows = max(1, min(2 * rows, fitting, self._sizes.read_rows))
            at = stop

    def _encoded(self, texts: _Texts) -> _Documents:
        """Return documents as ids, checked and closed."""
        where = f"dataset {self.name!r}, column {self._column!r}"
        if self._tokenizer is None:
            encoded = ids_of_lists(texts.column, where, texts.first)
        else:
            encoded = ids_of_texts(self._tokenizer, texts.column, where, texts.first)
        checked(encoded, vocabulary=self._vocabulary, end_of_text=self._end_of_text, where=where, first=texts.first)
        encoded = Encoded(encoded.ids.astype(id_type(self._vocabulary)), encoded.ends)
        if self._end_of_text is not None:
            encoded = encoded.closed(self._end_of_text)
        nulls = np.cumsum(texts.column.is_null().to_numpy(), dtype=np.int64)
        return _Documents(texts.first, encoded, nulls)


class _Stream:
    """Documents under division into row groups and parts."""

    def __init__(self, schema: pa.Schema, sizes: Sizes, place: _Place, end_of_text: int | None) -> None:
        """Go on from `place`."""
        self._schema, self._sizes, self._place, self._end_of_text = schema, sizes, place, end_of_text
        self._nulls = place.nulls
        self._groups: list[pa.Table] = []
        self._clear()

    def parts_with(self, documents: _Documents) -> Iterator[Part]:
        """Yield the parts that `documents`, the next ones, fill."""
        encoded = documents.encoded
        used = self._place.skip if documents.first == self._place.row else 0
        while used < len(encoded.ids):
            taken = min(self._sizes.row_group_ids - self._filled, len(encoded.ids) - used)
            here = slice(self._filled, self._filled + taken)
            self._ids[here] = encoded.ids[used : used + taken]
            self._numbers[here] = documents.first + encoded.documents_of(used, used + taken)
            self._filled += taken
            used += taken
            self._stand(documents, used, taken)
            if self._filled == self._sizes.row_group_ids:
                self._end_group()
                if len(self._groups) == self._sizes.part_row_groups:
                    yield self._part()
        self._stand(documents, used, 0)
        self._nulls += int(documents.nulls[-1])

    def last_part(self) -> Iterator[Part]:
        """Yield the part that is begun, if one is."""
        if self._filled:
            self._end_group()
        if self._groups:
            yield self._part()

    def _stand(self, documents: _Documents, used: int, taken: int) -> None:
        """Note that `used` ids of `documents` are there, the last `taken` of them newly."""
        ends = documents.encoded.ends
        whole = int(np.searchsorted(ends, used, side="right"))
        begun = int(ends[whole - 1]) if whole else 0
        self._place = _Place(
            ids=self._place.ids + taken,
            row=documents.first + whole,
            skip=used - begun,
            closed=self._place.closed,
            nulls=self._nulls + (int(documents.nulls[whole - 1]) if whole else 0),
        )

    def _end_group(self) -> None:
        # Counted in what is written, and not in what was to be.
        ids = self._ids[: self._filled]
        found = 0 if self._end_of_text is None else int(np.count_nonzero(ids == self._end_of_text))
        self._place = replace(self._place, closed=self._place.closed + found)
        arrays = [pa.array(ids), pa.array(self._numbers[: self._filled])]
        self._groups.append(pa.Table.from_arrays(arrays, schema=self._schema))
        self._clear()

    def _clear(self) -> None:
        self._ids: Ids = np.empty(self._sizes.row_group_ids, self._schema.field(TOKEN).type.to_pandas_dtype())
        self._numbers = np.empty(self._sizes.row_group_ids, np.int64)
        self._filled = 0

    def _part(self) -> Part:
        groups, self._groups = self._groups, []
        return Part(groups, self._place.cursor())


def _kind(name: str, window: WindowConfig, schema: pa.Schema) -> pa.DataType:
    """Return the type of the column that is encoded.

    Raises:
        SchemaError: It is not there, or is neither text for a tokenizer nor ids without one.
    """
    where = f"datasets.{name}.window.text"
    if window.text not in schema.names:
        raise SchemaError(
            f"{where}: there is no column {window.text!r}; there are {', '.join(map(repr, schema.names[:_SHOWN]))}"
        )
    kind = schema.field(window.text).type
    if window.tokenizer is not None and not (kinds.is_string(kind) or kinds.is_large_string(kind)):
        raise SchemaError(f"{where}: column {window.text!r} is {kind}; a tokenizer needs text, so name a column of it")
    if window.tokenizer is None and not (kinds.is_list(kind) and kinds.is_integer(kind.value_type)):
        raise SchemaError(
            f"{where}: column {window.text!r} is {kind}; without a `tokenizer` it is to hold lists of token ids"
        )
    return kind


def _given(name: str, window: WindowConfig, kind: pa.DataType) -> tuple[int | None, int]:
    """Return the end-of-text id and the vocabulary of documents that are ids already.

    Raises:
        ConfigError: What the config says of them says nothing, or no id.
    """
    where = f"datasets.{name}.window"
    for unused in ("pattern", "version"):
        if getattr(window, unused) is not None:
            raise ConfigError(f"{where}.{unused}: says nothing without a `tokenizer`; leave it out")
    end_of_text = window.end_of_text
    if isinstance(end_of_text, str):
        raise ConfigError(
            f"{where}.end_of_text: expected an id from 0 to {ID_MAX:,}, as there is no tokenizer, found {end_of_text!r}"
        )
    vocabulary = window.vocabulary or (1 << min(31, kind.value_type.bit_width))
    return end_of_text, max(vocabulary, 0 if end_of_text is None else end_of_text + 1)
