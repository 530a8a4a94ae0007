"""Columns of documents, texts or lists of ids, as ids."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mixer.errors import InputError
from mixer.tokenizing.base import ID_MAX, Encoded, Int64s, Tokenizer


def ids_of_texts(tokenizer: Tokenizer, column: pa.ChunkedArray, where: str, first: int) -> Encoded:
    """Return the texts in `column` as `tokenizer` encodes them; null is an empty one.

    Args:
        tokenizer: What encodes them.
        column: Texts.
        where: Dataset and column, for messages.
        first: Number of the first document.

    Raises:
        InputError: Some text cannot be encoded; names the documents.
    """
    try:
        return tokenizer.encode([text or "" for text in column.to_pylist()])
    except InputError as error:
        last = first + len(column) - 1
        raise InputError(f"{where}, documents {first:,} to {last:,}: {error}") from error


def ids_of_lists(column: pa.ChunkedArray, where: str, first: int) -> Encoded:
    """Return the lists of whole numbers in `column` as the ids that they are; null is an empty list.

    Args:
        column: Lists of integers of any type.
        where: Dataset and column, for messages.
        first: Number of the first document.

    Raises:
        InputError: Some number is missing, or no id; names the document.

    >>> ids_of_lists(pa.chunked_array([[[5, 6], None, [7]]]), "dataset 'web'", 0).ids.tolist()
    [5, 6, 7]
    """
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    ends = np.cumsum(lengths.to_numpy(), dtype=np.int64)
    # Unlike the chunks' own values, without those that lie under a null or outside a slice.
    values = pc.list_flatten(column)
    if values.null_count:
        place = int(np.argmax(values.is_null().to_numpy()))
        raise InputError(
            f"{where}, document {first + _document(ends, place):,}: expected token ids, found null among them; mend it"
        )
    ids = values.to_numpy()
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) > ID_MAX):
        place = int(np.argmax((ids < 0) | (ids > ID_MAX)))
        raise InputError(
            f"{where}, document {first + _document(ends, place):,}: expected token ids from 0 to {ID_MAX:,}, found "
            f"{int(ids[place])}; mend it"
        )
    return Encoded(ids.astype(np.uint32), ends)


def _document(ends: Int64s, place: int) -> int:
    return Encoded(np.empty(0, np.uint32), ends).document_of(place)
