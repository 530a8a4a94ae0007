from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mixer.errors import ChangedError, CorruptionError, SchemaError
from mixer.schemas import merge
from mixer.sources.files import OpenFiles
from mixer.sources.groups import Limits
from mixer.sources.inventory import Inventory, take_inventory
from mixer.sources.parquet import ParquetSource
from tests.sources.layouts import PIECES, WHOLE, Dataset, Layout, layouts, written

both = pytest.mark.parametrize("limits", [WHOLE, PIECES], ids=["whole", "pieces"])
on_disk = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)


@on_disk
@given(layout=layouts, limits=st.sampled_from([WHOLE, PIECES]), restored=st.booleans(), data=st.data())
def test_any_range_reads_as_a_slice_of_the_whole(
    layout: Layout, limits: Limits, restored: bool, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    dataset = written(tmp_path_factory.mktemp("d"), layout)
    total = dataset.table.num_rows
    inventory = Inventory.from_json(dataset.inventory.to_json()) if restored else dataset.inventory
    source = ParquetSource("d", inventory, dataset.table.schema, limits=limits)
    assert source.rows == total
    for start, stop in data.draw(
        st.lists(st.tuples(st.integers(0, total), st.integers(0, total)).map(sorted), max_size=8)
    ):
        table = source.read(start, stop)
        table.validate(full=True)
        assert table.schema.equals(dataset.table.schema, check_metadata=True)
        assert table.equals(dataset.table.slice(start, stop - start))
    source.close()


@on_disk
@given(layout=layouts, limits=st.sampled_from([WHOLE, PIECES]), step=st.integers(1, 40))
def test_reading_on_decodes_each_row_group_once(
    layout: Layout, limits: Limits, step: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    dataset = written(tmp_path_factory.mktemp("d"), layout)
    source = dataset.source(limits)
    tables = [source.read(start, min(start + step, source.rows)) for start in range(0, source.rows, step)]
    assert source.row_groups_decoded == dataset.filled_groups
    assert not tables or pa.concat_tables(tables).equals(dataset.table)


@both
def test_only_the_row_groups_that_are_asked_for_are_decoded(tmp_path: Path, limits: Limits) -> None:
    dataset = written(tmp_path, [[10, 10], [10], [], [0], [10]])
    for start, stop, groups in [
        (0, 10, 1),
        (10, 20, 1),
        (19, 20, 1),
        (19, 21, 2),
        (20, 30, 1),
        (29, 31, 2),
        (0, 40, 4),
        (40, 40, 0),
    ]:
        source = dataset.source(limits)
        assert source.read(start, stop).equals(dataset.table.slice(start, stop - start))
        assert source.row_groups_decoded == groups, (start, stop)


def test_a_whole_row_group_is_kept_until_it_is_passed_and_pieces_begin_anew(tmp_path: Path) -> None:
    dataset = written(tmp_path, [[12, 12]])
    for limits, after_back in [(WHOLE, 1), (PIECES, 2)]:
        source = dataset.source(limits)
        source.read(0, 11)
        source.read(1, 2)
        assert source.row_groups_decoded == after_back
        source.read(1, 12)
        assert source.row_groups_decoded == after_back
        source.read(0, 1)
        assert source.row_groups_decoded == after_back + 1


@both
def test_skipping_inside_a_row_group_and_over_row_groups_gives_the_right_rows(tmp_path: Path, limits: Limits) -> None:
    dataset = written(tmp_path, [[30], [30, 30]])
    source = dataset.source(limits)
    for start in (2, 9, 28, 89, 0, 61):
        assert source.read(start, start + 1).equals(dataset.table.slice(start, 1))
    assert source.row_groups_decoded == 4


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (3, 2), (0, 11), (11, 11)])
def test_a_range_outside_the_dataset_is_refused(tmp_path: Path, start: int, stop: int) -> None:
    with pytest.raises(
        ValueError, match=f"dataset 'd': expected 0 <= start <= stop <= 10, found start={start}, stop={stop}"
    ):
        written(tmp_path, [[10]]).source().read(start, stop)


def test_a_dataset_without_rows_can_be_read(tmp_path: Path) -> None:
    dataset = written(tmp_path, [[], [0, 0]])
    assert dataset.inventory.rows == 0
    assert dataset.source().read(0, 0).equals(dataset.table)


def test_only_the_columns_of_the_schema_are_read_in_its_order(tmp_path: Path) -> None:
    dataset = written(tmp_path, [[10]])
    schema = pa.schema([dataset.table.schema.field(name) for name in ("label", "id")])
    table = ParquetSource("d", dataset.inventory, schema).read(0, 10)
    assert table.equals(dataset.table.select(["label", "id"]))


@both
def test_a_file_that_lacks_a_column_is_named(tmp_path: Path, limits: Limits) -> None:
    dataset = written(tmp_path, [[10]])
    schema = dataset.table.schema.append(pa.field("more", pa.int64()))
    with pytest.raises(SchemaError, match=r"dataset 'd', file .*part-000\.parquet, row group 0: column 'more'"):
        ParquetSource("d", dataset.inventory, schema, limits=limits).read(0, 1)


