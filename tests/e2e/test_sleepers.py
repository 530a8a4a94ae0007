"""A start that sleeps between any two operations, while a newer one with other writer settings finishes the run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mixer import building
from mixer.config import MixConfig
from mixer.errors import FencedError, StoreError
from mixer.storage import ObjectInfo
from mixer.testing import MemoryStore
from mixer.verifying import verify
from tests.mixes import mix_config

VERBS = ("get", "get_range", "put", "create", "replace", "list", "delete", "stat")
SHARD = "data/shard-00000001.parquet"
CODECS = ("zstd", "snappy", "lz4")


class VersionedByContent(MemoryStore):
    """A store whose versions are hashes of the bytes, as S3's mostly are: what comes back has its old version back."""

    def _info(self, name: str) -> ObjectInfo:
        data = self.objects[name]
        return ObjectInfo(name=name, bytes=len(data), version=hashlib.sha256(data).hexdigest())


@contextmanager
def asleep_before(operation: int | None, meanwhile: Callable[[], object]) -> Iterator[list[str]]:
    """Do `meanwhile` before an operation of any store; give the operations that were counted."""
    counted: list[str] = []

    def hooked(verb: str) -> Callable[..., Any]:
        honest = getattr(MemoryStore, verb)

        def call(self: MemoryStore, name: str, *arguments: Any, **options: Any) -> Any:
            counted.append(f"{verb} {name}")
            if len(counted) - 1 == operation:
                meanwhile()
            return honest(self, name, *arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for verb in VERBS:
            patch.setattr(MemoryStore, verb, hooked(verb))
        yield counted


class Scene:
    """A run with one committed shard, and something that no commit names in the second one's place."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.configs = {codec: mix_config(folder, compression=codec) for codec in CODECS}
        self._patch = patch
        self.store = MemoryStore()
        self.shards = {}
        for codec, config in self.configs.items():
            self.begin({})
            building.build(config)
            self.shards[codec] = self.store.objects[SHARD]
        self.begin({})
        building.build(self.configs["zstd"], should_stop=iter([False, True]).__next__)
        assert SHARD not in self.store.objects
        self.there = dict(self.store.objects)

    def begin(self, there: dict[str, bytes]) -> None:
        self.store = VersionedByContent(there)
        self._patch.setattr("mixer.building.open_store", lambda url: self.store)

    def start(self, older: MixConfig, leftover: bytes) -> building.OpenRun:
        self.begin({**self.there, SHARD: leftover})
        return building.start(older, allow_repack=True)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with pytest.MonkeyPatch.context() as patch:
        yield Scene(tmp_path_factory.mktemp("scene"), patch)


@pytest.mark.parametrize("older", ["zstd", "snappy"])
@pytest.mark.parametrize("left_by", ["nobody who finished it", *CODECS])
def test_what_a_newer_start_commits_while_an_older_one_sleeps_stays(scene: Scene, older: str, left_by: str) -> None:
    newer = "snappy" if older == "zstd" else "zstd"
    leftover = scene.shards.get(left_by, b"half a shard")
    fenced = 0

    def meanwhile() -> None:
        assert building.build(scene.configs[newer], allow_repack=True).finished

    with scene.start(scene.configs[older], leftover) as run, asleep_before(None, meanwhile) as operations:
        run.write(2)
    assert f"stat {SHARD}" in operations
    for number, operation in enumerate(operations):
        with scene.start(scene.configs[older], leftover) as run, asleep_before(number, meanwhile):
            try:
                run.write(2)
            except FencedError:
                fenced += 1
            with pytest.raises(FencedError):
                run.write(3)
        report = verify(run.output)
        assert (report.problems, report.orphans) == ((), ()), f"asleep before {operation}"
    assert fenced


@pytest.mark.parametrize("leftover", [b"", b"half a shard", b"PAR1" * 1000])
def test_what_is_no_shard_is_replaced(scene: Scene, leftover: bytes) -> None:
    with scene.start(scene.configs["zstd"], leftover) as run:
        run.write(2)
    assert scene.store.objects[SHARD] == scene.shards["zstd"]


@pytest.mark.parametrize("left_by", CODECS)
def test_a_shard_of_other_settings_is_taken_as_it_is(scene: Scene, left_by: str) -> None:
    with scene.start(scene.configs["zstd"], scene.shards[left_by]) as run:
        run.write(2)
        assert run.last_commit is not None
        assert run.last_commit.bytes == len(scene.shards[left_by])
        run.write(4)
        run.finish()
    assert scene.store.objects[SHARD] == scene.shards[left_by]
    assert verify(run.output).ok


def test_what_vanishes_before_it_is_replaced_is_put_anew(scene: Scene) -> None:
    with scene.start(scene.configs["zstd"], b"half a shard") as run, asleep_before(None, lambda: None) as operations:
        run.write(2)
    looked_at = operations.index(f"stat {SHARD}")
    for operation in (looked_at, operations.index(f"replace {SHARD}")):
        with (
            scene.start(scene.configs["zstd"], b"half a shard") as run,
            asleep_before(operation, lambda: scene.store.objects.pop(SHARD)),
        ):
            run.write(2)
        assert scene.store.objects[SHARD] == scene.shards["zstd"]


def test_what_never_stops_changing_is_given_up_on_and_named(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = 0

    def changed_first(self: MemoryStore, name: str, data: bytes, version: str) -> bool:
        nonlocal changes
        changes += 1
        self.objects[name] = f"not a shard {changes}".encode()
        return False

    monkeypatch.setattr(MemoryStore, "replace", changed_first)
    with (
        scene.start(scene.configs["zstd"], b"half a shard") as run,
        pytest.raises(StoreError, match=rf"{SHARD}: changed 5 times while it was to be replaced; see what else writes"),
    ):
        run.write(2)
    assert changes == 5
