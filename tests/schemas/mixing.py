"""Tiny runs, really planned and built, that show what becomes of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixer import planning
from mixer.building import build
from mixer.config import MixConfig, config_from
from mixer.errors import SchemaError

Files = Mapping[str, Sequence[pa.Table]]
"""Of each dataset, its files."""


def config_of(folder: Path, files: Files, datasets: Mapping[str, Any] | None = None, **changes: Any) -> MixConfig:
    """Write files; return a config that takes a row of each dataset into every batch, until one has no more."""
    values: dict[str, Any] = {}
    for name, tables in files.items():
        (folder / name).mkdir(exist_ok=True)
        for number, table in enumerate(tables):
            pq.write_table(table, folder / name / f"{number}.parquet")
        values[name] = {"path": str(folder / name), "weight": 1, **(datasets or {}).get(name, {})}
    given = {"batch_size": len(files), "batches_per_shard": 2, "on_exhausted": "stop", "lineage": False, **changes}
    return config_from({"output": str(folder / "out"), "datasets": values, **given})


def shards_of(config: MixConfig) -> pa.Table:
    """Build the run; return the rows of all shards."""
    build(config)
    files = sorted((Path(config.output) / "data").iterdir())
    return pa.concat_tables([pq.read_table(file, partitioning=None) for file in files])


def rows_of(table: pa.Table, datasets: int, place: int) -> list[dict[str, Any]]:
    """Return the rows that dataset number `place` gave to a mix without lineage."""
    rows: list[dict[str, Any]] = table.to_pylist()[place::datasets]
    return rows


def refusal(config: MixConfig) -> str:
    """Return why no run of `config` can be planned."""
    with pytest.raises(SchemaError) as caught:
        planning.plan(config)
    assert not Path(config.output).exists()
    return str(caught.value)
