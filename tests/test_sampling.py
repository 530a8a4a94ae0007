from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixer import building, sampling
from mixer.config import MixConfig
from mixer.errors import ConfigError, InputError
from mixer.planning import plan
from mixer.sampling import measure, sample_lengths
from tests.mixes import config_values, mix_config


def write(path: Path, table: pa.Table, **options: Any) -> str:
    pq.write_table(table, path, **options)
    return str(path)


def tokens_config(folder: Path, items: dict[str, Any] | None = None, **changes: Any) -> MixConfig:
    """Return a config over rows of many lengths, told by a list, and by a number that the run does not take.

    `items` is what the datasets say beside that; if nothing, the rows of one are shuffled in blocks.
    """
    config_values(folder)
    datasets: dict[str, Any] = {}
    for name, size in {"a": 50, "b": 31}.items():
        lengths = [(row * 7 + size) % 11 for row in range(size)]
        table = pa.table({"ids": [list(range(length)) for length in lengths], "count": pa.array(lengths, pa.int16())})
        path = write(folder / f"{name}.parquet", table, row_group_size=9)
        datasets[name] = {"path": path, "weight": 1, "columns": ["ids"]}
        datasets[name].update(items or {})
    if items is None:
        datasets["b"]["shuffle"] = "block"
    values = {"datasets": datasets, "on_exhausted": "repeat", "batch_size": 6, "batches": 30, **changes}
    return mix_config(folder, **values)


@pytest.mark.parametrize("column", ["ids", "count"])
def test_tokens_that_are_taken_are_those_of_the_rows_that_come_out(tmp_path: Path, column: str) -> None:
    config = tokens_config(tmp_path)
    building.build(config)
    table = pq.read_table(tmp_path / "out/data")
    planned = plan(config)
    taken = planned.plan.schedule.offsets_at(planned.plan.batches)
    lengths = sample_lengths(planned, column)
    for passes, items in zip(planned.plan.passes, taken, strict=True):
        rows = table.filter(pa.compute.equal(table["_dataset"], passes.name))
        found = lengths[passes.name]
        assert found is not None
        assert found.complete
        assert found.taken(passes, items) == sum(map(len, rows["ids"].to_pylist()))


ITEMS: dict[str, dict[str, Any]] = {
    "all rows shuffled": {"shuffle": "full"},
    "batches": {"batches": {"by": "ids", "size": 3, "include_partial": True}},
    "batches, shuffled": {"batches": {"by": "count", "size": 2}, "shuffle": "full"},
}


@pytest.mark.parametrize("column", ["ids", "count"])
@pytest.mark.parametrize("items", ITEMS.values(), ids=ITEMS)
def test_tokens_of_shuffled_rows_and_of_batches_are_counted_as_they_come(
    tmp_path: Path, items: dict[str, Any], column: str
) -> None:
    config = tokens_config(tmp_path, items)
    building.prepare(config)
    building.build(config)
    table = pq.read_table(tmp_path / "out/data")
    planned = plan(config)
    taken = planned.plan.schedule.offsets_at(planned.plan.batches)
    lengths = sample_lengths(planned, column)
    for passes, count in zip(planned.plan.passes, taken, strict=True):
        ids = table.filter(pa.compute.equal(table["_dataset"], passes.name))["ids"]
        inner = pa.compute.list_flatten(ids) if "batches" in items else ids
        found = lengths[passes.name]
        assert found is not None
        assert found.complete
        assert found.taken(passes, count) == sum(map(len, inner.to_pylist()))


def test_a_long_dataset_is_judged_by_its_first_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "SAMPLE_ROWS", 300)
    first, second = pa.table({"n": [2] * 250}), pa.table({"n": [4] * 250})
    paths = [write(tmp_path / "0.parquet", first), write(tmp_path / "1.parquet", second)]
    third = tmp_path / "2.parquet"
    write(third, first)
    config = mix_config(tmp_path, datasets={"d": {"path": [*paths, str(third)], "weight": 1}})
    planned = plan(config)
    third.unlink()  # not looked at
    found = sample_lengths(planned, "n")["d"]
    assert found is not None
    assert (len(found.tokens), found.rows, found.complete) == (300, 750, False)
    assert found.mean == pytest.approx((250 * 2 + 50 * 4) / 300)
    assert found.taken(planned.plan.passes[0], 600) == 1400


def test_a_column_may_have_another_name_in_the_files_and_be_missing_in_some(tmp_path: Path) -> None:
    datasets = {
        "a": {
            "path": write(tmp_path / "a.parquet", pa.table({"x": [1, None, 3] * 4})),
            "weight": 1,
            "columns": {"x": "n"},
        },
        "b": {"path": write(tmp_path / "b.parquet", pa.table({"y": [1] * 12})), "weight": 1, "columns": {"y": "n"}},
        "c": {"path": write(tmp_path / "c.parquet", pa.table({"z": [1] * 12})), "weight": 1},
    }
    planned = plan(mix_config(tmp_path, datasets=datasets, missing="null", batches=1))
    found = sample_lengths(planned, "n")
    assert found["a"] is not None
    assert found["a"].tokens.tolist() == [1, 0, 3] * 4
    assert found["b"] is not None
    assert found["c"] is None


@pytest.mark.parametrize(
    ("values", "error", "match"),
    [
        (pa.array(["a"] * 12), ConfigError, "column 'n' of dataset 'd' is string; expected whole numbers, or a list"),
        (pa.array([-1] * 12), InputError, "dataset 'd' holds negative numbers"),
        (pa.array([2**64 - 1] * 12, pa.uint64()), InputError, "column 'n' of dataset 'd'"),
    ],
)
def test_a_column_that_tells_no_lengths_is_refused(
    tmp_path: Path, values: pa.Array, error: type[Exception], match: str
) -> None:
    path = write(tmp_path / "d.parquet", pa.table({"n": values}))
    planned = plan(mix_config(tmp_path, datasets={"d": {"path": path, "weight": 1}}, batches=1))
    with pytest.raises(error, match=match):
        sample_lengths(planned, "n")
    with pytest.raises(ConfigError, match="no dataset has a column 'm'"):
        sample_lengths(planned, "m")


def test_measuring_mixes_the_first_rows_and_writes_nothing(tmp_path: Path) -> None:
    config = mix_config(tmp_path, batches_per_row_group=2)
    pace = measure(plan(config), seconds=0)
    assert (pace.rows, (tmp_path / "out").exists()) == (8, False)
    whole = measure(plan(config), seconds=60)
    assert whole.rows == 48
    assert whole.bytes > pace.bytes
    assert whole.seconds_for(96) == pytest.approx(2 * whole.seconds)
    assert np.isclose(whole.rows_per_second * whole.seconds, 48)
