"""Tools that know nothing of mixer read its shards: the right rows, in their order and with their types.

Of a run under way they read just what is committed, or one shard more, which is whole, if a process died between
putting and committing it; who must not see that reads the files by name.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from mixer import building
from mixer.batcher import DataBatcher
from mixer.config import MixConfig, config_from
from mixer.core import commits
from mixer.core.plan import shard_path
from mixer.storage import LocalStore, Store
from mixer.testing import Death, by_sigkill, count_operations
from tests.e2e.runs import lying_on

Row = dict[str, Any]
pd = import_module("pandas")  # without types

SCHEMA = pa.schema({
    "text": pa.string(),
    "number": pa.int64(),
    "tokens": pa.list_(pa.int32()),
    "spans": pa.list_(pa.list_(pa.int32())),
    "data": pa.binary(),
    "at": pa.timestamp("us", tz="UTC"),
    "price": pa.decimal128(10, 2),
    "größe": pa.struct({"a": pa.int64(), "höhe": pa.string()}),
})  # fmt: skip
WEIGHTS = {"web": 3, "bücher": 1}
BATCH_SIZE, BATCHES, BATCHES_PER_SHARD, SHARDS = 4, 12, 3, 4
SHARD_ROWS = BATCH_SIZE * BATCHES_PER_SHARD


def a_row(name: str, row: int) -> Row:
    """Return a row with every kind of value, some of them null or empty, and a number that no float holds."""
    return {
        "text": None if row % 5 == 4 else f"{name} {row} ☃",
        "number": None if row % 7 == 3 else 2**60 + row,
        "tokens": None if row % 11 == 0 else [row] * (row % 3),
        "spans": [[row], [], [row, row + 1]][: row % 4],
        "data": bytes([row, 0, 255]),
        "at": dt.datetime(2026, 1, 2, 3, 4, 5, row, tzinfo=dt.UTC),
        "price": None if row % 9 == 8 else Decimal(row).scaleb(-2),
        "größe": None if row % 6 == 5 else {"a": row, "höhe": None if row % 4 == 1 else "é" * (row % 3)},
    }


class Rows:
    """A registry of the datasets' rows as they are in a mix."""

    def get_iterator(self, name: str, offset: int = 0) -> Iterator[Row]:
        return ({**a_row(name, row), "_dataset": name, "_row": row} for row in range(offset, 60))


def expected_rows(shards: int = SHARDS) -> list[Row]:
    batcher = DataBatcher(Rows(), WEIGHTS, BATCH_SIZE)
    return [{**row, "_batch": batch} for batch in range(shards * BATCHES_PER_SHARD) for row in batcher.next_batch()]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("inputs")
    for name in WEIGHTS:
        table = pa.Table.from_pylist([a_row(name, row) for row in range(60)], schema=SCHEMA)
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=7)
    return {name: {"path": str(folder / f"{name}.parquet"), "weight": weight} for name, weight in WEIGHTS.items()}


def config_for(output: Path, inputs: Mapping[str, Any]) -> MixConfig:
    return config_from({
        "output": str(output),
        "batch_size": BATCH_SIZE,
        "batches": BATCHES,
        "batches_per_shard": BATCHES_PER_SHARD,
        "batches_per_row_group": 2,
        "datasets": dict(inputs),
    })  # fmt: skip


def build_on(config: MixConfig, store: Store) -> None:
    with lying_on(config, store):
        building.build(config)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, inputs: Mapping[str, Any]) -> str:
    return building.build(config_for(tmp_path_factory.mktemp("finished") / "out", inputs)).output


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, inputs: Mapping[str, Any]) -> str:
    """A run that was stopped after two of its shards."""
    with building.start(config_for(tmp_path_factory.mktemp("stopped") / "out", inputs)) as run:
        run.write(2)
        return run.output


def kill(config: MixConfig, folder: Path) -> None:
    """Kill the process of a run when two shards are committed and the third one is put, but not committed."""
    act = partial(build_on, config)
    operations = count_operations(act, LocalStore(folder / "counted"))
    (at,) = (one for one in operations if (one.verb, one.name) == ("create", commits.slot_name(3)))
    by_sigkill()(act, LocalStore(config.output), Death(at, "before"))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, inputs: Mapping[str, Any]) -> str:
    folder = tmp_path_factory.mktemp("killed")
    config = config_for(folder / "out", inputs)
    kill(config, folder)
    return config.output


# The tools


@pytest.fixture(scope="module")
def hugging_face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Hugging Face `datasets`, which looks at the environment when it is imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("huggingface")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        datasets = import_module("datasets")
        patch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield datasets


Place = str | list[str]
"""A folder, or files by name."""


