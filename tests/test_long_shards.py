"""Shards that are too long to be held, and too long to be at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from mixer import building
from mixer.core import commits
from mixer.errors import StoreError
from mixer.storage import LocalStore
from mixer.verifying import verify
from tests.mixes import mix_config


def problems(out: Path) -> list[tuple[str, str]]:
    """Return object and problem of everything that is wrong, objects relative to the output."""
    return [(p.object.removeprefix(f"{out}/"), p.problem) for p in verify(str(out)).problems]


class Hurting(LocalStore):
    """A store that hurts some ranges on their way."""

    def __init__(self, root: Path, times: int) -> None:
        super().__init__(root)
        self.times = times
        self.longest = 0

    def get(self, name: str) -> bytes | None:
        assert not name.startswith("data/")
        return super().get(name)

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        data = super().get_range(name, start, stop)
        if not name.startswith("data/"):
            return data
        self.longest = max(self.longest, len(data))
        if self.times > 0 and start == 100:
            self.times -= 1
            return bytes(len(data))
        return data


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_long_shard_is_read_in_ranges_and_once_more_before_it_is_called_damaged(
    out: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    store = Hurting(out, times)
    monkeypatch.setattr("mixer.building.open_store", lambda url: store)
    monkeypatch.setattr("mixer.shard_checking.RANGE_BYTES", 100)
    monkeypatch.setattr("mixer.verifying.READERS", 1)
    found = problems(out)
    assert store.longest < 10_000
    assert [name for name, _ in found] == (["data/shard-00000000.parquet"] if times == 2 else [])


def test_a_long_shard_that_is_damaged_or_another_is_found(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mixer.shard_checking.RANGE_BYTES", 100)
    name = "data/shard-00000002.parquet"
    data = (out / name).read_bytes()
    (out / name).write_bytes(bytes([data[0] ^ 1]) + data[1:])
    (found,) = problems(out)
    assert found[0] == name
    assert "expected sha256" in found[1]
    (out / name).unlink()
    assert problems(out) == [(name, "missing, though the log names it; restore it from a copy")]


def test_a_shard_longer_than_any_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = mix_config(tmp_path)
    monkeypatch.setattr(commits, "SHARD_BYTES_MAX", 100)
    with pytest.raises(StoreError, match=r"shard-00000000.parquet: expected a shard of at most 100 bytes, found"):
        building.build(config)
    assert list((tmp_path / "out").glob("data/*")) == []
