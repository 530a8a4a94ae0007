"""Columns chosen, renamed, cast and filled, in runs that are really planned, built and resumed."""

from __future__ import annotations

import io
import json
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer import planning
from mixer.building import build
from mixer.config import config_from
from mixer.core import commits
from mixer.errors import ChangedError, CorruptionError, SchemaError
from mixer.schemas import Column, View, conform, merge
from mixer.sources import files
from mixer.sources.groups import Limits
from mixer.sources.inventory import take_inventory
from mixer.sources.parquet import ParquetSource
from tests.schemas.mixing import config_of, refusal, rows_of, shards_of

WEB = pa.table({"id": [1, 2], "text": ["a", "b"], "n": pa.array([1, 2], pa.int8())})
CODE = pa.table({"n": ["7", "-8"], "content": ["c", None], "junk": [0.5, 0.25]})
RENAMED = {"web": {"columns": ["n", "text"]}, "code": {"columns": {"content": "text", "n": {"cast": "int32"}}}}


def test_columns_are_selected_renamed_and_cast(tmp_path: Path) -> None:
    table = shards_of(config_of(tmp_path, {"web": [WEB], "code": [CODE]}, RENAMED))
    assert table.schema == pa.schema({"n": pa.int32(), "text": pa.string()})
    assert rows_of(table, 2, 0) == [{"n": 1, "text": "a"}, {"n": 2, "text": "b"}]
    assert rows_of(table, 2, 1) == [{"n": 7, "text": "c"}, {"n": -8, "text": None}]


def test_a_plan_tells_of_casts_and_of_what_is_missing(tmp_path: Path) -> None:
    datasets = {"code": {"columns": {"content": "text", "n": {"name": "n", "cast": "int8"}}}}
    planned = planning.plan(config_of(tmp_path, {"web": [WEB], "code": [CODE]}, datasets, missing="null"))
    assert [(p.dataset, p.column, p.stored, p.output) for p in planned.promotions] == [
        ("code", "id", "missing", "int64"),
        ("code", "n", "string", "int8"),
    ]


def test_a_list_orders_columns_and_a_mapping_leaves_them_as_in_the_files(tmp_path: Path) -> None:
    for columns in (["n", "id"], {"n": "n", "id": "id"}, {"id": "id", "n": "n"}):
        planned = planning.plan(config_of(tmp_path, {"web": [WEB]}, {"web": {"columns": columns}}))
        assert planned.schema.names == (["n", "id"] if isinstance(columns, list) else ["id", "n"])


def test_two_columns_may_change_their_names_with_each_other(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2], "b": [3, 4]})
    swapped = shards_of(config_of(tmp_path, {"d": [table]}, {"d": {"columns": {"a": "b", "b": "a"}}}))
    assert swapped.to_pylist() == [{"b": 1, "a": 3}, {"b": 2, "a": 4}]


def test_a_file_that_looks_like_the_output_is_renamed_all_the_same(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2], "b": [3, 4]})
    found = shards_of(config_of(tmp_path, {"d0": [table], "d1": [table]}, {"d1": {"columns": {"a": "b", "b": "a"}}}))
    assert rows_of(found, 2, 1) == [{"a": 3, "b": 1}, {"a": 4, "b": 2}]
    swapped = conform(table, table.schema, View((Column("a", "b"), Column("b", "a"))))
    assert swapped.to_pydict() == {"a": [3, 4], "b": [1, 2]}


@pytest.mark.parametrize("missing", ["null", None])
def test_columns_that_are_missing_in_a_dataset_or_a_file_become_null(missing: str | None, tmp_path: Path) -> None:
    first, second = pa.table({"a": [1, 2]}), pa.table({"b": ["x"], "s": [{"p": 1}]})
    other = pa.table({"a": pa.array([3, 4, 5], pa.int8()), "s": [{"q": [1]}, None, {"q": None}]})
    table = shards_of(config_of(tmp_path, {"d0": [first, second], "d1": [other]}, missing=missing))
    assert table.schema == pa.schema(
        {
            "a": pa.int64(),
            "b": pa.string(),
            "s": pa.struct({"p": pa.int64(), "q": pa.list_(pa.field("element", pa.int64()))}),
        }
    )
    assert rows_of(table, 2, 0) == [
        {"a": 1, "b": None, "s": None},
        {"a": 2, "b": None, "s": None},
        {"a": None, "b": "x", "s": {"p": 1, "q": None}},
    ]
    assert rows_of(table, 2, 1) == [
        {"a": 3, "b": None, "s": {"p": None, "q": [1]}},
        {"a": 4, "b": None, "s": None},
        {"a": 5, "b": None, "s": {"p": None, "q": None}},
    ]


