"""The stage of `shuffle: full`, by itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer.core.fingerprint import canonical_json
from mixer.errors import CorruptionError, SchemaError, StoreError
from mixer.preparation.base import Part
from mixer.preparation.cutting import Cuts
from mixer.preparation.external import SortLimits
from mixer.preparation.record import SETTINGS
from mixer.preparation.sorting import FullShuffleStage, pieces
from mixer.shards import encode
from tests.preparation.rows import TableSource, drawn
from tests.profiles import sized

SMALL = Cuts(row_group_bytes=900, row_group_rows=13, part_bytes=2500)


def order_in_plain_words(rows: int, seed: int, name: str) -> list[int]:
    """Return the order of an epoch: a random number is drawn for each row, and rows are sorted by it."""
    path = json.dumps([seed, name, "all"], separators=(",", ":"))
    key = int(hashlib.sha256(path.encode()).hexdigest()[:32], 16)
    numbers = np.random.Philox(key=key).random_raw(rows).tolist()
    return sorted(range(rows), key=lambda row: (numbers[row], row))


def table_of(rows: int) -> pa.Table:
    chance = np.random.default_rng(rows)
    kinds = {"ids": pa.list_(pa.int32()), "text": pa.string(), "when": pa.timestamp("ns", "UTC"), "x": pa.float32()}
    numbers = pa.array(range(rows), pa.int64())
    return pa.table({"n": numbers, **{name: drawn(chance, kind, rows) for name, kind in kinds.items()}})


def stage(source: TableSource, folder: Path, *, epochs: int = 1, seed: int = 17, **limits: int) -> FullShuffleStage:
    sort = SortLimits(**{"memory_bytes": 256 << 20, **limits}, scratch=folder)
    return FullShuffleStage("web", source, {"from": "a test"}, seed, epochs, limits=sort, cuts=SMALL)


def encoded(parts: Sequence[Part], schema: pa.Schema) -> list[bytes]:
    return [encode(iter(part.row_groups), schema, SETTINGS, {}) for part in parts]


@settings(max_examples=sized(short=12, long=150))
@given(st.integers(0, 80), st.integers(1, 4), st.integers(0, 2**63))
def test_each_epoch_holds_every_row_once_in_the_order_of_its_seed(
    tmp_path_factory: pytest.TempPathFactory, rows: int, epochs: int, seed: int
) -> None:
    made = stage(TableSource(table_of(rows)), tmp_path_factory.getbasetemp(), epochs=epochs, seed=seed)
    parts = list(made.parts(made.schema(), None))
    groups = [group for part in parts for group in part.row_groups]
    numbers = [n for group in groups for n in group["n"].to_pylist()]
    assert numbers == [row for epoch in range(epochs) for row in order_in_plain_words(rows, seed + epoch, "web")]
    assert all(group.schema == made.schema() and group.num_rows for group in groups)
    assert made.facts(parts[-1].cursor if parts else None) == {"epochs": epochs}


@settings(max_examples=sized(short=6, long=100))
@given(st.data())
def test_whoever_goes_on_after_a_part_makes_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    rows, epochs = data.draw(st.integers(60, 120)), data.draw(st.integers(1, 3))
    made = stage(TableSource(table_of(rows)), tmp_path_factory.getbasetemp(), epochs=epochs)
    parts = list(made.parts(made.schema(), None))
    assert len(parts) > 1
    number = data.draw(st.integers(0, len(parts) - 1))
    # As it is kept between: as canonical JSON.
    cursor = json.loads(canonical_json(dict(parts[number].cursor)))
    again = list(made.parts(made.schema(), cursor))
    assert [part.cursor for part in again] == [part.cursor for part in parts[number + 1 :]]
    assert encoded(again, made.schema()) == encoded(parts, made.schema())[number + 1 :]


def test_memory_threads_and_what_is_set_aside_make_no_difference(tmp_path: Path) -> None:
    table = table_of(1500)
    found = []
    for limits in ({}, {"threads": 3}, {"memory_bytes": 64 << 20}, {"narrow_bytes": 60}, {"narrow_bytes": 0}):
        made = stage(TableSource(table), tmp_path, **limits)
        found.append(encoded(list(made.parts(made.schema(), None)), made.schema()))
    assert len(found[0]) > 10
    assert all(each == found[0] for each in found)


def test_going_on_sorts_only_what_is_left_of_an_epoch(tmp_path: Path) -> None:
    source = TableSource(table_of(1000))
    made = stage(source, tmp_path, epochs=2)
    parts = list(made.parts(made.schema(), None))
    assert source.reads == 2000
    done = np.cumsum([sum(group.num_rows for group in part.row_groups) for part in parts])
    list(made.parts(made.schema(), parts[int(np.argmax(done >= 1000))].cursor))
    assert source.reads == 3000
    keyed = list(made._keyed(1, (2**63, 0)))
    assert 300 < sum(piece.rows.num_rows for piece in keyed) < 700
    assert all((piece.keys > 2**63).all() for piece in keyed)


def test_what_decides_the_bytes_is_in_the_identity(tmp_path: Path) -> None:
    source = TableSource(table_of(5))
    base = FullShuffleStage("web", source, {"from": "a"}, 1)
    others = [
        FullShuffleStage("code", source, {"from": "a"}, 1),
        FullShuffleStage("web", source, {"from": "b"}, 1),
        FullShuffleStage("web", source, {"from": "a"}, 2),
        FullShuffleStage("web", source, {"from": "a"}, 1, 2),
        FullShuffleStage("web", source, {"from": "a"}, 1, cuts=SMALL),
    ]
    assert len({canonical_json(each.identity) for each in (base, *others)}) == 6
    same = FullShuffleStage("web", source, {"from": "a"}, 1, limits=SortLimits(1 << 28, 4, tmp_path, 5))
    assert same.identity == base.identity


def test_a_copy_that_lacks_rows_is_not_called_whole(tmp_path: Path) -> None:
    made = stage(TableSource(table_of(50)), tmp_path)
    cursors = [part.cursor for part in made.parts(made.schema(), None)]
    with pytest.raises(CorruptionError, match="expected 1 times 50 rows in the shuffled copy, found "):
        made.facts(cursors[0])
    with pytest.raises(CorruptionError, match="expected a whole number 'rows', found 'ten'"):
        made.facts({"rows": "ten"})


def test_columns_that_cannot_be_carried_are_refused_before_a_row_is_read(tmp_path: Path) -> None:
    source = TableSource(pa.table({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8()))}))
    with pytest.raises(SchemaError, match=r"dataset 'web': a sort cannot carry columns of these types: 'm', map<"):
        stage(source, tmp_path).schema()
    assert not source.reads


def test_a_sort_without_enough_memory_says_what_to_do(tmp_path: Path) -> None:
    rows = 40_000
    texts = pa.array([b"%06d" % row * 300 for row in range(rows)], pa.binary())
    made = stage(TableSource(pa.table({"t": texts})), tmp_path, memory_bytes=20 << 20, narrow_bytes=1 << 30)
    with pytest.raises(StoreError, match=r"dataset 'web': its rows cannot be sorted in .*Out of Memory.*TMPDIR"):
        list(made.parts(made.schema(), None))
    assert not list(tmp_path.iterdir())


@given(st.integers(0, 3000), st.integers(1, 5000))
def test_a_source_is_read_from_its_first_row_to_its_last(rows: int, width: int) -> None:
    table = pa.table({"n": range(rows), "t": pa.array([b"x" * width] * rows, pa.binary())})
    found = list(pieces(TableSource(table)))
    assert [start for start, _ in found] == [0, *np.cumsum([piece.num_rows for _, piece in found]).tolist()][
        :-1
    ] or not rows
    assert sum(piece.num_rows for _, piece in found) == rows
    assert all(piece.nbytes <= 20 << 20 for _, piece in found)


def test_wide_rows_are_never_read_many_at_once() -> None:
    table = pa.table({"t": pa.array([b"x" * (3 << 20)] * 10, pa.binary())})
    assert [piece.num_rows for _, piece in pieces(TableSource(table))] == [1, 2, 2, 2, 2, 1]


def chances(places: Any) -> float:
    """Return how far a table that should be flat is from it, by chi-square, in deviations."""
    expected = places.sum() / places.size
    free = (places.shape[0] - 1) * (places.shape[1] - 1)
    return float((((places - expected) ** 2 / expected).sum() - free) / np.sqrt(2 * free))


def test_every_row_comes_at_every_position_equally_often(tmp_path: Path) -> None:
    """Of the copy itself, over many epochs, which are as good as many seeds."""
    rows, epochs = 5, 120
    made = stage(TableSource(table_of(rows)), tmp_path, epochs=epochs)
    groups = [group for part in made.parts(made.schema(), None) for group in part.row_groups]
    numbers = np.concatenate([group["n"].to_numpy() for group in groups]).reshape(epochs, rows)
    places = np.zeros((rows, rows), dtype=np.int64)
    for order in numbers:
        places[np.arange(rows), order] += 1
    assert abs(chances(places)) < 4
