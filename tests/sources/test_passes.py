from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixer.core.order import blocks_of
from mixer.core.passes import Passes
from mixer.sources.inventory import take_inventory
from mixer.sources.parquet import ParquetSource
from mixer.sources.passes import PassedSource

ROWS = 230


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> ParquetSource:
    folder = tmp_path_factory.mktemp("web")
    for number, (start, stop, group) in enumerate([(0, 100, 17), (100, 101, 5), (101, ROWS, 30)]):
        table = pa.table({"n": range(start, stop), "text": [f"row {row}" for row in range(start, stop)]})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=group)
    inventory, schemas = take_inventory("web", str(folder))
    return ParquetSource("web", inventory, schemas[0])


def passed(source: ParquetSource, *, shuffled: bool, block_rows: int = 40) -> tuple[PassedSource, Passes]:
    groups = [rows for entry in source._inventory.files for rows in entry.row_group_rows]
    blocks = tuple(blocks_of(groups, block_rows).tolist()) if shuffled else None
    passes = Passes("web", ROWS, blocks, 17)
    return PassedSource(source, passes), passes


@given(st.booleans(), st.lists(st.tuples(st.integers(0, 3 * ROWS), st.integers(0, 300)), max_size=5))
def test_what_is_read_is_what_the_passes_say(
    source: ParquetSource, shuffled: bool, reads: list[tuple[int, int]]
) -> None:
    taken, passes = passed(source, shuffled=shuffled)
    for start, items in reads:
        table = taken.read(start, start + items)
        assert table.column("n").to_pylist() == passes.rows(start, start + items)[1].tolist()
        assert table.schema == taken.schema


def test_reading_on_decodes_a_shuffled_block_once(source: ParquetSource) -> None:
    taken, passes = passed(source, shuffled=True)
    before = source.row_groups_decoded
    for start in range(0, ROWS, 7):
        taken.read(start, min(start + 7, ROWS))
    groups = sum(len(entry.row_group_rows) for entry in source._inventory.files)
    assert source.row_groups_decoded - before == groups
    assert passes.blocks is not None
    assert len(passes.blocks) > 3


@given(st.lists(st.tuples(st.integers(0, ROWS), st.integers(0, 100)), max_size=5))
def test_of_a_copy_that_holds_passes_each_item_is_read_where_it_lies(
    source: ParquetSource, reads: list[tuple[int, int]]
) -> None:
    """A pass of 46 rows, five times."""
    taken = PassedSource(source, Passes("web", ROWS // 5, seed=17, full=True))
    assert taken.rows == 46
    for start, items in reads:
        stop = min(start + items, ROWS)
        assert taken.read(start, stop).column("n").to_pylist() == list(range(start, stop))


def test_no_more_passes_are_read_than_a_copy_holds(source: ParquetSource) -> None:
    taken = PassedSource(source, Passes("web", ROWS // 5, seed=17, full=True))
    with pytest.raises(ValueError, match=f"expected 0 <= start <= stop <= {ROWS}"):
        taken.read(ROWS - 1, ROWS + 1)