def test_missing_columns_are_refused_with_both_ways_out(tmp_path: Path) -> None:
    told = refusal(config_of(tmp_path, {"web": [WEB.select(["id", "n"])], "code": [CODE.select(["n"])]}, {}))
    assert told.splitlines()[-1] == (
        f"column 'id': int64 in dataset 'web' ({tmp_path}/web/0.parquet), but missing in dataset 'code' "
        f"({tmp_path}/code/0.parquet); give every dataset the same columns (`columns` selects and renames them), or "
        f"set `missing: null`"
    )


def test_a_column_that_no_file_has_is_refused_whatever_may_be_missing(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"web": [WEB]}, {"web": {"columns": {"txt": "text", "id": "id"}}}, missing="null")
    assert refusal(config) == (
        f"column 'txt': in `columns` of dataset 'web', but in none of its files ({tmp_path}/web/0.parquet); "
        f"did you mean 'text'? there are 'id', 'text', 'n'"
    )


def test_a_misspelt_column_is_one_mistake(tmp_path: Path) -> None:
    told = refusal(config_of(tmp_path, {"web": [WEB], "code": [WEB]}, {"code": {"columns": ["id", "txt", "n"]}}))
    assert [line.split(":")[0] for line in told.splitlines()] == ["column 'txt'", "column 'text'"]
    told = refusal(
        config_of(tmp_path, {"web": [WEB], "code": [WEB]}, {"code": {"columns": {"txt": "text", "n": "n", "id": "id"}}})
    )
    assert [line.split(":")[0] for line in told.splitlines()] == ["column 'txt'"]


def test_a_file_that_gives_nothing_is_refused(tmp_path: Path) -> None:
    files = {"d": [WEB, pa.table({"other": [1]})]}
    told = refusal(config_of(tmp_path, files, {"d": {"columns": ["id"]}}, missing="null"))
    assert told == f"dataset 'd' ({tmp_path}/d/1.parquet) has none of the dataset's `columns`; leave the file out"


def test_refusals_name_stored_columns_and_casts(tmp_path: Path) -> None:
    datasets = {"code": {"columns": {"content": {"name": "n", "cast": "bool"}}}, "web": {"columns": ["n"]}}
    told = refusal(config_of(tmp_path, {"web": [WEB], "code": [CODE]}, datasets))
    assert told == (
        f"column 'n': int8 in dataset 'web' ({tmp_path}/web/0.parquet), but bool in dataset 'code' "
        f"({tmp_path}/code/0.parquet, stored as 'content', cast from string): number and boolean are never mixed; "
        f"store both as one type, or cast one of them: `columns: {{content: {{name: n, cast: int64}}}}` at dataset "
        f"'code'"
    )


@pytest.mark.parametrize("limits", [Limits(), Limits(whole_group_bytes=1, piece_bytes=16)], ids=["whole", "pieces"])
def test_a_value_that_cannot_be_cast_is_named_with_its_row(limits: Limits, tmp_path: Path) -> None:
    texts = [str(row) for row in range(90)]
    texts[77] = "seventy-seven"
    pq.write_table(pa.table({"x": texts}), tmp_path / "a.parquet", row_group_size=50)
    view = View((Column("x", "n", "int64"),))
    inventory, schemas = take_inventory("d", str(tmp_path))
    merged = merge({"d": [("f", schemas[0])]}, views={"d": view})
    source = ParquetSource("d", inventory, merged.schema, view=view, limits=limits)
    assert source.read(0, 50).equals(pa.table({"n": range(50)}))
    with pytest.raises(SchemaError) as caught:
        source.read(50, 90)
    assert str(caught.value) == (
        f"dataset 'd', file {tmp_path}/a.parquet, row group 1: column 'n', row 27: a value of type string cannot be "
        f"cast to int64 (Failed to parse string: 'seventy-seven' as a scalar of type int64); repair the data, or "
        f"choose another `cast`"
    )


