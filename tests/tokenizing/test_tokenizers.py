"""Text becomes the ids that the library itself gives, and what looks like a special token is ordinary text."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiktoken
import tiktoken_ext.openai_public as published
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from mixer.config.fields import WindowConfig
from mixer.errors import ConfigError, InputError
from mixer.storage import open_store
from mixer.tokenizing import Encoded, checked, open_tokenizer
from mixer.tokenizing import Tokenizer as Opened
from mixer.tokenizing.hugging import HuggingTokenizer
from mixer.tokenizing.pieces import AGREE, Pieces, joined
from mixer.tokenizing.ranks import ENCODINGS, RanksTokenizer, read_ranks
from tests.tokenizing import trained

WHERE = "datasets.web.window"
ODD = ["", " ", "\n\n  def f():\n\treturn 1", "Grüße 🙂🙂 日本語", trained.END, f"a{trained.END}b", "x" * 500]


def window(**fields: Any) -> WindowConfig:
    return WindowConfig(context_length=8, **fields)


def opened(folder: Path, **fields: Any) -> Opened:
    return open_tokenizer("web", window(tokenizer=trained.save(folder), **fields))


def parted(encoded: Encoded) -> list[list[int]]:
    """Return the ids of each document."""
    return [part.tolist() for part in np.split(encoded.ids, encoded.ends)[:-1]]


def test_texts_become_what_the_library_makes_of_each_alone(tmp_path: Path) -> None:
    texts = [*ODD, *trained.texts()[:3]]
    assert parted(opened(tmp_path).encode(texts)) == [trained.ids_of(text) for text in texts]


def test_a_saved_tokenizer_neither_cuts_texts_nor_fills_them_up(tmp_path: Path) -> None:
    saved = Tokenizer.from_str(trained.tokenizer_json())
    assert saved.truncation
    assert saved.padding
    long, short = trained.texts()[0], "if"
    lengths = [len(ids) for ids in parted(opened(tmp_path).encode([long, short]))]
    assert lengths == [len(trained.ids_of(long)), len(trained.ids_of(short))]
    assert lengths[0] > 80 > lengths[1]


def test_the_end_of_text_is_found_by_its_name_and_no_text_becomes_it(tmp_path: Path) -> None:
    tokenizer = opened(tmp_path)
    assert tokenizer.end_of_text == trained.end_id()
    assert Tokenizer.from_str(trained.tokenizer_json()).encode(trained.END).ids[0] == trained.end_id()
    encoded = tokenizer.encode(ODD)
    assert not (encoded.ids == tokenizer.end_of_text).any()
    assert np.count_nonzero(encoded.closed(tokenizer.end_of_text).ids == tokenizer.end_of_text) == len(ODD)


@pytest.mark.parametrize(("asked", "found"), [("!", 1), (3, 3), (trained.VOCABULARY + 5, trained.VOCABULARY + 5)])
def test_another_end_of_text_may_be_named(tmp_path: Path, asked: str | int, found: int) -> None:
    tokenizer = opened(tmp_path, end_of_text=asked)
    assert tokenizer.end_of_text == found
    assert tokenizer.vocabulary == max(trained.VOCABULARY, found + 1)


def test_a_tokenizer_is_told_by_its_contents(tmp_path: Path) -> None:
    one = opened(tmp_path).identity
    (tmp_path / "other").mkdir()
    assert opened(tmp_path / "other").identity == one
    path = tmp_path / "other" / "tokenizer.json"
    path.write_text(trained.tokenizer_json() + " ")
    assert open_tokenizer("web", window(tokenizer=str(path))).identity != one


@pytest.mark.s3
def test_a_tokenizer_may_lie_in_a_bucket(s3_url: str) -> None:
    open_store(s3_url).put("tokenizer.json", trained.tokenizer_json().encode())
    tokenizer = open_tokenizer("web", window(tokenizer=f"{s3_url}/tokenizer.json"))
    assert parted(tokenizer.encode(["if x:"])) == [trained.ids_of("if x:")]


@settings(max_examples=30)
@given(st.text(st.characters(codec="utf-8"), max_size=300), st.integers(2, 40))
def test_a_long_text_in_pieces_is_what_it_is_as_a_whole(text: str, times: int) -> None:
    data = trained.tokenizer_json().encode()
    pieces = Pieces(longest=2_000, characters=2_000, shared=500)
    tokenizer = HuggingTokenizer(data, end_of_text=None, where=WHERE, pieces=pieces)
    text = (text + trained.texts()[times % 5][: 37 * times]) * times
    assert parted(tokenizer.encode([text, "short"])) == [trained.ids_of(text), trained.ids_of("short")]


@pytest.mark.parametrize("text", [" " * 9_000, "a" * 9_000, "\n" * 9_000, "🙂" * 5_000])
def test_a_text_that_is_the_same_everywhere_is_not_cut_in_the_wrong_place(text: str) -> None:
    data = trained.tokenizer_json().encode()
    tokenizer = HuggingTokenizer(
        data, end_of_text=None, where=WHERE, pieces=Pieces(longest=2_000, characters=2_000, shared=500)
    )
    assert parted(tokenizer.encode([text])) == [trained.ids_of(text)]


def test_pieces_are_joined_where_they_agree_and_nowhere_else() -> None:
    first = np.arange(400, dtype=np.uint32), np.arange(400, dtype=np.int64)
    second = np.arange(200, 600, dtype=np.uint32), np.arange(200, 600, dtype=np.int64)
    done: list[Any] = []
    rest = joined(first, second, done)
    assert rest is not None
    assert [*done[0].tolist(), *rest[0].tolist()] == list(range(600))
    assert AGREE <= len(done[0]) - 200 <= 200 - AGREE
    assert joined(first, (second[0] + 1, second[1]), []) is None
    # One token in the middle that differs, or stands elsewhere, is too near to any other.
    assert joined(first, (np.where(second[0] == 300, 7, second[0]), second[1]), []) is None
    assert joined(first, (second[0], np.where(second[1] == 300, 299, second[1])), []) is None
    assert joined(first, (second[0], second[1] + 1000), []) is None


def test_ranks_become_what_tiktoken_makes_of_them(tmp_path: Path) -> None:
    path = tmp_path / "small.tiktoken"
    path.write_bytes(trained.ranks_file())
    tokenizer = open_tokenizer("web", window(tokenizer=str(path), pattern=r"\w+|\W+", end_of_text=900))
    itself = tiktoken.Encoding(
        "itself", pat_str=r"\w+|\W+", mergeable_ranks=read_ranks(trained.ranks_file(), ""), special_tokens={}
    )
    texts = [*ODD, *trained.texts()[:2]]
    assert parted(tokenizer.encode(texts)) == itself.encode_ordinary_batch(texts)
    assert (tokenizer.end_of_text, tokenizer.vocabulary) == (900, 901)


@pytest.mark.parametrize("name", ENCODINGS)
def test_a_published_encoding_parts_texts_as_published(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = read_ranks(trained.ranks_file(), "")
    monkeypatch.setattr(published, "load_tiktoken_bpe", lambda *_, **__: ranks)
    monkeypatch.setattr(published, "data_gym_to_mergeable_bpe_ranks", lambda **_: ranks)
    told = getattr(published, name)()
    itself = tiktoken.Encoding("itself", pat_str=told["pat_str"], mergeable_ranks=ranks, special_tokens={})
    ours = RanksTokenizer(trained.ranks_file(), pattern=name, end_of_text=None, where=WHERE)
    assert ours.end_of_text == told["special_tokens"][trained.END]
    texts = [*ODD, *trained.texts()[:2], "I'LL we've 12345 \r\n\r\n  x/y\n\n z   ", "Ⅷ ǅ À la carte's"]
    assert parted(ours.encode(texts)) == itself.encode_ordinary_batch(texts)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"IQ== zero\n", "in line 1"),
        (b"IQ== 0\n!! 1\n", "in line 2"),
        (b"", "a rank of their own"),
        (b"IQ== 0\nIg== 0\n", "a rank of their own"),
        (b"IQ== 0\n", "none for byte 0"),
        (trained.ranks_file() + b"ISEhIQ== 2147483648\n", "expected ids up to 2,147,483,647"),
        (base64.b64encode(b"x"), "in line 1"),
    ],
)
def test_a_file_that_holds_no_ranks_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        RanksTokenizer(data, pattern="gpt2", end_of_text=None, where=WHERE)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "pattern: missing; a .tiktoken file needs one of gpt2"),
        ({"pattern": "(", "end_of_text": 900}, "expected a regular expression, or one of gpt2"),
        ({"pattern": r"\w+|\W+"}, "end_of_text: missing, and the tokenizer has none of"),
        ({"pattern": "gpt2", "end_of_text": "<eos>"}, "has no token '<eos>'"),
        ({"pattern": "gpt2", "vocabulary": 9}, "vocabulary: says nothing of such a tokenizer"),
    ],
)
def test_what_ranks_need_is_asked_for(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    path = tmp_path / "small.tiktoken"
    path.write_bytes(trained.ranks_file())
    with pytest.raises(ConfigError, match=said):
        open_tokenizer("web", window(tokenizer=str(path), **fields))


WORDS = f"{trained.__name__}:encode_words"


def test_a_function_encodes() -> None:
    tokenizer = open_tokenizer("web", window(tokenizer=WORDS, vocabulary=99, end_of_text=99))
    assert parted(tokenizer.encode(["a bc", "", "def"])) == [[1, 2], [], [3]]
    assert (tokenizer.vocabulary, tokenizer.end_of_text, tokenizer.threads) == (100, 99, 1)
    assert str(tokenizer.identity["version"]).startswith("sha256:")
    named = open_tokenizer("web", window(tokenizer=WORDS, vocabulary=99, end_of_text=99, version="2"))
    assert named.identity == {"function": WORDS, "version": "2"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("encode_one_too_few", "expected 2 lists for as many texts, found 1"),
        ("encode_nothing", "failed: RuntimeError: 2 texts are too many"),
    ],
)
def test_a_function_that_does_not_do_its_part_is_told_of(name: str, said: str) -> None:
    path = f"{trained.__name__}:{name}"
    tokenizer = open_tokenizer("web", window(tokenizer=path, vocabulary=99, end_of_text=99))
    with pytest.raises(InputError, match=said):
        tokenizer.encode(["a", "b"])


@pytest.mark.parametrize(
    ("path", "fields", "said"),
    [
        (WORDS, {"end_of_text": 9}, "vocabulary: missing"),
        (WORDS, {"vocabulary": 9}, "end_of_text: expected the id that closes a document, found None"),
        (WORDS, {"vocabulary": 9, "end_of_text": "x"}, "expected the id that closes a document, found 'x'"),
        ("no.such:encode", {"vocabulary": 9, "end_of_text": 9}, "cannot be imported: No module named 'no'"),
        (f"{trained.__name__}:nothing", {"vocabulary": 9, "end_of_text": 9}, "cannot be imported"),
        (f"{trained.__name__}:END", {"vocabulary": 9, "end_of_text": 9}, "expected a function, found .* a str"),
        ("math:sqrt", {"vocabulary": 9, "end_of_text": 9, "pattern": "x"}, "pattern: says nothing"),
        ("builtins:print", {"vocabulary": 9, "end_of_text": 9}, "version: missing"),
        ("words.txt", {}, "expected a file named"),
        ("/no/such/tokenizer.json", {}, r"expected a file, a folder with files named \*\.json, or"),
    ],
)
def test_what_is_no_tokenizer_is_refused(path: str, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_tokenizer("web", window(tokenizer=path, **fields))


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"version": "1.0"}'])
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"expected a tokenizer\.json, found something else"):
        open_tokenizer("web", window(tokenizer=str(tmp_path / "tokenizer.json")))


def _gives_up(asked: dict[str, Any]) -> Opened:
    return HuggingTokenizer(
        json.dumps({**json.loads(trained.tokenizer_json()), **asked}).encode(), end_of_text=5, where="window"
    )


def test_a_text_that_the_library_gives_up_on_is_an_error_of_the_input() -> None:
    words = {"type": "WordLevel", "vocab": {"known": 0}, "unk_token": "<unk>"}
    with pytest.raises(InputError, match=r"the tokenizer fails on one of 2 texts: .*Missing \[UNK\]"):
        _gives_up({"model": words, "added_tokens": []}).encode(["known", "unknown"])


def test_a_regular_expression_that_ends_the_library_s_own_code_is_an_error_of_the_input() -> None:
    # This ends in a panic, which is no `Exception` in Python.
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    with pytest.raises(InputError, match=r"the tokenizer fails on one of 1 texts: .*retry-limit"):
        _gives_up({"pre_tokenizer": split}).encode(["a" * 40 + "b"])


def test_an_end_of_text_that_a_document_holds_is_an_error_that_names_it() -> None:
    encoded = Encoded.of([[1], [2, 9], [3]])
    with pytest.raises(InputError, match=r"dataset 'web', document 1,001: holds the end-of-text id 9 itself"):
        checked(encoded, vocabulary=10, end_of_text=9, where="dataset 'web'", first=1000)
    with pytest.raises(InputError, match=r"document 2: expected ids below 3, found 3"):
        checked(Encoded.of([[1], [], [2, 3]]), vocabulary=3, end_of_text=None, where="dataset 'web'", first=0)
    assert checked(encoded, vocabulary=10, end_of_text=None, where="", first=0) is encoded


@given(st.lists(st.lists(st.integers(0, 8), max_size=5), max_size=8), st.data())
def test_documents_are_closed_and_found_again(documents: list[list[int]], data: st.DataObject) -> None:
    closed = Encoded.of(documents).closed(9)
    assert closed.ids.tolist() == [identity for document in documents for identity in [*document, 9]]
    numbers = [number for number, document in enumerate(documents) for _ in range(len(document) + 1)]
    start = data.draw(st.integers(0, len(numbers)))
    stop = data.draw(st.integers(start, len(numbers)))
    assert closed.documents_of(start, stop).tolist() == numbers[start:stop]
