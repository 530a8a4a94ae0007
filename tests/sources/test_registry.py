from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mixer.batcher import DataBatcher
from mixer.errors import InputError
from mixer.sources.registry import RowRegistry
from tests.sources.layouts import PIECES, Dataset, written


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return written(tmp_path / "d", [[5, 0, 5], [], [7]])


@pytest.mark.parametrize("block_rows", [1, 4, 100])
@pytest.mark.parametrize("offset", [0, 4, 5, 10, 16, 17, 18])
def test_an_iterator_gives_the_rows_from_its_offset(dataset: Dataset, offset: int, block_rows: int) -> None:
    registry = RowRegistry({"d": dataset.source()}, block_rows=block_rows)
    assert list(registry.get_iterator("d", offset=offset)) == dataset.table.to_pylist()[offset:]


def test_opening_at_an_offset_decodes_nothing_before_it(dataset: Dataset) -> None:
    source = dataset.source()
    next(RowRegistry({"d": source}).get_iterator("d", offset=12))
    assert source.row_groups_decoded == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(turns=st.lists(st.integers(0, 2), max_size=40))
def test_iterators_do_not_disturb_each_other(dataset: Dataset, turns: list[int]) -> None:
    registry = RowRegistry({"d": dataset.source(PIECES), "e": dataset.source()}, block_rows=3)
    expected = dataset.table.to_pylist()
    iterators = [registry.get_iterator("d"), registry.get_iterator("d", offset=4), registry.get_iterator("e", offset=1)]
    places = [0, 4, 1]
    for turn in turns:
        row = next(iterators[turn], None)
        assert row == (expected[places[turn]] if places[turn] < len(expected) else None)
        places[turn] += 1


def test_a_batcher_takes_rows_and_resumes(dataset: Dataset, tmp_path: Path) -> None:
    other = written(tmp_path / "e", [[9]])
    registry = RowRegistry({"d": dataset.source(), "e": other.source()})
    batcher = DataBatcher(registry, {"d": 2, "e": 1}, batch_size=4)
    batches = [batcher.next_batch() for _ in range(2)]
    resumed = DataBatcher(registry, {"d": 2, "e": 1}, batch_size=4)
    resumed.load_state_dict(batcher.state_dict())
    batches += [resumed.next_batch() for _ in range(2)]
    rows = [row for batch in batches for row in batch]
    assert sorted(row["id"] for row in rows) == sorted([*range(11), *range(5)])


def test_unknown_names_and_negative_offsets_are_refused(dataset: Dataset) -> None:
    registry = RowRegistry({"d": dataset.source()})
    with pytest.raises(InputError, match=r"dataset 'x': expected one of \['d'\]"):
        registry.get_iterator("x")
    with pytest.raises(ValueError, match="expected an offset from 0, found -1"):
        registry.get_iterator("d", offset=-1)


def test_a_registry_is_not_changed_by_its_callers_mapping(dataset: Dataset) -> None:
    sources = {"d": dataset.source()}
    registry = RowRegistry(sources)
    sources.clear()
    assert len(list(islice(registry.get_iterator("d"), 3))) == 3