@both
def test_names_with_dots_and_other_columns_beginning_alike_are_told_apart(tmp_path: Path, limits: Limits) -> None:
    table = pa.table({"a": [{"b": 1}], "a.b": ["x"], "a.b.c": [2.0], "aa": [True]})
    pq.write_table(table, tmp_path / "0.parquet")
    inventory, (schema,) = take_inventory("d", str(tmp_path))
    for names in (["a"], ["a.b"], ["a.b.c", "aa"], ["a.b", "a"]):
        wanted = merge({"d": [("f", pa.schema([schema.field(name) for name in names]))]}, lineage=False).schema
        assert (
            ParquetSource("d", inventory, wanted, limits=limits).read(0, 1).to_pylist()
            == table.select(names).to_pylist()
        )


TYPES = {
    "nested": (
        pa.list_(pa.struct({"a": pa.list_(pa.string()), "b": pa.int8()})),
        [[{"a": ["x", None], "b": 1}, None], [], None],
    ),
    "binary": (pa.binary(), [b"\0\xff", b"", None]),
    "large_string": (pa.large_string(), ["é", "", None]),
    "fixed_size_binary": (pa.binary(3), [b"abc", None, b"\0\0\0"]),
    "list<int32>": (pa.list_(pa.int32()), [[1, 2, -(2**31)], [], None]),
    "fixed_size_list": (pa.list_(pa.int32(), 2), [[1, 2], None, [3, 4]]),
    "decimal": (pa.decimal128(20, 4), [Decimal("-12345678901234.5678"), None, Decimal("0.0001")]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [
            dt.datetime(2024, 2, 29, 1, 2, 3, 4, dt.UTC),
            None,
            dt.datetime(1901, 1, 1, tzinfo=dt.UTC),
        ],
    ),
    "date": (pa.date32(), [dt.date(2024, 2, 29), None, dt.date(1, 1, 1)]),
    "time": (pa.time64("us"), [dt.time(23, 59, 59, 999999), None, dt.time(0)]),
    "bool": (pa.bool_(), [True, None, False]),
    "float16": (pa.float16(), [1.5, None, -0.25]),
    "uint64": (pa.uint64(), [2**64 - 1, None, 0]),
    "dictionary of integers": (pa.dictionary(pa.int32(), pa.int64()), [5, None, 5]),
    "null": (pa.null(), [None, None, None]),
}


@both
@pytest.mark.parametrize(("stored", "values"), TYPES.values(), ids=TYPES)
def test_values_of_every_type_come_back(
    tmp_path: Path, limits: Limits, stored: pa.DataType, values: list[object]
) -> None:
    column = (
        pa.array(values * 9, stored) if not pa.types.is_dictionary(stored) else pa.array(values * 9).dictionary_encode()
    )
    pq.write_table(pa.table({"c": column}), tmp_path / "0.parquet", row_group_size=10)
    inventory, schemas = take_inventory("d", str(tmp_path))
    schema = merge({"d": [("f", schema) for schema in schemas]}, lineage=False).schema
    table = ParquetSource("d", inventory, schema, limits=limits).read(2, 25)
    assert not pa.types.is_dictionary(table.schema.field("c").type)
    assert table["c"].to_pylist() == (values * 9)[2:25]


def _texts(folder: Path, *files: pa.Array) -> ParquetSource:
    """A source over one file for each array, in one row group each."""
    for number, texts in enumerate(files):
        pq.write_table(pa.table({"text": texts}), folder / f"{number}.parquet", row_group_size=len(texts))
    inventory, schemas = take_inventory("d", str(folder))
    return ParquetSource("d", inventory, merge({"d": [("f", schemas[0])]}, lineage=False).schema)


def test_texts_that_repeat_are_decoded_in_pieces_although_little_of_them_is_stored(tmp_path: Path) -> None:
    # What short texts taught must not be believed of the next file's long ones.
    source = _texts(tmp_path, pa.array(["x"] * 20_000), pa.repeat("y" * 2000, 20_000))
    table = source.read(0, 40_000)
    assert table["text"].num_chunks > 2
    assert max(chunk.nbytes for chunk in table["text"].chunks) <= Limits().whole_group_bytes
    assert table.slice(0, 20_000)["text"].unique().to_pylist() == ["x"]
    assert table.slice(20_000)["text"].unique().to_pylist() == ["y" * 2000]


def test_short_texts_are_not_decoded_in_small_pieces(tmp_path: Path) -> None:
    table = _texts(tmp_path, pa.array(map(str, range(200_000)))).read(0, 200_000)
    assert table["text"].num_chunks == 1
    assert table["text"].to_pylist() == list(map(str, range(200_000)))


