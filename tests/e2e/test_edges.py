"""Mixes at the edges of what may be asked: huge and tiny weights, very many datasets, tiny batches and datasets."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixer import building, planning
from mixer.building import RunSummary
from mixer.config import config_from
from mixer.core.exhaustion import Phase, resolve
from mixer.errors import NotEnoughDataError
from mixer.verifying import verify


def make(folder: Path, name: str, rows: int) -> str:
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table({"text": [f"{name} {row}" for row in range(rows)]}), path, row_group_size=50)
    return str(path)


def mix(folder: Path, datasets: dict[str, Any], **values: Any) -> tuple[RunSummary, pa.Table]:
    """Build a mix and verify it; return how far it is and its rows."""
    defaults = {"output": str(folder / "out"), "batch_size": 8, "batches_per_shard": 5}
    summary = building.build(config_from({**defaults, **values, "datasets": datasets}))
    assert verify(summary.output).problems == ()
    return summary, pq.ParquetDataset(f"{summary.output}/data").read()


def test_a_weight_of_one_beside_one_of_a_million_million_million(tmp_path: Path) -> None:
    datasets = {
        "huge": {"path": make(tmp_path, "huge", 4000), "weight": 10**18},
        "tiny": {"path": make(tmp_path, "tiny", 5), "weight": 1},
    }
    summary, rows = mix(tmp_path, datasets, batches=500)
    assert summary.state["offsets"] == {"huge": 4000, "tiny": 0}
    owed = summary.state["remainder_carry"]["tiny"]
    assert Fraction(owed, 10**18 + 1) == Fraction(4000, 10**18 + 1)
    assert rows["text"].to_pylist() == [f"huge {row}" for row in range(4000)]


def test_batches_of_one_row(tmp_path: Path) -> None:
    datasets = {
        "web": {"path": make(tmp_path, "web", 60), "weight": 2},
        "code": {"path": make(tmp_path, "code", 30), "weight": 1},
    }
    _, rows = mix(tmp_path, datasets, batch_size=1, batches=90)
    assert rows["_dataset"].to_pylist() == ["web", "code", "web"] * 30
    assert rows["_batch"].to_pylist() == list(range(90))


def test_batches_smaller_than_the_number_of_datasets(tmp_path: Path) -> None:
    path = make(tmp_path, "one", 300)
    datasets = {f"d{number:03}": {"path": path, "weight": number % 3 + 1} for number in range(150)}
    summary, rows = mix(tmp_path, datasets, batch_size=7, batches=300)
    assert rows.num_rows == 2100
    offsets = summary.state["offsets"]
    for number in range(150):
        share = Fraction(2100 * (number % 3 + 1), 300)
        assert offsets[f"d{number:03}"] < share + 1
    assert sum(offsets.values()) == 2100


@pytest.mark.parametrize(("policy", "batches"), [("stop", 0), ("repeat", 4), ("redistribute", 1)])
def test_a_dataset_of_three_rows_with_batches_of_eight(tmp_path: Path, policy: str, batches: int) -> None:
    datasets = {"three": {"path": make(tmp_path, "three", 3), "weight": 1}}
    if not batches:
        with pytest.raises(NotEnoughDataError, match="not one batch of 8 can be filled"):
            mix(tmp_path, datasets, on_exhausted=policy)
        return
    summary, rows = mix(tmp_path, datasets, on_exhausted=policy, **({"batches": 4} if policy == "repeat" else {}))
    assert summary.batches == batches
    expected = [row % 3 for row in range(32)] if policy == "repeat" else [0, 1, 2]
    assert rows["_row"].to_pylist() == expected


def test_one_dataset_under_two_names_is_two_datasets(tmp_path: Path) -> None:
    path = make(tmp_path, "web", 40)
    summary, rows = mix(
        tmp_path, {"a": {"path": path, "weight": 1}, "b": {"path": path, "weight": 1, "shuffle": "block"}}, batches=10
    )
    assert summary.state["offsets"] == {"a": 40, "b": 40}
    for name in ("a", "b"):
        taken = rows.filter(pa.compute.equal(rows["_dataset"], name))
        assert sorted(taken["_row"].to_pylist()) == list(range(40))


def test_a_plan_of_ten_thousand_datasets() -> None:
    names = [f"d{number}" for number in range(10_000)]
    weights = tuple(number % 7 + 1 for number in range(10_000))
    schedule = resolve(names, [Phase(weights, 1000)], [10**6] * 10_000, 20_000, policy="error")
    offsets = schedule.offsets_at(1000)
    assert sum(offsets) == 20_000_000
    total = sum(weights)
    assert all(offset * total < 20_000_000 * weight + total for offset, weight in zip(offsets, weights, strict=True))
    assert sum(schedule.carries_at(777)) == 0


def test_a_run_of_hundreds_of_datasets_is_planned_from_one_footer_each(tmp_path: Path) -> None:
    path = make(tmp_path, "one", 10)
    datasets = {f"d{number}": {"path": path, "weight": 1} for number in range(400)}
    plan = planning.plan(
        config_from({"output": "o", "batch_size": 400, "batches": 10, "batches_per_shard": 5, "datasets": datasets})
    ).plan
    assert plan.state_at(10)["offsets"] == dict.fromkeys(datasets, 10)