def with_arrow(place: Place) -> tuple[list[Row], list[str]]:
    table = ds.dataset(place, format="parquet").to_table()
    return table.to_pylist(), [str(kind) for kind in table.schema.types]


def with_pandas(place: Place) -> tuple[list[Row], list[str]]:
    frame = pd.read_parquet(place, dtype_backend="pyarrow")
    rows = [
        {str(name): None if value is pd.NA else value for name, value in row.items()}
        for row in frame.to_dict("records")
    ]
    return rows, [str(kind) for kind in frame.dtypes]


def with_polars(place: Place) -> tuple[list[Row], list[str]]:
    frame = pl.scan_parquet(place).collect()
    return frame.to_dicts(), [str(kind) for kind in frame.dtypes]


def with_duckdb(place: Place) -> tuple[list[Row], list[str]]:
    with duckdb.connect() as database:
        found = database.read_parquet(f"{place}/*.parquet" if isinstance(place, str) else place)
        names, types = found.columns, [str(kind) for kind in found.types]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()], types


def with_hugging_face(place: Place, *, streaming: bool) -> tuple[list[Row], list[str]]:
    datasets = import_module("datasets")
    found = (
        datasets.load_dataset(place, split="train", streaming=streaming)
        if isinstance(place, str)
        else datasets.load_dataset("parquet", data_files=place, split="train", streaming=streaming)
    )
    return list(found), [str(kind) for kind in found.features.values()]


LINEAGE_64 = ["string", "int64", "int64"]
ARROW = ["string", "int64", "list<element: int32>", "list<element: list<element: int32>>", "binary"]
ARROW += ["timestamp[us, tz=UTC]", "decimal128(10, 2)", "struct<a: int64, höhe: string>"]
HUGGING_FACE = ["Value('string')", "Value('int64')", "List(Value('int32'))", "List(List(Value('int32')))"]
HUGGING_FACE += ["Value('binary')", "Value('timestamp[us, tz=UTC]')", "Value('decimal128(10, 2)')"]
HUGGING_FACE += ["{'a': Value('int64'), 'höhe': Value('string')}"]
POLARS = ["String", "Int64", "List(Int32)", "List(List(Int32))", "Binary"]
POLARS += ["Datetime(time_unit='us', time_zone='UTC')", "Decimal(precision=10, scale=2)"]
POLARS += ["Struct({'a': Int64, 'höhe': String})", "String", "Int64", "Int64"]
DUCKDB = ["VARCHAR", "BIGINT", "INTEGER[]", "INTEGER[][]", "BLOB", "TIMESTAMP WITH TIME ZONE", "DECIMAL(10,2)"]
DUCKDB += ['STRUCT(a BIGINT, "höhe" VARCHAR)', "VARCHAR", "BIGINT", "BIGINT"]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool, as its users call it."""

    read: Callable[[Place], tuple[list[Row], list[str]]]
    """The rows of a place in the order in which they come, and the columns' types."""
    types: list[str]
    takes_root: bool = False
    """Whether it takes the output itself, and not only the folder of its shards."""


TOOLS = {
    "pyarrow": Tool(with_arrow, ARROW + LINEAGE_64),
    "pandas": Tool(with_pandas, [f"{kind}[pyarrow]" for kind in ARROW + LINEAGE_64]),
    "polars": Tool(with_polars, POLARS),
    "duckdb": Tool(with_duckdb, DUCKDB),
    "datasets": Tool(
        partial(with_hugging_face, streaming=False),
        HUGGING_FACE + [f"Value('{kind}')" for kind in LINEAGE_64],
        takes_root=True,
    ),
    "datasets streaming": Tool(
        partial(with_hugging_face, streaming=True),
        HUGGING_FACE + [f"Value('{kind}')" for kind in LINEAGE_64],
        takes_root=True,
    ),
}
every_tool = pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
pytestmark = pytest.mark.usefixtures("hugging_face")


def folders(output: str, tool: Tool) -> list[str]:
    return [f"{output}/data", *([output] if tool.takes_root else [])]


def committed_files(output: str) -> list[str]:
    """Return the shards that are part of a run, as README.md says: so many as `mixer status` tells."""
    return [f"{output}/{shard_path(shard)}" for shard in range(building.status(output).committed)]


def places(output: str, tool: Tool) -> list[Place]:
    return [*folders(output, tool), committed_files(output)]


# What they read


@every_tool
def test_a_finished_run_is_read_row_by_row_with_its_types(finished: str, tool: Tool) -> None:
    for place in places(finished, tool):
        rows, types = tool.read(place)
        assert types == tool.types
        assert rows == expected_rows()


