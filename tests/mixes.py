"""Small mixes to try things on: three datasets, four shards of three batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from mixer.config import MixConfig, config_from

ROWS = {"web": 60, "code": 30, "books": 12}
WEIGHTS = {"web": 3, "code": 2, "books": 1}
SHARDS = 4


def make_inputs(folder: Path) -> dict[str, str]:
    """Write the datasets, a folder each, below `folder`; return where each one is."""
    paths = {}
    for name, rows in ROWS.items():
        (folder / name).mkdir(parents=True)
        table = pa.table({"text": [f"{name} {row}" for row in range(rows)], "n": range(rows)})
        pq.write_table(table.slice(0, rows // 3), folder / name / "part-0.parquet")
        pq.write_table(table.slice(rows // 3), folder / name / "part-1.parquet", row_group_size=7)
        paths[name] = str(folder / name)
    return paths


def config_values(folder: Path, **changes: Any) -> dict[str, Any]:
    """Return a config as plain values, with its inputs made; None in `changes` takes a key out."""
    inputs = folder / "inputs"
    paths = {name: str(inputs / name) for name in ROWS} if inputs.exists() else make_inputs(inputs)
    values: dict[str, Any] = {
        "output": str(folder / "out"),
        "batch_size": 4,
        "batches": 12,
        "batches_per_shard": 3,
        "datasets": {name: {"path": paths[name], "weight": WEIGHTS[name]} for name in ROWS},
    }
    return {key: value for key, value in {**values, **changes}.items() if value is not None}


def mix_config(folder: Path, **changes: Any) -> MixConfig:
    """Return a config, with its inputs made."""
    return config_from(config_values(folder, **changes))


def config_file(folder: Path, **changes: Any) -> str:
    """Write a config; return where it is."""
    path = folder / "mix.yaml"
    path.write_text(yaml.safe_dump(config_values(folder, **changes), sort_keys=False))
    return str(path)
