"""Documents become one stream of ids: a single call of the tokenizer, and an end-of-text id between documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mixer.core.arguments import truth_value, whole_number

_LARGEST = 2**32 - 1
_WAYS_OUT = "set encode_special_tokens = True on a tokenizer of `tokenizers`, let it add none, or take that text out"


def encode_corpus(
    documents: Iterable[str], tokenizer: Any, end_of_text: int, *, at_end: bool = False
) -> npt.NDArray[np.uint16 | np.uint32]:
    """Encode documents and join them by the end-of-text id.

    The id stands exactly once between two documents, so there is one fewer than documents; `at_end` adds one after the
    last. An empty document is a document: two ids stand side by side then. No document may hold the id itself, or
    readers would take its parts for documents. tiktoken reads text that spells a special token as text; a tokenizer of
    `tokenizers` makes the special token of it, unless its `encode_special_tokens` is True.

    Args:
        documents: The texts.
        tokenizer: A tokenizer of `tokenizers` or tiktoken, which encode on all cores; or a function that takes the
            list of texts and returns the ids of each. It is called once, and adds no special tokens of its own.
        end_of_text: The id that ends a text.
        at_end: Whether the last document is ended as well.

    Returns:
        The stream, shape ``(ids,)``: 16 bits an id if all fit, else 32.

    Raises:
        ValueError: An argument is not what it should be, a document holds the end-of-text id, the tokenizer gave
            other than one list of ids for each document, or an id does not fit 32 bits; the message says which.

    >>> encode_corpus(["ab", "", "c"], lambda texts: [list(map(ord, text)) for text in texts], 0).tolist()
    [97, 98, 0, 0, 99]
    """
    end = whole_number("end_of_text", end_of_text, least=0)
    if end > _LARGEST:
        raise ValueError(f"end_of_text: expected less than 2**32, found {end}")
    at_end = truth_value("at_end", at_end)
    texts = _texts(documents)
    parts = [_ids(ids, number) for number, ids in enumerate(_encoded(tokenizer, texts))]
    if len(parts) != len(texts):
        raise ValueError(f"tokenizer: expected ids for each of {len(texts)} documents, found {len(parts)} lists")
    if not parts:
        return np.empty(0, dtype=np.uint16)
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    ids = np.concatenate(parts)
    _refuse(ids == end, lengths, f"the end-of-text id {end}; {_WAYS_OUT}")
    _refuse((ids < 0) | (ids > _LARGEST), lengths, "an id that does not fit 32 bits")
    kind: type[np.uint16 | np.uint32] = np.uint16 if max(end, int(ids.max(initial=0))) < 1 << 16 else np.uint32
    return np.insert(ids.astype(kind), np.cumsum(lengths)[: None if at_end else -1], end)


def _texts(documents: Iterable[str]) -> list[str]:
    if isinstance(documents, str):
        raise ValueError(  # noqa: TRY004 -- bad arguments are one kind of error
            "documents: expected several texts, found one; put it in a list"
        )
    try:
        several = iter(documents)
    except TypeError:
        raise ValueError(f"documents: expected several texts, found {type(documents).__name__}") from None
    texts = list(several)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(  # noqa: TRY004 -- bad arguments are one kind of error
                f"documents: expected texts, found {type(text).__name__} as document {number}"
            )
    return texts


def _encoded(tokenizer: Any, texts: list[str]) -> Iterator[Sequence[int]]:
    """Yield the ids of each text, by one call of the tokenizer."""
    # The ordinary one of tiktoken's knows no special tokens.
    if hasattr(tokenizer, "encode_ordinary_batch"):
        return _each(tokenizer.encode_ordinary_batch(texts), texts)
    if hasattr(tokenizer, "encode_batch"):
        # The fast one gives no places in the text, which are not wanted.
        batch = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
        return (encoding.ids for encoding in _each(batch(texts, add_special_tokens=False), texts))
    if callable(tokenizer):
        return _each(tokenizer(texts), texts)
    raise ValueError(
        "tokenizer: expected one of `tokenizers` or tiktoken, or a function from texts to ids, "
        f"found {type(tokenizer).__name__}"
    )


def _each(found: Any, texts: list[str]) -> Iterator[Any]:
    # Tried alone: what goes wrong within a tokenizer is an error of its own.
    try:
        return iter(found)
    except TypeError:
        raise ValueError(f"tokenizer: expected ids for each of {len(texts)} documents, found {found!r:.80}") from None


def _ids(ids: Sequence[int], document: int) -> npt.NDArray[np.int64]:
    try:
        array = np.asarray(ids)
    except ValueError:
        # Lists of several lengths in it.
        array = np.empty((0, 0))
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
        raise ValueError(f"tokenizer: expected a list of ids for document {document}, found {ids!r:.80}")
    return array.astype(np.int64)


def _refuse(found: npt.NDArray[np.bool_], lengths: npt.NDArray[np.int64], what: str) -> None:
    """Name the first document in which something is found."""
    if found.any():
        document = int(np.searchsorted(np.cumsum(lengths), int(found.argmax()), side="right"))
        raise ValueError(f"documents: document {document} holds {what}")
