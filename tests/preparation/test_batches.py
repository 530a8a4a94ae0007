"""The stage of `batches`, by itself: rows of one length each in every batch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer.config import BatchesConfig
from mixer.core.fingerprint import JSON, canonical_json
from mixer.errors import CorruptionError, InputError, NotEnoughDataError, SchemaError
from mixer.preparation.base import Part
from mixer.preparation.batching import BatchesStage, padding
from mixer.preparation.cutting import Cuts
from mixer.preparation.external import SortLimits
from mixer.preparation.record import SETTINGS
from mixer.shards import encode
from tests.preparation.rows import TableSource, bits, drawn
from tests.preparation.test_external import TYPES
from tests.profiles import sized

SMALL = Cuts(row_group_bytes=700, row_group_rows=4, part_bytes=1500)

lengths_of_rows = st.lists(st.integers(0, 6), min_size=1, max_size=60)
asked_of_batches: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    size=st.integers(1, 5),
    sizes=st.dictionaries(st.integers(0, 7), st.integers(1, 4), max_size=3),
    max_length=st.none() | st.integers(1, 6),
    include_partial=st.booleans(),
)


def table_of(lengths: Sequence[int]) -> pa.Table:
    return pa.table(
        {
            "n": pa.array(range(len(lengths)), pa.int64()),
            "ids": pa.array([[row] * length for row, length in enumerate(lengths)], pa.list_(pa.int32())),
            "text": pa.array(["é" * length for length in lengths], pa.string()),
            "length": pa.array(lengths, pa.uint64()),
        }
    )


def stage(table: pa.Table, folder: Path, asked: dict[str, Any], *, seed: int = 17, **limits: int) -> BatchesStage:
    sort = SortLimits(**{"memory_bytes": 256 << 20, **limits}, scratch=folder)
    config = BatchesConfig.model_validate(asked)
    return BatchesStage("web", config, TableSource(table), {"from": "a test"}, seed, limits=sort, cuts=SMALL)


def made_by(made: BatchesStage) -> tuple[list[Part], list[dict[str, Any]]]:
    parts = list(made.parts(made.schema(), None))
    return parts, [batch for part in parts for group in part.row_groups for batch in group.to_pylist()]


def size_for(length: int, asked: dict[str, Any]) -> int:
    size: int = asked["size"]
    for least, other in sorted(asked["sizes"].items()):
        if length >= least:
            size = other
    return size


def test_a_text_is_as_long_as_it_has_code_points(tmp_path: Path) -> None:
    table = pa.table({"text": ["ab", "é", "éé", "a"], "n": range(4)})
    _, batches = made_by(stage(table, tmp_path, {"by": "text", "size": 2}))
    assert sorted(sorted(batch["n"]) for batch in batches) == [[0, 2], [1, 3]]


@settings(max_examples=sized(short=25, long=300))
@given(lengths_of_rows, asked_of_batches, st.sampled_from(["ids", "text", "length"]), st.integers(0, 2**63))
def test_batches_are_what_plain_words_say(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], asked: dict[str, Any], by: str, seed: int
) -> None:
    table = table_of(lengths)
    made = stage(table, tmp_path_factory.getbasetemp(), {"by": by, **asked}, seed=seed)
    allowed = Counter(length for length in lengths if asked["max_length"] is None or length <= asked["max_length"])
    whole = {length: count // size_for(length, asked) for length, count in allowed.items()}
    left = {length: count % size_for(length, asked) for length, count in allowed.items()}
    partial = [length for length in left if left[length]] if asked["include_partial"] else []
    if not sum(whole.values()) + len(partial):
        with pytest.raises(NotEnoughDataError, match="'web': not one batch"):
            made_by(made)
        return
    parts, batches = made_by(made)
    # Each batch has one length, and the size that goes with it; per length so many are whole.
    found = [(lengths[batch["n"][0]], len(batch["n"])) for batch in batches]
    assert all(
        {lengths[row] for row in batch["n"]} == {length} for batch, (length, _) in zip(batches, found, strict=True)
    )
    expected = [(length, size_for(length, asked)) for length, count in whole.items() for _ in range(count)]
    assert Counter(found) == Counter(expected + [(length, left[length]) for length in partial])
    # No row comes twice, and all of its columns come with it.
    rows = [row for batch in batches for row in batch["n"]]
    assert len(set(rows)) == len(rows)
    for name in table.column_names:
        assert [value for batch in batches for value in batch[name]] == table[name].take(pa.array(rows)).to_pylist()
    kept = sorted(rows)
    edges = np.cumsum([0, *(size for _, size in found)]).tolist()
    in_stored_order = [[lengths[row] for row in kept[a:b]] for a, b in pairwise(edges)]
    assert made.facts(parts[-1].cursor) == {
        "batches": len(batches),
        "rows": len(lengths),
        "kept": len(rows),
        "too_long": len(lengths) - allowed.total(),
        "surplus": allowed.total() - len(rows),
        "length": sum(lengths[row] for row in rows),
        "padding_saved": sum(max(batch) - length for batch in in_stored_order for length in batch),
    }


@settings(max_examples=sized(short=6, long=100))
@given(st.data())
def test_whoever_goes_on_after_a_part_makes_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    lengths = data.draw(st.lists(st.integers(0, 5), min_size=60, max_size=90))
    made = stage(table_of(lengths), tmp_path_factory.getbasetemp(), {"by": "ids", "size": 3, "include_partial": True})
    parts, _ = made_by(made)
    number = data.draw(st.integers(0, len(parts) - 1))
    cursor = json.loads(canonical_json(dict(parts[number].cursor)))
    # By a process that knows nothing yet.
    other = stage(table_of(lengths), made.limits.scratch, {"by": "ids", "size": 3, "include_partial": True})
    again = list(other.parts(made.schema(), cursor))
    assert len(parts) > 2
    assert [part.cursor for part in again] == [part.cursor for part in parts[number + 1 :]]
    assert encoded(again, made.schema()) == encoded(parts, made.schema())[number + 1 :]
    last = json.loads(canonical_json(dict(parts[-1].cursor)))
    assert stage(table_of([]), made.limits.scratch, {"by": "ids", "size": 3}).facts(last) == made.facts(
        parts[-1].cursor
    )


def encoded(parts: Sequence[Part], schema: pa.Schema) -> list[bytes]:
    return [encode(iter(part.row_groups), schema, SETTINGS, {}) for part in parts]


def test_memory_threads_and_what_is_set_aside_make_no_difference(tmp_path: Path) -> None:
    lengths = np.random.default_rng(5).integers(0, 30, 1500).tolist()
    found = []
    for limits in ({}, {"threads": 3}, {"memory_bytes": 64 << 20}, {"narrow_bytes": 120}, {"narrow_bytes": 0}):
        made = stage(table_of(lengths), tmp_path, {"by": "text", "size": 7, "include_partial": True}, **limits)
        found.append(encoded(made_by(made)[0], made.schema()))
    assert len(found[0]) > 10
    assert all(each == found[0] for each in found)


def test_seeds_and_names_have_orders_of_their_own(tmp_path: Path) -> None:
    table, asked = table_of([3] * 40), {"by": "ids", "size": 4}
    orders = {
        tuple(row for batch in made_by(stage(table, tmp_path, asked, seed=seed))[1] for row in batch["n"])
        for seed in (1, 2, 3)
    }
    assert len(orders) == 3


@pytest.mark.parametrize("kind", TYPES.values(), ids=TYPES)
def test_columns_of_any_type_become_lists_of_what_they_were(tmp_path: Path, kind: pa.DataType) -> None:
    rows = 60
    column = drawn(np.random.default_rng(11), kind, rows)
    table = pa.table({"n": range(rows), "length": np.arange(rows) % 3, "v": column})
    made = stage(table, tmp_path, {"by": "length", "size": 10})
    assert made.schema().field("v").type == pa.list_(pa.field("element", kind))
    groups = [group for part in made.parts(made.schema(), None) for group in part.row_groups]
    values = [value for group in groups for batch in bits(group["v"]) for value in batch]
    order = [row for group in groups for batch in group["n"].to_pylist() for row in batch]
    expected = bits(column)
    assert values == [expected[row] for row in order]
    assert sorted(order) == list(range(rows))


BAD: dict[str, tuple[pa.Table, type[Exception], str]] = {
    "no such column": (pa.table({"text": ["a"]}), SchemaError, "there is no column 'texts' .* is 'text' meant"),
    "a float": (pa.table({"texts": [1.5]}), SchemaError, "cannot go by column 'texts', of type double"),
    "null": (pa.table({"texts": ["a", "b", None]}), InputError, "found null in row 2"),
    "negative": (pa.table({"texts": [1, 2, -7]}), InputError, "found -7 in row 2"),
    "too great": (
        pa.table({"texts": pa.array([1, 2**63], pa.uint64())}),
        InputError,
        f"found {2**63} in row 1",
    ),
}


@pytest.mark.parametrize(("table", "error", "said"), BAD.values(), ids=BAD)
def test_what_has_no_length_is_refused(tmp_path: Path, table: pa.Table, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=f"dataset 'web': .*{said}"):
        made_by(stage(table, tmp_path, {"by": "texts", "size": 1}))


def test_what_decides_the_bytes_is_in_the_identity(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"by": "ids", "size": 2, "sizes": {3: 1}, "max_length": 5, "include_partial": True}
    changes: list[dict[str, Any]] = [
        {},
        {"by": "text"},
        {"size": 3},
        {"sizes": {}},
        {"sizes": {4: 1}},
        {"max_length": None},
        {"include_partial": False},
    ]
    table = table_of([1])
    identities: list[JSON] = [stage(table, tmp_path, {**asked, **change}).identity for change in changes]
    identities += [stage(table, tmp_path, asked, seed=18).identity]
    assert len({canonical_json(each) for each in identities}) == len(changes) + 1
    assert stage(table, tmp_path, asked, threads=4).identity == identities[0]


def test_a_copy_that_lacks_batches_is_not_called_whole(tmp_path: Path) -> None:
    made = stage(table_of([2] * 50), tmp_path, {"by": "ids", "size": 5})
    parts, _ = made_by(made)
    assert len(parts) > 1
    with pytest.raises(CorruptionError, match="expected 10 batches in the prepared copy, found "):
        made.facts(parts[0].cursor)


@given(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=6), max_size=8))
def test_padding_is_what_fills_rows_up_to_the_longest_of_their_batch(batches: list[list[int]]) -> None:
    lengths = np.array([length for batch in batches for length in batch], dtype=np.int64)
    sizes = np.array([len(batch) for batch in batches], dtype=np.int64)
    assert padding(lengths, sizes) == sum(max(batch) - length for batch in batches for length in batch)