def test_nothing_of_a_shard_is_written_if_one_of_its_values_cannot_be_cast(tmp_path: Path) -> None:
    files = {"d": [pa.table({"x": [*map(str, range(5)), "x"]})]}
    config = config_of(tmp_path, files, {"d": {"columns": {"x": {"cast": "int8"}}}})
    with pytest.raises(SchemaError, match=r"dataset 'd', file .*0\.parquet, row group 0: column 'x', row 5"):
        build(config)
    assert not (tmp_path / "out" / "data").exists()


def test_columns_that_are_not_taken_are_not_decoded(tmp_path: Path) -> None:
    table = pa.table({"a": range(100), "junk": [f"junk {row}" * 9 for row in range(100)]})
    config = config_of(tmp_path, {"d": [table]}, {"d": {"columns": ["a"]}})
    path = tmp_path / "d" / "0.parquet"
    chunk = pq.read_metadata(path).row_group(0).column(1)
    with path.open("r+b") as file:
        file.seek(min(chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset))
        file.write(b"\xff" * chunk.total_compressed_size)
    assert shards_of(config)["a"].to_pylist() == list(range(100))
    with pytest.raises(CorruptionError, match="column 'junk': its bytes do not decode"):
        build(_all_of(config))


class Recorded(io.FileIO):
    """A file that records which bytes are read."""

    ranges: ClassVar[list[tuple[int, int]]] = []

    def read(self, size: int | None = -1) -> bytes:
        start = self.tell()
        data = super().read(-1 if size is None else size) or b""
        self.ranges.append((start, start + len(data)))
        return data


