"""Runs of every policy, read back row by row and held to the policies' own words; and any shard of them made alone."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mixer import building, planning
from mixer.config import MixConfig, config_from
from mixer.errors import NotEnoughDataError
from mixer.verifying import verify
from mixer.writing import encoded_shards, open_sources
from tests.core.test_exhaustion import Asked, by_hand

NAMES = ("web", "code", "books")
SIZES = (0, 1, 3, 7, 8, 24, 61)
POLICIES = ("error", "stop", "repeat", "redistribute")

Row = tuple[str, int, int]
"""Dataset, row as stored, epoch."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of each size for each dataset, in row groups of 5."""
    folder = tmp_path_factory.mktemp("inputs")
    for name in NAMES:
        for size in SIZES:
            table = pa.table({"text": [f"{name} {row}" for row in range(size)]}, pa.schema([("text", pa.string())]))
            pq.write_table(table, folder / f"{name}-{size}.parquet", row_group_size=5)
    return folder


@st.composite
def mixes(draw: st.DrawFn) -> tuple[dict[str, Any], Asked, tuple[int, ...]]:
    """Draw a config without its output and inputs, its phases, and the sizes of its datasets."""
    policy = draw(st.sampled_from(POLICIES))
    sizes = tuple(draw(st.lists(st.sampled_from(SIZES), min_size=3, max_size=3)))
    open_end = policy in {"stop", "redistribute"} and draw(st.booleans())
    phases: Asked = []
    for _ in range(draw(st.integers(1, 3))):
        weights = tuple(draw(st.lists(st.integers(0, 5), min_size=3, max_size=3).filter(any)))
        phases.append((weights, draw(st.integers(1, 8))))
    # Each dataset takes part somewhere.
    unused = [not any(weights[place] for weights, _ in phases) for place in range(3)]
    last = tuple(1 if unused[place] else weight for place, weight in enumerate(phases[-1][0]))
    phases[-1] = (last, None if open_end else phases[-1][1])
    values = {
        "batch_size": draw(st.integers(1, 7)),
        "batches_per_shard": draw(st.integers(1, 4)),
        "on_exhausted": policy,
        "seed": draw(st.integers(0, 3)),
        "phases": [
            {"weights": {NAMES[place]: weight for place, weight in enumerate(weights) if weight}}
            | ({} if batches is None else {"batches": batches})
            for weights, batches in phases
        ],
    }
    return values, phases, sizes


def config_of(values: Mapping[str, Any], sizes: tuple[int, ...], inputs: Path, output: Path) -> MixConfig:
    datasets = {
        name: {"path": str(inputs / f"{name}-{size}.parquet"), **({"shuffle": "block"} if name == "code" else {})}
        for name, size in zip(NAMES, sizes, strict=True)
    }
    return config_from({**values, "output": str(output), "datasets": datasets})


def rows_by_hand(config: MixConfig, counts: list[list[int]], sizes: tuple[int, ...]) -> list[Row]:
    """Return the rows of a run, batch by batch and in a batch dataset by dataset, each in its own order."""
    passes = planning.plan(config).plan.passes
    rows: list[Row] = []
    offsets = [0] * len(NAMES)
    for batch in counts:
        for place, items in enumerate(batch):
            for offset in range(offsets[place], offsets[place] + items):
                epoch, position = divmod(offset, sizes[place])
                order = passes[place].order(epoch)
                stored = position if order is None else int(order.rows(position, position + 1)[0])
                rows.append((NAMES[place], stored, epoch))
            offsets[place] += items
    return rows


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(mixes())
@example(({"batch_size": 4, "batches_per_shard": 2, "on_exhausted": "redistribute", "phases": [
    {"weights": {"web": 3, "code": 2, "books": 1}}]}, [((3, 2, 1), None)], (61, 24, 7)))  # fmt: skip
def test_a_run_holds_just_the_rows_that_its_policy_says(
    inputs: Path, tmp_path: Path, mix: tuple[dict[str, Any], Asked, tuple[int, ...]]
) -> None:
    values, phases, sizes = mix
    config = config_of(values, sizes, inputs, tmp_path / uuid.uuid4().hex)
    limits = [None if config.on_exhausted == "repeat" and size else size for size in sizes]
    counts = by_hand(phases, limits, config.batch_size, config.on_exhausted)
    asked = sum(batches or 0 for _, batches in phases)
    if not counts or (config.on_exhausted in {"error", "repeat"} and len(counts) < asked):
        with pytest.raises(NotEnoughDataError):
            building.build(config)
        return
    summary = building.build(config)
    assert (summary.finished, summary.batches) == (True, len(counts))
    made = pq.ParquetDataset(f"{config.output}/data").read()
    expected = rows_by_hand(config, counts, sizes)
    epochs = made["_epoch"].to_pylist() if config.on_exhausted == "repeat" else [0] * len(made)
    assert list(zip(made["_dataset"].to_pylist(), made["_row"].to_pylist(), epochs, strict=True)) == expected
    assert made["text"].to_pylist() == [f"{name} {row}" for name, row, _ in expected]
    batches = [number for number, batch in enumerate(counts) for _ in range(sum(batch))]
    assert made["_batch"].to_pylist() == batches
    report = verify(config.output)
    assert (report.problems, report.orphans) == ((), ())
    assert_any_shard_can_be_made_alone(config)


def assert_any_shard_can_be_made_alone(config: MixConfig) -> None:
    planned = planning.plan(config)
    for index in reversed(range(planned.plan.shard_count)):
        sources = open_sources(planned)
        ((shard, data),) = encoded_shards(planned, sources, range(index, index + 1))
        assert data == (Path(config.output) / shard.path).read_bytes()
        for source in sources.values():
            source.close()
