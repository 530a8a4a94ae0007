"""What the runs of these tests leave at their outputs."""

from __future__ import annotations

from pathlib import Path

SHARDS = 18
"""In the run that the fixture `config` asks for."""


def shard_bytes(output: str) -> dict[str, bytes]:
    """Return the shards at `output`."""
    return {path.name: path.read_bytes() for path in Path(output, "data").iterdir()}
