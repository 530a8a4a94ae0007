"""A mix of what is not Parquet, from its files to its shards: whenever it dies, it ends in the same bytes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from mixer import building
from mixer.config import MixConfig
from mixer.core import commits
from mixer.preparation.record import FOLDER, PREPARED_NAME
from mixer.storage import LocalStore, Store, open_store
from mixer.testing import WRITES, Choose, MemoryStore, by_sigkill, die_at_every_step, sample
from mixer.verifying import verify
from tests.e2e.runs import at_once, objects, result
from tests.figures import Note
from tests.preparing import config_of, small_parts
from tests.profiles import sized

pytestmark = pytest.mark.timeout(sized(short=600, long=3600))

EVERY: Choose = list


def with_store(store: Store, call: Callable[[], object]) -> None:
    """Do `call` while the output of every run is `store`."""
    with pytest.MonkeyPatch.context() as patch, small_parts():
        for module in ("mixer.building", "mixer.preparing"):
            patch.setattr(f"{module}.open_store", lambda _: store)
        call()


def prepare_on(config: MixConfig, store: Store) -> None:
    with_store(store, partial(building.prepare, config))


def build_on(config: MixConfig, store: Store) -> None:
    with_store(store, partial(building.build, config))


def folders(base: Path) -> Callable[[], Store]:
    """Return a maker of stores in folders that are not there yet."""
    numbers = itertools.count()
    return lambda: LocalStore(base / f"out-{next(numbers)}")


def test_preparing_json_lines_may_die_at_every_operation(tmp_path: Path, figures: Note) -> None:
    config = config_of(tmp_path)
    steps = die_at_every_step(
        partial(prepare_on, config), MemoryStore, objects, choose=sized(short=sample(45), long=EVERY)
    )
    figures("deaths", {"by exception while preparing JSON lines": len(steps.deaths)})
    assert sum(operation.verb in WRITES for operation in steps.operations) >= 8


def became(store: Store) -> object:
    """Return what a run has become, and find nothing wrong with it."""
    report = verify(store.url)
    assert report.problems == ()
    assert all(name.startswith(".mixer/probe/") for name in report.orphans)
    return result(store.url), objects(store, FOLDER)


def copies_come_first(store: Store) -> None:
    """Whatever a death has left: where there is a run, its copies are complete."""
    found = objects(store)
    if commits.RUN_NAME in found:
        assert any(name.startswith(FOLDER) and name.endswith(PREPARED_NAME) for name in found)


def test_a_run_that_prepares_may_die_at_any_operation(tmp_path: Path, figures: Note) -> None:
    config = config_of(tmp_path)
    steps = die_at_every_step(
        partial(build_on, config),
        folders(tmp_path),
        became,
        left_behind=copies_come_first,
        choose=sized(short=sample(24, verbs=WRITES), long=EVERY),
    )
    figures("deaths", {"by exception while preparing and mixing": len(steps.deaths)})


@pytest.mark.crash
def test_a_process_that_prepares_and_mixes_may_be_killed(tmp_path: Path, figures: Note) -> None:
    config = config_of(tmp_path)
    steps = die_at_every_step(
        partial(build_on, config),
        folders(tmp_path),
        became,
        left_behind=copies_come_first,
        die=by_sigkill(in_delay_s=0.008),
        choose=sized(short=sample(6, verbs=WRITES, seed=2), long=sample(10_000, verbs=WRITES)),
    )
    figures("deaths", {"by SIGKILL while preparing and mixing": len(steps.deaths)})


def build_small(config: MixConfig) -> None:
    with small_parts():
        building.build(config)


def prepare_small(config: MixConfig) -> None:
    with small_parts():
        building.prepare(config)


@pytest.mark.crash
def test_processes_that_prepare_the_same_at_once_end_well_and_in_the_same_bytes(tmp_path: Path) -> None:
    config = config_of(tmp_path, prepared=str(tmp_path / "shared"))
    outputs = [str(tmp_path / f"out-{number}") for number in range(2)]
    calls = [(build_small, config.model_copy(update={"output": output})) for output in outputs]
    with at_once(tmp_path / "log", [*calls, (prepare_small, config), (prepare_small, config)]) as children:
        assert [child.ended() for child in children] == [0] * 4
    alone = config.model_copy(update={"output": str(tmp_path / "alone"), "prepared": str(tmp_path / "own")})
    build_small(alone)
    assert objects(open_store(str(tmp_path / "shared"))) == objects(open_store(str(tmp_path / "own")))
    assert [result(output) for output in outputs] == [result(alone.output)] * 2