@pytest.mark.parametrize("limits", [Limits(), Limits(whole_group_bytes=1, piece_bytes=4096)], ids=["whole", "pieces"])
@pytest.mark.parametrize("remote", [False, True], ids=["local", "remote"])
def test_columns_that_are_not_taken_are_not_fetched(
    limits: Limits, remote: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = np.random.default_rng(0).integers(0, 2**62, (3, 100_000))
    table = pa.table(dict(zip(["a", "junk", "b"], numbers, strict=True)))
    pq.write_table(table, tmp_path / "0.parquet", use_dictionary=False)
    inventory, schemas = take_inventory("d", str(tmp_path))
    view = View((Column("b", "x"), Column("a", "b")))
    schema = merge({"d": [("f", schemas[0])]}, views={"d": view}).schema
    Recorded.ranges.clear()
    monkeypatch.setattr(files, "open_input", lambda file: Recorded(file.url))
    monkeypatch.setattr(files, "is_remote", lambda _: remote)
    with closing(ParquetSource("d", inventory, schema, view=view, limits=limits)) as source:
        found = source.read(0, 100_000)
    assert found.equals(pa.table({"x": numbers[2], "b": numbers[0]}))
    chunk = pq.read_metadata(tmp_path / "0.parquet").row_group(0).column(1)
    first, last = chunk.data_page_offset, chunk.data_page_offset + chunk.total_compressed_size
    assert sum(stop - start for start, stop in Recorded.ranges) > 1_000_000
    assert not [(start, stop) for start, stop in Recorded.ranges if start < last and stop > first]


def _all_of(config: Any) -> Any:
    """Return `config` with every column taken, into another output."""
    values = config.model_dump()
    values["datasets"]["d"]["columns"] = None
    return config_from({**values, "output": config.output + "-all"})


def test_the_definition_holds_columns_and_a_run_goes_on_with_no_others(tmp_path: Path) -> None:
    files = {"web": [WEB], "code": [CODE]}
    config = config_of(tmp_path, files, RENAMED)
    whole = shards_of(config)
    definition = json.loads((tmp_path / "out" / commits.RUN_NAME).read_bytes())["definition"]
    assert [dataset["columns"] for dataset in definition["datasets"]] == [
        [{"stored": "n", "name": "n"}, {"stored": "text", "name": "text"}],
        [{"stored": "content", "name": "text"}, {"stored": "n", "name": "n", "cast": "int32"}],
    ]
    values = config.model_dump()
    partial = config_from({**values, "output": str(tmp_path / "partial"), "batches_per_shard": 1})
    stops = iter([False, True])
    build(partial, should_stop=lambda: next(stops))
    build(partial)
    assert pa.concat_tables(map(pq.read_table, sorted((tmp_path / "partial" / "data").iterdir()))).equals(whole)
    values["datasets"]["code"]["columns"]["n"]["cast"] = "int16"
    with pytest.raises(ChangedError, match=r"datasets\.code\.columns: the run has \{'content': 'text', 'n'"):
        build(config_from(values))
    with pytest.raises(ChangedError, match="missing: the run has 'error', the config has 'null'"):
        build(config_from({**config.model_dump(), "missing": None}))


def test_runs_with_other_columns_have_other_ids_and_the_order_of_a_mapping_is_none(tmp_path: Path) -> None:
    def run(columns: Any, **changes: Any) -> str:
        return planning.plan(config_of(tmp_path, {"web": [WEB]}, {"web": {"columns": columns}}, **changes)).run

    runs = [run(None), run(["id", "n"]), run(["n", "id"]), run({"id": "id", "n": "n"}), run({"id": "n", "n": "id"})]
    runs += [run(["id"], missing="null"), run(["id"]), run({"id": {"cast": "int8"}}), run({"id": "id"})]
    assert len(set(runs)) == len(runs)
    assert run({"n": "n", "id": "id"}) == runs[3]


NAMES = st.sampled_from(["a", "b", "c", "テ", "a.b"])
VALUES = {"int8": st.integers(-9, 9), "string": st.sampled_from(["1", "-2"]), "bool": st.booleans()}


@st.composite
def seen_tables(draw: st.DrawFn) -> tuple[pa.Table, View]:
    kinds = draw(st.dictionaries(NAMES, st.sampled_from(sorted(VALUES)), min_size=1))
    rows = draw(st.integers(0, 4))
    table = pa.table(
        {
            name: pa.array(draw(st.lists(st.none() | VALUES[kind], min_size=rows, max_size=rows)), kind)
            for name, kind in kinds.items()
        }
    )
    stored = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, unique=True))
    names = draw(st.lists(NAMES, min_size=len(stored), max_size=len(stored), unique=True))
    casts = [draw(st.sampled_from([None, "string"])) for _ in stored]
    return table, View(tuple(map(Column, stored, names, casts)), ordered=draw(st.booleans()))


def as_text(value: Any) -> str | None:
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@given(seen_tables())
@settings(deadline=None)
def test_any_choice_gives_the_values_of_its_columns(seen: tuple[pa.Table, View]) -> None:
    table, view = seen
    schema = merge({"d": [("f", table.schema)]}, views={"d": view}).schema
    found = conform(table, schema, view)
    found.validate(full=True)
    columns = list(view.columns or ())
    if not view.ordered:
        columns.sort(key=lambda column: table.schema.names.index(column.stored))
    assert found.schema.names == [column.name for column in columns]
    for column in columns:
        values = table[column.stored].to_pylist()
        assert found[column.name].to_pylist() == ([as_text(value) for value in values] if column.cast else values)


def test_thousands_of_files_with_many_columns_are_seen_quickly() -> None:
    schema = pa.schema({f"c{number}": pa.int32() for number in range(200)})
    view = View(tuple(Column(f"c{number}", f"d{number}") for number in range(0, 200, 2)))
    files = [(f"{index}.parquet", schema) for index in range(5000)]
    found = merge({"web": files, "code": [("x", schema)]}, views={"web": view, "code": view})
    assert found.schema.names == [f"d{number}" for number in range(0, 200, 2)]


def test_casts_of_large_forms_come_from_every_slice() -> None:
    table = pa.table({"x": pa.array([str(n) for n in range(10)], pa.large_string()).dictionary_encode()}).slice(3, 4)
    view = View((Column("x", "x", "float32"),))
    found = conform(table, pa.schema({"x": pa.float64()}), view)
    assert np.array_equal(found["x"].to_numpy(), np.arange(3.0, 7.0))
