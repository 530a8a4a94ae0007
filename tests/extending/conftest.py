"""Outputs in memory, where a run takes no time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mixer.testing import MemoryStore
from tests.extending.shared import STORES


@pytest.fixture(autouse=True, scope="module")
def _in_memory() -> Iterator[None]:
    def opened(url: str) -> MemoryStore:
        return STORES.setdefault(url, MemoryStore())

    with pytest.MonkeyPatch.context() as patch:
        for module in ("building", "previewing"):
            patch.setattr(f"mixer.{module}.open_store", opened)
        yield
    STORES.clear()
