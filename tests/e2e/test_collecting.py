"""Collecting garbage at any moment harms nobody: neither a run, nor one that starts, sleeps or races with another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from mixer import building
from mixer.collecting import Garbage, Item, gc
from mixer.config import MixConfig
from mixer.core import commits
from mixer.core.plan import shard_path
from mixer.errors import ChangedError, CorruptionError, FencedError, OutputError, StoreError
from mixer.storage import ObjectInfo
from mixer.storage.urls import PROBE_FOLDER
from mixer.testing import MemoryStore
from mixer.verifying import verify
from tests.e2e.runs import at_once, many_shards, result, unbroken
from tests.garbage import Act, Use, dead, probe
from tests.mixes import SHARDS, mix_config

BEYOND = {probe(name): b"1" for name in "abc"}
"""What may go when a run is finished."""


@pytest.fixture
def config(tmp_path: Path) -> MixConfig:
    return mix_config(tmp_path)


def what_counts(store: MemoryStore, use: Use, config: MixConfig) -> dict[str, bytes]:
    """Return what a run has become, without what differs from start to start; all must be well."""
    use(store)
    report = verify(config.output)
    assert report.problems == ()
    assert report.finished
    ignored = (commits.LOG_PREFIX, *BEYOND)
    return {name: data for name, data in store.objects.items() if not name.startswith(ignored)}


class Meddled(MemoryStore):
    """A store at whose every operation, or at a chosen one, somebody else does something first."""

    def __init__(self, act: Act, there: Mapping[str, bytes] | None = None, *, at: int | None = None) -> None:
        super().__init__(there)
        self._act = act
        self._at = at
        self._acting = threading.local()
        self._count_lock = threading.Lock()
        self.verbs: list[str] = []

    @property
    def count(self) -> int:
        """How many operations there were, without those of the meddler."""
        return len(self.verbs)

    def _meddle(self, verb: str) -> None:
        if getattr(self._acting, "now", False):
            return
        with self._count_lock:
            number = len(self.verbs)
            self.verbs.append(verb)
        if self._at not in {None, number}:
            return
        self._acting.now = True
        try:
            self._act()
        finally:
            self._acting.now = False

    def get(self, name: str) -> bytes | None:
        self._meddle("get")
        return super().get(name)

    def put(self, name: str, data: bytes) -> None:
        self._meddle("put")
        super().put(name, data)

    def create(self, name: str, data: bytes) -> bool:
        self._meddle("create")
        return super().create(name, data)

    def list(self, prefix: str, *, after: str = "") -> list[ObjectInfo]:
        self._meddle("list")
        return super().list(prefix, after=after)

    def delete(self, name: str) -> None:
        self._meddle("delete")
        super().delete(name)

    def stat(self, name: str) -> ObjectInfo | None:
        self._meddle("stat")
        return super().stat(name)


def collect(config: MixConfig, seen: list[Garbage]) -> Act:
    """Return what collects garbage in an output, if there is a run."""

    def act() -> None:
        with suppress(OutputError):
            seen.append(gc(config.output, delete=True))

    return act


@pytest.mark.parametrize("died_with", [None, 0, 2, SHARDS - 1])
def test_collecting_before_every_operation_of_a_run_changes_nothing(
    config: MixConfig, whole: dict[str, bytes], use: Use, died_with: int | None
) -> None:
    seen: list[Garbage] = []
    store = Meddled(collect(config, seen), {} if died_with is None else dead(whole, died_with))
    expected = what_counts(MemoryStore(whole), use, config)
    use(store)
    building.build(config)
    assert what_counts(store, use, config) == expected
    assert len(seen) > 20
    assert sum(len(garbage.deleted) for garbage in seen) == (died_with is not None)
    assert any(garbage.kept for garbage in seen)


@pytest.mark.parametrize("shards", [1, SHARDS], ids=["dead", "finished"])
def test_a_run_at_any_operation_of_collecting_is_not_harmed(
    config: MixConfig, whole: dict[str, bytes], use: Use, shards: int
) -> None:
    """It is started while the list of what may go is made, or worked off."""
    expected = what_counts(MemoryStore(whole), use, config)
    there = {**(whole if shards == SHARDS else dead(whole, shards)), **BEYOND}
    at, meddled = 0, True
    while meddled:
        store = Meddled(lambda: building.build(config), there, at=at)
        use(store)
        gc(config.output, delete=True)
        meddled = store.count > at
        if not meddled:
            building.build(config)
        assert what_counts(store, use, config) == expected, f"at operation {at}"
        if shards == SHARDS:
            assert not BEYOND.keys() & store.objects.keys(), f"at operation {at}"
        at += 1
    assert at > 5 * (1 + len(BEYOND) * (shards == SHARDS))


@contextmanager
def fenced_or_done() -> Iterator[None]:
    """Let a run end as one may that another has overtaken."""
    try:
        yield
    except FencedError:
        return


@pytest.mark.parametrize("shards", [1, SHARDS], ids=["begins", "finishes"])
def test_two_starts_that_race_are_not_harmed_by_collecting_between_them(
    config: MixConfig, whole: dict[str, bytes], use: Use, shards: int
) -> None:
    """At each operation of one start, its probe too, another comes in, and what may go then is deleted."""
    expected = what_counts(MemoryStore(whole), use, config)

    def rival() -> None:
        with building.start(config) as run:
            run.write(max(shards, run.committed))
            if run.committed == SHARDS:
                run.finish()
        deleted.extend(gc(config.output, delete=True).deleted)

    at, meddled = 0, True
    collected = 0
    while meddled:
        deleted: list[Item] = []
        store = Meddled(rival, at=at)
        use(store)
        with fenced_or_done():
            building.build(config)
        collected += len(deleted)
        assert all(item.name.startswith(PROBE_FOLDER) for item in deleted)
        meddled = store.count > at
        building.build(config)
        assert what_counts(store, use, config) == expected, f"at operation {at}"
        at += 1
    assert at > 20
    # The first start's probe while it was under way, but only where the run was finished meanwhile.
    assert (collected >= 2) == (shards == SHARDS)


def test_another_run_in_the_place_of_the_old_one_is_not_touched(
    config: MixConfig, whole: dict[str, bytes], use: Use
) -> None:
    """Somebody empties the output by hand and begins another run, while the list is being worked off."""
    other = config.model_copy(update={"batch_size": 2, "batches": 36})
    refused: list[type[Exception]] = []

    def collect_while_it_is_replaced(at: int) -> Meddled:
        def replace() -> None:
            store.objects.clear()
            with building.start(other) as run:
                run.write(SHARDS + 2)

        store = Meddled(replace, {**whole, **BEYOND}, at=at)
        use(store)
        try:
            gc(config.output, delete=True)
        except (ChangedError, CorruptionError, StoreError) as error:
            refused.append(type(error))
        return store

    for at, verb in enumerate(collect_while_it_is_replaced(-1).verbs):
        if verb == "delete":
            # Between the last look and the deletion: for this no store has a remedy.
            continue
        store = collect_while_it_is_replaced(at)
        assert shard_path(SHARDS) in store.objects, f"at operation {at}"
        assert verify(config.output).ok, f"at operation {at}"
    assert len(refused) > 3
    assert ChangedError in refused


def collect_for_ever(config: MixConfig) -> None:
    """Collect until the run is finished; this process is a child of a test."""
    while True:
        try:
            if gc(config.output, delete=True).finished:
                return
        except OutputError:
            continue


@pytest.mark.crash
def test_processes_that_run_and_processes_that_collect_end_as_one_run(tmp_path: Path) -> None:
    for number in range(3):
        config = many_shards(tmp_path, str(tmp_path / f"out-{number}"), shards=16)
        expected = unbroken(config, tmp_path / f"unbroken-{number}")
        calls: list[tuple[Callable[..., object], object]] = [(building.build, config)] * 2 + [
            (collect_for_ever, config)
        ]
        with at_once(tmp_path / f"log-{number}", calls) as children:
            codes = [child.ended() for child in children]
            assert sorted(codes) in ([0, 0, 0], [0, 0, 6]), [child.said for child in children]
        assert result(config.output) == expected
        report = verify(config.output)
        assert (report.problems, report.orphans) == ((), ())
