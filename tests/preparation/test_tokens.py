"""A dataset's documents become one stream of ids, the same from whatever part one begins with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer.config.fields import WindowConfig
from mixer.core.fingerprint import canonical_json
from mixer.errors import ConfigError, CorruptionError, InputError, SchemaError
from mixer.preparation.base import Part
from mixer.preparation.tokens import Sizes, TokensStage
from tests.tokenizing import trained

END = 99
WORDS: dict[str, Any] = {"tokenizer": f"{trained.__name__}:encode_words", "vocabulary": END, "end_of_text": END}
IDS = pa.list_(pa.int64())
SMALL = Sizes(row_group_ids=7, part_row_groups=3, batch_bytes=40, read_rows=4)


class Rows:
    """A table as a source; it notes what is read of it."""

    name = "web"

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.rows, self.schema = len(table), table.schema
        self.read_rows: list[tuple[int, int]] = []

    def read(self, start: int, stop: int) -> pa.Table:
        self.read_rows.append((start, stop))
        return self._table.slice(start, stop - start)

    def close(self) -> None:
        """Do nothing."""


def stage_of(column: pa.Array, sizes: Sizes = SMALL, **fields: Any) -> TokensStage:
    source = Rows(pa.table({"text": column}))
    return TokensStage("web", WindowConfig(context_length=8, **fields), source, {"from": "a test"}, sizes)


def stream_of(parts: Sequence[Part]) -> tuple[list[int], list[int]]:
    """Return the ids of some parts, and the document of each."""
    tables = [table for part in parts for table in part.row_groups]
    ids = [identity for table in tables for identity in table["token"].to_pylist()]
    return ids, [number for table in tables for number in table["document"].to_pylist()]


def expected(documents: Sequence[Sequence[int] | None], end: int | None) -> tuple[list[int], list[int]]:
    """Return the same, one document after the other."""
    closed = [[*(document or []), *([] if end is None else [end])] for document in documents]
    numbers = [number for number, document in enumerate(closed) for _ in document]
    return [identity for document in closed for identity in document], numbers


DOCUMENTS = st.lists(st.none() | st.lists(st.integers(0, 98), max_size=30), max_size=12)


@settings(max_examples=60)
@given(DOCUMENTS, st.sampled_from([END, None]))
def test_documents_stand_one_after_the_other_whatever_part_one_begins_with(
    documents: list[list[int] | None], end: int | None
) -> None:
    stage = stage_of(pa.array(documents, IDS), vocabulary=END, end_of_text=end)
    parts = list(stage.parts(stage.schema(), None))
    assert stream_of(parts) == expected(documents, end)
    for number, part in enumerate(parts):
        rest = list(stage.parts(stage.schema(), part.cursor))
        assert stream_of(rest) == stream_of(parts[number + 1 :])
        assert [one.cursor for one in rest] == [one.cursor for one in parts[number + 1 :]]
    facts = stage.facts(parts[-1].cursor if parts else None)
    assert facts["ids"] == len(expected(documents, end)[0])
    assert facts["documents"] == len(documents)
    if end is not None:
        assert (facts["end_of_text_ids"], facts["null_documents"]) == (len(documents), documents.count(None))


@settings(max_examples=30)
@given(DOCUMENTS, st.integers(1, 200), st.integers(1, 20))
def test_how_texts_are_read_and_batched_changes_nothing(
    documents: list[list[int] | None], batch_bytes: int, read_rows: int
) -> None:
    texts = pa.array([None if ids is None else " ".join("x" * i for i in ids if i) for ids in documents], pa.string())
    lengths = [None if ids is None else [i for i in ids if i] for ids in documents]
    sizes = Sizes(row_group_ids=7, part_row_groups=3, batch_bytes=batch_bytes, read_rows=read_rows)
    stage = stage_of(texts, sizes, **WORDS)
    assert stream_of(list(stage.parts(stage.schema(), None))) == expected(lengths, END)
    assert stage.identity == stage_of(texts, **WORDS).identity


def test_row_groups_and_parts_are_cut_at_fixed_ids() -> None:
    stage = stage_of(pa.array([[1] * 50], IDS), vocabulary=END, end_of_text=END)
    parts = list(stage.parts(stage.schema(), None))
    assert [[len(group) for group in part.row_groups] for part in parts] == [[7, 7, 7], [7, 7, 7], [7, 2]]
    assert [part.cursor["skip"] for part in parts] == [21, 42, 0]
    assert all(
        group[name].num_chunks == 1 for part in parts for group in part.row_groups for name in group.schema.names
    )


def test_real_text_becomes_what_the_library_makes_of_each_document(tmp_path: Any) -> None:
    texts = [*trained.texts()[:6], "", trained.END, *trained.texts()[6:9]]
    sizes = Sizes(row_group_ids=1_000, part_row_groups=4, batch_bytes=20_000)
    stage = stage_of(pa.array(texts), sizes, tokenizer=trained.save(tmp_path))
    parts = list(stage.parts(stage.schema(), None))
    assert stream_of(parts) == expected([trained.ids_of(text) for text in texts], trained.end_id())
    middle = len(parts) // 2
    rest = list(stage.parts(stage.schema(), parts[middle].cursor))
    assert stream_of(rest) == stream_of(parts[middle + 1 :])


@pytest.mark.parametrize(
    ("vocabulary", "end", "kind"),
    [(65_536, None, "uint16"), (65_537, None, "uint32"), (9, 65_535, "uint16"), (9, 65_536, "uint32")],
)
def test_ids_are_as_wide_as_the_vocabulary_needs(vocabulary: int, end: int | None, kind: str) -> None:
    stage = stage_of(pa.array([[8, 0]], IDS), vocabulary=vocabulary, end_of_text=end)
    assert stage.schema() == pa.schema([("token", kind), ("document", pa.int64())])
    (part,) = stage.parts(stage.schema(), None)
    assert part.row_groups[0].schema == stage.schema()


@pytest.mark.parametrize(("kind", "width"), [(pa.uint16(), "uint16"), (pa.int32(), "uint32"), (pa.uint64(), "uint32")])
def test_without_a_vocabulary_the_type_of_the_ids_tells(kind: pa.DataType, width: str) -> None:
    stage = stage_of(pa.array([[7]], pa.list_(kind)))
    assert stage.schema().field("token").type == width
    assert stage.facts(next(iter(stage.parts(stage.schema(), None))).cursor)["end_of_text"] is None


def test_what_decides_the_ids_is_in_the_identity_and_what_decides_the_windows_is_not(tmp_path: Any) -> None:
    texts = pa.array(["a b"])
    one = stage_of(texts, **WORDS).identity
    assert canonical_json(one)
    assert stage_of(texts, **WORDS, stride=3, pad_id=5, store_as="uint16", documents=True).identity == one
    changed: list[dict[str, Any]] = [
        {**WORDS, "end_of_text": 98},
        {**WORDS, "vocabulary": 120},
        {**WORDS, "version": "2"},
        {"tokenizer": trained.save(tmp_path)},
    ]
    for fields in changed:
        assert stage_of(texts, **fields).identity != one
    assert stage_of(texts, Sizes(row_group_ids=8, part_row_groups=3), **WORDS).identity != one


@pytest.mark.parametrize(
    ("column", "fields", "said"),
    [
        (
            pa.array(["a b", "c"]),
            {**WORDS, "tokenizer": f"{trained.__name__}:encode_with_ends"},
            "dataset 'web', column 'text', document 0: holds the end-of-text id 99 itself",
        ),
        (pa.array(["a b", "cccc"]), {**WORDS, "vocabulary": 3, "end_of_text": 0}, "document 1: expected ids below 3"),
        (pa.array(["a"]), {**WORDS, "tokenizer": f"{trained.__name__}:encode_nothing"}, "documents 0 to 0: .* failed"),
        (pa.array([[1], [2, None]], IDS), {}, "document 1: expected token ids, found null among them; mend"),
        (pa.array([[1], [], [-1]], IDS), {}, "document 2: expected token ids from 0 to 2,147,483,647, found -1; mend"),
        (pa.array([[1], [2**31]], IDS), {}, "document 1: expected token ids .*, found 2147483648"),
        (pa.array([[1], [7]], IDS), {"vocabulary": 7}, "document 1: expected ids below 7, found 7"),
        (pa.array([[1], [5, 7]], IDS), {"end_of_text": 7}, "document 1: holds the end-of-text id 7 itself"),
    ],
)
def test_a_document_that_cannot_be_is_named(column: pa.Array, fields: dict[str, Any], said: str) -> None:
    stage = stage_of(column, **fields)
    with pytest.raises(InputError, match=said):
        list(stage.parts(stage.schema(), None))


@pytest.mark.parametrize(
    ("column", "fields", "error", "said"),
    [
        (pa.array(["a"]), {}, SchemaError, "column 'text' is string; without a `tokenizer` it is to hold lists"),
        (pa.array([[1]]), WORDS, SchemaError, "column 'text' is list<.*>; a tokenizer needs text"),
        (pa.array(["a"]), {**WORDS, "text": "body"}, SchemaError, "there is no column 'body'; there are 'text'"),
        (pa.array([[1.5]]), {}, SchemaError, "column 'text' is list<.*double>"),
        (pa.array([[1]]), {"end_of_text": "</s>"}, ConfigError, "expected an id .*, as there is no tokenizer"),
        (pa.array([[1]]), {"pattern": "gpt2"}, ConfigError, "pattern: says nothing without a `tokenizer`"),
    ],
)
def test_a_column_that_cannot_be_encoded_is_refused(
    column: pa.Array, fields: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        stage_of(column, **fields)


def test_end_of_text_ids_are_counted_in_what_is_written() -> None:
    stage = stage_of(pa.array([[1, 2], [3]], IDS), end_of_text=9)
    (part,) = stage.parts(stage.schema(), None)
    with pytest.raises(CorruptionError, match=r"expected an end-of-text id for each of 2 documents, found 1;"):
        stage.facts({**part.cursor, "closed": 1})
    with pytest.raises(CorruptionError, match="expected an end-of-text id for each of 2 documents, found 0"):
        stage.facts(None)


def test_after_large_documents_few_are_read_at_once() -> None:
    source = Rows(pa.table({"text": ["x " * 10] * 20 + ["y " * 5_000] * 20 + ["x " * 10] * 20}))
    sizes = Sizes(row_group_ids=1 << 10, part_row_groups=999, batch_bytes=400, read_rows=16)
    stage = TokensStage("web", WindowConfig(context_length=8, **WORDS), source, {}, sizes)
    ids, _ = stream_of(list(stage.parts(stage.schema(), None)))
    assert len(ids) == 40 * 11 + 20 * 5_001
    assert [stop for _, stop in source.read_rows][-1] == 60
    taken = {start: stop - start for start, stop in source.read_rows}
    assert max(taken.values()) == 16
    first_large = next(start for start, stop in source.read_rows if stop > 20)
    assert {rows for start, rows in taken.items() if first_large < start <= 40} == {1}


@pytest.mark.parametrize("wrong", [{"row": -1}, {"row": "0"}, {"rows": 0}])
def test_a_cursor_that_is_none_of_a_stream_is_refused(wrong: dict[str, Any]) -> None:
    stage = stage_of(pa.array([[1, 2], [3]], IDS), end_of_text=9)
    (part,) = stage.parts(stage.schema(), None)
    with pytest.raises(CorruptionError, match=r"expected a whole number 'row'|expected the cursor of a stream of ids"):
        list(stage.parts(stage.schema(), {**part.cursor, **wrong}))


def test_a_cursor_that_lacks_a_number_is_refused() -> None:
    stage = stage_of(pa.array([[1, 2], [3]], IDS), end_of_text=9)
    with pytest.raises(CorruptionError, match="expected the cursor of a stream of ids"):
        stage.facts({"ids": 5})
