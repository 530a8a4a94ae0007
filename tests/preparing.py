"""Mixes of files that are not Parquet, with parts small enough that there are several."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixer.config import MixConfig, config_from
from mixer.formats.stage import RowsStage

WEB_ROWS, CODE_ROWS = 60, 30
_SMALL = partial(RowsStage, part_bytes=600, row_group_bytes=150)


def lines(rows: int, name: str = "web") -> str:
    """Return rows as JSON lines."""
    return "".join(json.dumps({"text": f"{name} {row}", "n": row}) + "\n" for row in range(rows))


def make_inputs(folder: Path) -> None:
    """Write a dataset of JSON lines and one of Parquet."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "web.jsonl").write_text(lines(WEB_ROWS))
    code = {"text": [f"code {row}" for row in range(CODE_ROWS)], "n": list(range(CODE_ROWS))}
    pq.write_table(pa.table(code), folder / "code.parquet", row_group_size=7)


def values(folder: Path, **changes: Any) -> dict[str, Any]:
    """Return a config as plain values, with its inputs made; None in `changes` takes a key out."""
    inputs = folder / "inputs"
    if not inputs.exists():
        make_inputs(inputs)
    found: dict[str, Any] = {
        "output": str(folder / "out"),
        "batch_size": 4,
        "batches": 12,
        "batches_per_shard": 3,
        "datasets": {
            "web": {"path": str(inputs / "web.jsonl"), "weight": 3},
            "code": {"path": str(inputs / "code.parquet"), "weight": 1},
        },
    }
    return {key: value for key, value in {**found, **changes}.items() if value is not None}


def config_of(folder: Path, **changes: Any) -> MixConfig:
    """Return a config, with its inputs made."""
    return config_from(values(folder, **changes))


@contextmanager
def small_parts() -> Iterator[None]:
    """Let files of a few hundred bytes make several parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mixer.formats.stage.RowsStage", _SMALL)
        yield