def test_sources_that_share_open_files_keep_no_more_of_them_than_allowed(tmp_path: Path) -> None:
    files = OpenFiles(limit=3)
    datasets = [written(tmp_path / str(number), [[4], [4]]) for number in range(10)]
    sources = [
        ParquetSource(str(number), each.inventory, each.table.schema, files=files)
        for number, each in enumerate(datasets)
    ]
    before = _open_below(tmp_path)
    for start in range(8):
        for source, dataset in zip(sources, datasets, strict=True):
            assert source.read(start, start + 1).equals(dataset.table.slice(start, 1))
        assert _open_below(tmp_path) <= before + 3
    for source in sources:
        source.close()
    assert _open_below(tmp_path) == before
    assert sources[0].read(0, 8).equals(datasets[0].table)
    sources[0].close()


@both
def test_closing_gives_every_file_back_and_reading_opens_it_again(tmp_path: Path, limits: Limits) -> None:
    dataset = written(tmp_path, [[12], [12]])
    source = dataset.source(limits)
    source.read(0, 14)
    assert _open_below(tmp_path) > 0
    source.close()
    source.close()
    assert _open_below(tmp_path) == 0
    assert source.read(14, 24).equals(dataset.table.slice(14))


def _open_below(folder: Path) -> int:
    """How many files in `folder` this process has open."""
    targets = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            targets.append(descriptor.readlink())
        except FileNotFoundError:
            continue  # the one that lists them
    return sum(target.is_relative_to(folder) for target in targets)


def _keep_time(path: Path, change: bytes) -> None:
    """Write `change` over a file such that its size and time do not tell."""
    before = path.stat()
    assert len(change) == before.st_size
    path.write_bytes(change)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _column_bytes(path: Path) -> slice:
    """Where the second row group's first column is."""
    chunk = pq.read_metadata(path).row_group(1).column(0)
    start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    return slice(start, start + chunk.total_compressed_size)


def _with_a_bit_flipped(path: Path) -> bytes:
    data = bytearray(path.read_bytes())
    data[_column_bytes(path).stop - 3] ^= 1
    return bytes(data)


def _with_a_column_overwritten(path: Path) -> bytes:
    data = bytearray(path.read_bytes())
    where = _column_bytes(path)
    data[where] = b"\xff" * (where.stop - where.start)
    return bytes(data)


@both
@pytest.mark.parametrize(
    ("damage", "options"),
    [(_with_a_bit_flipped, {"write_page_checksum": True}), (_with_a_column_overwritten, {})],
    ids=["a bit, with checksums", "a column, without"],
)
def test_damaged_pages_are_found_and_named_and_other_row_groups_stay_readable(
    tmp_path: Path, limits: Limits, damage: Callable[[Path], bytes], options: dict[str, object]
) -> None:
    dataset = written(tmp_path, [[20, 20, 20]], **options)
    path = tmp_path / "part-000.parquet"
    _keep_time(path, damage(path))
    source = dataset.source(limits)
    assert source.read(0, 20).num_rows == 20
    for _ in range(2):
        with pytest.raises(
            CorruptionError, match=r"dataset 'd', file .*part-000\.parquet, row group 1, column 'id': its bytes do not"
        ) as caught:
            source.read(15, 45)
        assert caught.value.__cause__ is not None
    assert source.read(40, 60).equals(dataset.table.slice(40))


@both
def test_a_file_replaced_after_planning_is_named_when_it_is_opened(tmp_path: Path, limits: Limits) -> None:
    dataset = written(tmp_path, [[20], [20]])
    source = dataset.source(limits)
    source.read(0, 10)
    written(tmp_path / "other", [[21]])
    (tmp_path / "other/part-000.parquet").replace(tmp_path / "part-001.parquet")
    with pytest.raises(
        ChangedError, match=r"part-001\.parquet has changed since the run was planned: expected \d+ bytes"
    ):
        source.read(10, 30)


@both
def test_a_file_overwritten_while_it_is_read_is_changed_and_not_damaged(tmp_path: Path, limits: Limits) -> None:
    dataset = written(tmp_path, [[20, 20]])
    source = dataset.source(limits)
    source.read(0, 20)
    path = tmp_path / "part-000.parquet"
    with path.open("r+b") as file:
        file.write(b"x" * path.stat().st_size)
    os.utime(path, ns=(1, 1))
    with pytest.raises(
        ChangedError, match=r"part-000\.parquet.* has changed since the run was planned: expected version"
    ):
        source.read(20, 40)


def test_another_footer_of_the_same_size_and_time_is_found_by_a_later_start(tmp_path: Path) -> None:
    dataset = written(tmp_path, [[20]])
    path = tmp_path / "part-000.parquet"
    footer_bytes = int.from_bytes(path.read_bytes()[-8:-4], "little")
    data = bytearray(path.read_bytes())
    # In the created-by text, the one place of a footer where nothing but its hash tells.
    place = data.index(b"parquet-cpp-arrow", len(data) - footer_bytes)
    data[place] = ord("P")
    _keep_time(path, bytes(data))
    later = Dataset(dataset.path, Inventory.from_json(dataset.inventory.to_json()), dataset.table, dataset.layout)
    with pytest.raises(
        ChangedError, match=r"part-000\.parquet: its contents have changed .*expected 20 rows and footer"
    ):
        later.source().read(0, 1)
