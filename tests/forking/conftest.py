"""A run, and where a fork of it is to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from mixer.building import build
from tests.mixes import mix_config


@pytest.fixture
def run(tmp_path: Path) -> str:
    """A finished run of four shards of three batches."""
    return build(mix_config(tmp_path)).output


@pytest.fixture
def new(tmp_path: Path) -> str:
    return str(tmp_path / "new")
