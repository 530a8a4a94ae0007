"""Types that some library gives a name: what a mix has of them does not depend on what the process has imported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mixer
from mixer import building, planning
from mixer.config import MixConfig, config_from
from mixer.formats.arrow_plain import plain_type, plain_values
from mixer.schemas import merge
from tests.formats.making import Rows, read
from tests.schemas.mixing import shards_of


class Lengths(pa.ExtensionType):  # type: ignore[misc] # pyarrow has no types
    """A type as `datasets` has one for arrays of two dimensions: it is known once the library is imported."""

    def __init__(self, storage: pa.DataType = pa.list_(pa.int32())) -> None:  # noqa: B008 -- a value that is frozen
        super().__init__(storage, "tests.lengths")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Self:
        return cls(storage_type)


@contextmanager
def known() -> Iterator[None]:
    """Let Arrow know the type for a while."""
    pa.register_extension_type(Lengths())
    try:
        yield
    finally:
        pa.unregister_extension_type("tests.lengths")


def tables() -> tuple[pa.Table, pa.Table]:
    """Return columns of the type, and the same as they are stored."""
    stored = pa.array([[1, 2], None, [], [3]], pa.list_(pa.int32()))
    named = pa.ExtensionArray.from_storage(Lengths(), stored)
    return tuple(
        pa.table({
            "top": array,
            "list": pa.ListArray.from_arrays([0, 1, 1, 3, 4], array),
            "struct": pa.StructArray.from_arrays([array], ["in"]),
        })
        for array in (named, stored)
    )  # fmt: skip


def written(path: Path, table: pa.Table) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
        return
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def config_of(folder: Path, name: str) -> MixConfig:
    datasets = {"d": {"path": str(folder / name), "weight": 1}}
    sizes = {"batch_size": 2, "batches": 2, "batches_per_shard": 1}
    return config_from({"output": str(folder / "out" / name), "datasets": datasets, "lineage": False, **sizes})


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("how", [nullcontext, known], ids=["unknown", "known"])
def test_a_named_type_is_mixed_as_what_is_stored_whether_it_is_known_or_not(
    tmp_path: Path, kind: str, how: Callable[[], AbstractContextManager[None]]
) -> None:
    named, stored = tables()
    written(tmp_path / f"named.{kind}", named)
    written(tmp_path / f"stored.{kind}", stored)
    with how():
        mixed = [mix_of(config_of(tmp_path, f"{name}.{kind}")) for name in ("named", "stored")]
    assert mixed[0].schema.equals(mixed[1].schema, check_metadata=True)
    assert mixed[0].to_pylist() == mixed[1].to_pylist() == stored.to_pylist()


def mix_of(config: MixConfig) -> pa.Table:
    mixer.prepare(config)
    return shards_of(config)


def test_a_prepared_copy_is_the_same_whether_the_type_is_known_or_not(tmp_path: Path) -> None:
    named, _ = tables()
    written(tmp_path / "named.arrow", named)
    unknown = read(str(tmp_path / "named.arrow"))
    with known():
        found = read(str(tmp_path / "named.arrow"))
    assert found.schema.equals(unknown.schema, check_metadata=True)
    assert found.rows == unknown.rows == named.to_pylist()
    assert pq_bytes(found) == pq_bytes(unknown)


def test_what_is_stored_may_need_another_form_itself() -> None:
    views = pa.array([["a"], [], ["b", "a"]], pa.list_view(pa.string()))
    array = pa.ListArray.from_arrays([0, 1, 3], pa.ExtensionArray.from_storage(Lengths(views.type), views))
    kind = plain_type(array.type)
    assert kind.equals(pa.list_(pa.field("element", pa.list_(pa.field("element", pa.string())))))
    assert plain_values(array, kind).to_pylist() == [[["a"]], [[], ["b", "a"]]]


def pq_bytes(rows: Rows) -> bytes:
    """Return what a Parquet file of a copy holds."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema) as writer:
        for part in rows.parts:
            for group in part.row_groups:
                writer.write_table(group)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def test_a_named_type_is_no_change_of_type() -> None:
    named, stored = tables()
    merged = merge({"d": [("a", named.schema), ("b", stored.schema)]})
    assert merged.promotions == ()
    assert merged.schema == merge({"d": [("b", stored.schema)]}).schema


def test_a_plan_is_the_same_once_the_type_is_known(tmp_path: Path) -> None:
    named, _ = tables()
    written(tmp_path / "named.parquet", named)
    config = config_of(tmp_path, "named.parquet")
    run = planning.plan(config).run
    with known():
        assert planning.plan(config).run == run
        building.build(config)
