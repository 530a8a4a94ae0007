"""A run that dies at any one of its operations on the store becomes, when it is run again, what an unbroken run is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import get_args

import pytest

from mixer import building
from mixer.config import MixConfig
from mixer.storage import LocalStore, Store
from mixer.testing import Crash, CrashingStore, MemoryStore, Moment, Operation
from mixer.verifying import verify
from tests.e2e.runs import Child, Result, objects, result
from tests.mixes import SHARDS, mix_config

MOMENTS: tuple[Moment, ...] = get_args(Moment)
DIED = 9

Use = Callable[[Store], None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Make every output a given store."""
    return lambda store: monkeypatch.setattr("mixer.building.open_store", lambda url: store)


@pytest.fixture
def config(tmp_path: Path) -> MixConfig:
    return mix_config(tmp_path)


def what_is_in(store: Store, use: Use, output: str) -> Result:
    use(store)
    report = verify(output)
    assert report.problems == ()
    assert all(name.startswith(".mixer/probe/") for name in report.orphans)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.e2e.runs.open_store", lambda url: store)
        return result(output)


def counted(config: MixConfig, use: Use) -> tuple[list[Operation], Result]:
    """Return the operations of an unbroken run, and what it becomes."""
    store = CrashingStore(MemoryStore())
    use(store)
    building.build(config)
    operations = list(store.operations)
    return operations, what_is_in(store, use, config.output)


def die_at_each(
    operations: list[Operation], there: Mapping[str, bytes], config: MixConfig, use: Use, expected: Result
) -> None:
    """Build over what is `there`, die before, in or after each operation, build again, and look what became of it."""
    for operation in operations:
        for moment in MOMENTS:
            store = MemoryStore(there)
            use(CrashingStore(store, at=operation.number, moment=moment))
            with pytest.raises(Crash):
                building.build(config)
            use(store)
            building.build(config)
            assert what_is_in(store, use, config.output) == expected, f"died {moment} operation {operation}"


def test_a_death_at_every_operation_changes_nothing(config: MixConfig, use: Use) -> None:
    operations, expected = counted(config, use)
    assert sum(operation.verb == "create" for operation in operations) >= 2 * SHARDS + 4
    die_at_each(operations, {}, config, use, expected)


def test_a_second_death_while_a_dead_run_is_resumed_changes_nothing(config: MixConfig, use: Use) -> None:
    operations, expected = counted(config, use)
    first = next(o.number for o in operations if o.verb == "create" and o.name.endswith("000000000002.json"))
    dead = MemoryStore()
    use(CrashingStore(dead, at=first, moment="before"))
    with pytest.raises(Crash):
        building.build(config)
    resumed = CrashingStore(MemoryStore(dead.objects))
    use(resumed)
    building.build(config)
    die_at_each(list(resumed.operations), dead.objects, config, use, expected)


def test_a_finished_run_that_dies_while_it_is_run_again_is_unchanged(config: MixConfig, use: Use) -> None:
    store = MemoryStore()
    use(store)
    building.build(config)
    before = objects(store)
    again = CrashingStore(store)
    use(again)
    building.build(config)
    for operation in list(again.operations):
        use(CrashingStore(store, at=operation.number, moment="in"))
        with pytest.raises(Crash):
            building.build(config)
        assert objects(store) == before


def die_at(config: MixConfig, at: int, moment: Moment) -> None:
    """Build, and end this process for good at an operation."""

    def dying(url: str) -> Store:
        return CrashingStore(LocalStore(url), at=at, moment=moment, crash=partial(os._exit, DIED), in_delay_s=0.0003)

    pytest.MonkeyPatch().setattr("mixer.building.open_store", dying)
    building.build(config)


@pytest.mark.crash
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_process_that_ends_at_an_operation_on_disk_changes_nothing(
    tmp_path: Path, config: MixConfig, use: Use, moment: Moment
) -> None:
    operations, expected = counted(config, use)
    writes = [operation for operation in operations if operation.verb in {"create", "put"}]
    for operation in writes[MOMENTS.index(moment) :: 3]:
        output = tmp_path / f"out-{operation.number}"
        here = config.model_copy(update={"output": str(output)})
        child = Child(tmp_path / "stderr", die_at, here, operation.number, moment)
        assert child.ended() == DIED, child.said
        store = LocalStore(output)
        use(store)
        building.build(here)
        assert what_is_in(store, use, here.output) == expected, f"died {moment} operation {operation}"
        shards = [f"shard-{shard:08d}.parquet" for shard in range(SHARDS)]
        assert sorted(path.name for path in (output / "data").iterdir()) == shards
