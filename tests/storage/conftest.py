from __future__ import annotations

from pathlib import Path

import pytest

from mixer.storage import Store, open_store
from mixer.testing import MemoryStore


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty place in each kind of store that a process of its own can open."""
    if request.param == "local":
        return str(tmp_path / "store")
    url: str = request.getfixturevalue("s3_url")
    return url


@pytest.fixture(params=["local", "memory", pytest.param("s3", marks=pytest.mark.s3)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store of each kind."""
    if request.param == "memory":
        return MemoryStore()
    return open_store(request.getfixturevalue("s3_url") if request.param == "s3" else str(tmp_path / "store"))