@every_tool
def test_of_a_run_that_was_stopped_just_the_committed_shards_are_read(stopped: str, tool: Tool) -> None:
    for place in places(stopped, tool):
        rows, types = tool.read(place)
        assert types == tool.types
        assert rows == expected_rows(2)


@pytest.mark.crash
@every_tool
def test_of_a_run_that_was_killed_a_folder_may_hold_one_shard_more_and_names_do_not(killed: str, tool: Tool) -> None:
    assert building.status(killed).committed == 2
    for folder in folders(killed, tool):
        # Whole, and as it will be committed when the run goes on.
        assert tool.read(folder)[0] == expected_rows(3)
    assert tool.read(committed_files(killed))[0] == expected_rows(2)


@every_tool
def test_what_was_read_too_early_is_read_anew_when_the_run_is_finished(
    tmp_path: Path, inputs: Mapping[str, Any], tool: Tool
) -> None:
    config = config_for(tmp_path / "out", inputs)
    with building.start(config) as run:
        run.write(1)
    for shards in (1, SHARDS):
        # All runs here lie in folders of one name, which is all that a cache may know of them.
        for place in folders(config.output, tool):
            assert tool.read(place)[0] == expected_rows(shards)
        building.build(config)


@every_tool
def test_a_fork_is_read_by_the_names_in_its_manifest(tmp_path: Path, finished: str, tool: Tool) -> None:
    fork = building.build(building.fork(finished, 2, str(tmp_path / "fork"))).output
    shards = json.loads(Path(fork, commits.MANIFEST_NAME).read_bytes())["shards"]
    files = [f"{shard.get('output', fork)}/{shard['path']}" for shard in shards]
    assert tool.read(files)[0] == expected_rows()
    assert tool.read(f"{fork}/data")[0] == expected_rows()[2 * SHARD_ROWS :]


@pytest.mark.parametrize("place", ["", "/data"], ids=["output", "data"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streaming"])
def test_nodes_share_all_rows_among_them(
    finished: str, hugging_face: Any, place: str, ranks: int, streaming: bool
) -> None:
    split = import_module("datasets.distributed").split_dataset_by_node
    whole = hugging_face.load_dataset(f"{finished}{place}", split="train", streaming=streaming)
    parts = [list(split(whole, rank=rank, world_size=ranks)) for rank in range(ranks)]
    order = {(row["_dataset"], row["_row"]): place for place, row in enumerate(expected_rows())}
    found = [[order[row["_dataset"], row["_row"]] for row in part] for part in parts]
    for part, rows in zip(found, parts, strict=True):
        assert rows == [expected_rows()[place] for place in part]
    # Whole shards where they come out even; each n-th row else. Of what is loaded, one stretch after the other.
    if streaming:
        even = SHARDS % ranks == 0
        assert found == [
            [at for at in range(len(order)) if (at // SHARD_ROWS if even else at) % ranks == rank]
            for rank in range(ranks)
        ]
    else:
        assert [place for part in found for place in part] == list(range(len(order)))


def test_pandas_without_arrow_types_makes_floats_of_numbers_where_some_are_null(finished: str) -> None:
    frame = pd.read_parquet(f"{finished}/data")
    assert frame["number"].dtype == "float64"
    assert frame["number"][1] == float(2**60)
    assert frame["_row"].dtype == "int64"
    assert frame["text"].tolist()[1] == "web 1 ☃"
    assert [list(tokens) for tokens in frame["tokens"][1:3]] == [[1], [2, 2]]


@pytest.mark.parametrize("tool", ["pyarrow", "pandas", "polars"])
def test_who_takes_any_file_for_parquet_refuses_the_output_itself(finished: str, tool: str) -> None:
    with pytest.raises((pa.ArrowInvalid, pl.exceptions.InvalidOperationError), match=r"README\.md"):
        TOOLS[tool].read(finished)


@pytest.mark.parametrize("tool", ["datasets", "datasets streaming"])
def test_a_run_without_a_shard_is_said_to_have_no_files(tmp_path: Path, inputs: Mapping[str, Any], tool: str) -> None:
    config = config_for(tmp_path / "out", inputs)
    building.start(config).close()
    with pytest.raises(FileNotFoundError, match="doesn't contain any data files"):
        TOOLS[tool].read(config.output)


def test_a_run_of_one_shard_is_read_though_a_json_file_lies_beside_it(
    tmp_path: Path, inputs: Mapping[str, Any]
) -> None:
    config = config_for(tmp_path / "out", inputs).model_copy(update={"batches_per_shard": BATCHES})
    building.build(config)
    for tool in ("datasets", "datasets streaming"):
        assert TOOLS[tool].read(config.output)[0] == expected_rows()
