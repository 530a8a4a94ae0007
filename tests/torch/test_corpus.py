from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiktoken
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, processors

from mixer.torch import SlidingWindowDataset, encode_corpus

END = 256
DOCUMENTS = ["one and two", "", "three", "one"]


def bytes_of(texts: list[str]) -> list[list[int]]:
    return [list(text.encode()) for text in texts]


def words() -> tokenizers.Tokenizer:
    """A tokenizer of words that puts a special one before each text."""
    tokenizer = tokenizers.Tokenizer(
        models.WordLevel({"<end>": 0, "<begin>": 1, "?": 2, "one": 3, "and": 4, "two": 5, "three": 6}, unk_token="?")  # noqa: S106 -- no secret
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<end>", "<begin>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<begin> $A", special_tokens=[("<begin>", 1)])
    return tokenizer


def byte_pairs() -> tiktoken.Encoding:
    return tiktoken.Encoding(
        "bytes",
        pat_str=r"\w+|\W",
        mergeable_ranks={bytes([byte]): byte for byte in range(256)},
        special_tokens={"<|endoftext|>": END},
    )


@given(st.lists(st.text(max_size=6), max_size=6), st.booleans())
def test_documents_are_joined_once_between_two_and_can_be_parted_again(documents: list[str], at_end: bool) -> None:
    stream = encode_corpus(documents, bytes_of, END, at_end=at_end)
    assert stream.dtype == np.uint16
    joined: list[int] = []
    for number, document in enumerate(documents):
        joined += [END] * (number > 0) + list(document.encode())
    assert stream.tolist() == joined + [END] * (at_end and bool(documents))
    if documents:
        assert np.count_nonzero(stream == END) == len(documents) - 1 + at_end


def test_the_tokenizer_is_called_once_for_all() -> None:
    calls = []

    def encode(texts: list[str]) -> Iterable[list[int]]:
        calls.append(texts)
        return iter(bytes_of(texts))

    assert encode_corpus(iter(DOCUMENTS), encode, END).tolist() == encode_corpus(DOCUMENTS, bytes_of, END).tolist()
    assert calls == [DOCUMENTS]


def test_a_tokenizer_of_words_adds_no_special_tokens_of_its_own() -> None:
    assert encode_corpus(DOCUMENTS, words(), 0).tolist() == [3, 4, 5, 0, 0, 6, 0, 3]


def test_tiktoken_takes_what_spells_a_special_token_as_text() -> None:
    texts = ["a<|endoftext|>b", "c"]
    assert encode_corpus(texts, byte_pairs(), END).tolist() == [*texts[0].encode(), END, *b"c"]


def test_a_document_that_holds_the_end_of_text_is_named() -> None:
    texts = ["one", "", "two <end> two", "three"]
    with pytest.raises(ValueError, match=r"^documents: document 2 holds the end-of-text id 0; set encode_special_tok"):
        encode_corpus(texts, words(), 0)
    tokenizer = words()
    tokenizer.encode_special_tokens = True
    assert encode_corpus(texts, tokenizer, 0).tolist() == [3, 0, 0, 5, 2, 2, 2, 5, 0, 6]


@pytest.mark.parametrize(("greatest", "kind"), [(2**16 - 1, np.uint16), (2**16, np.uint32), (2**32 - 1, np.uint32)])
def test_ids_take_as_few_bytes_as_they_need(greatest: int, kind: type) -> None:
    for ids, end in (([greatest], 1), ([1], greatest)):
        stream = encode_corpus(["a", "b"], lambda texts, ids=ids: [ids for _ in texts], end)
        assert stream.dtype == kind
        assert stream.tolist() == [*ids, end, *ids]


def test_a_stream_goes_straight_into_windows() -> None:
    stream = encode_corpus(["abc", "de"], bytes_of, END)
    inputs, targets = SlidingWindowDataset(stream, 5, 5)[0]
    assert (inputs.tolist(), targets.tolist()) == ([*b"abc", END, *b"d"], [*b"bc", END, *b"de"])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"documents": "abc"}, "documents: expected several texts, found one; put it in a list"),
        ({"documents": 5}, "documents: expected several texts, found int"),
        ({"documents": None}, "documents: expected several texts, found NoneType"),
        ({"documents": b"ab"}, "documents: expected texts, found int as document 0"),
        ({"documents": ["a", 5]}, "documents: expected texts, found int as document 1"),
        ({"end_of_text": -1}, "end_of_text: expected a whole number from 0, found -1"),
        ({"end_of_text": "<end>"}, "end_of_text: expected a whole number from 0, found '<end>'"),
        ({"end_of_text": 2**32}, r"end_of_text: expected less than 2\*\*32, found 4294967296"),
        ({"tokenizer": 5}, "tokenizer: expected one of `tokenizers` or tiktoken, or a function .*, found int"),
        ({"tokenizer": lambda texts: [[1]]}, "tokenizer: expected ids for each of 2 documents, found 1 lists"),
        ({"tokenizer": lambda texts: None}, "tokenizer: expected ids for each of 2 documents, found None"),
        ({"tokenizer": lambda texts: 5}, "tokenizer: expected ids for each of 2 documents, found 5"),
        ({"tokenizer": lambda texts: [None, [1]]}, "tokenizer: expected a list of ids for document 0, found None"),
        ({"tokenizer": lambda texts: [[1], [[1], [1, 2]]]}, "tokenizer: expected a list of ids for document 1, .*"),
        (
            {"tokenizer": SimpleNamespace(encode_ordinary_batch=lambda texts: None)},
            "tokenizer: expected ids for each of 2 documents, found None",
        ),
        (
            {"tokenizer": SimpleNamespace(encode_batch=lambda texts, add_special_tokens: 5)},
            "tokenizer: expected ids for each of 2 documents, found 5",
        ),
        ({"at_end": None}, "at_end: expected True or False, found None"),
        ({"tokenizer": lambda texts: ["ab", "c"]}, "tokenizer: expected a list of ids for document 0, found 'ab'"),
        ({"tokenizer": lambda texts: [[1], [0.5]]}, r"tokenizer: expected a list of ids for document 1, found \[0.5\]"),
        ({"tokenizer": lambda texts: [[1], [3, -1]]}, "documents: document 1 holds an id that does not fit 32 bits"),
        ({"tokenizer": lambda texts: [[2**32], [3]]}, "documents: document 0 holds an id that does not fit 32 bits"),
    ],
)
def test_a_bad_argument_is_named(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        encode_corpus(**{"documents": ["ab", "c"], "tokenizer": bytes_of, "end_of_text": END, **bad})
