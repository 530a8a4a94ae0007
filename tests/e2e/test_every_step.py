"""A run that dies at any one of its operations on the store becomes, when it is run again, what an unbroken run is."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from mixer import building
from mixer.config import MixConfig
from mixer.core import commits
from mixer.storage import LocalStore, Store, open_store
from mixer.testing import (
    MOMENTS,
    WRITES,
    Choose,
    Crash,
    CrashingStore,
    MemoryStore,
    Steps,
    by_exit,
    by_sigkill,
    count_operations,
    die_at_every_step,
    sample,
)
from tests.e2e.runs import Result, assert_commits_are_true, became, lying_on, objects
from tests.figures import Note
from tests.mixes import SHARDS, mix_config
from tests.profiles import sized

pytestmark = pytest.mark.timeout(sized(short=600, long=3600))

SHARD_NAMES = [f"shard-{shard:08d}.parquet" for shard in range(SHARDS)]
EVERY: Choose = list
EVERY_WRITE = sample(10_000, verbs=WRITES)
DEATHS = {
    ("by exit", "disk"): sized(short=sample(15, verbs=WRITES), long=EVERY),
    ("by exit", "s3"): sized(short=sample(6, verbs=WRITES), long=EVERY),
    ("by SIGKILL", "disk"): sized(short=sample(6, verbs=WRITES), long=EVERY_WRITE),
    ("by SIGKILL", "s3"): sized(short=sample(3, verbs=WRITES, seed=1), long=EVERY_WRITE),
}
"""Which deaths real processes die; in memory every one is played."""
IN_DELAY_S = {"disk": 0.008, "s3": 0.01}
"""About what a write takes there: deaths in the middle of it fall anywhere."""


@pytest.fixture
def config(tmp_path: Path) -> MixConfig:
    return mix_config(tmp_path)


def build_on(config: MixConfig, store: Store) -> None:
    """Build to a store of one's choice."""
    with lying_on(config, store):
        building.build(config)


def became_with_files(config: MixConfig, store: Store) -> Result:
    """Return what the run on `store` has become, and find nothing wrong with it, nor with the folder it is in."""
    found = became(config, store)
    if isinstance(store, LocalStore):
        # Not through the store, which hides what is half written.
        assert sorted(path.name for path in (store.root / "data").iterdir()) == SHARD_NAMES
    return found


def commits_are_true(config: MixConfig, store: Store) -> None:
    """Whatever a death has left: each commit names a shard that is there and whole."""
    with lying_on(config, store):
        if store.get(commits.RUN_NAME) is None:
            assert store.list(commits.LOG_PREFIX) == []
            return
        _, run = building.existing(config.output)
    assert_commits_are_true(store, run)


def die_everywhere(config: MixConfig, new_store: Callable[[], Store], **how: object) -> Steps:
    steps = die_at_every_step(
        partial(build_on, config),
        new_store,
        partial(became_with_files, config),
        left_behind=partial(commits_are_true, config),
        **how,  # type: ignore[arg-type]  # passed on as it came
    )
    writes = [operation.verb for operation in steps.operations if operation.verb in WRITES]
    assert len(writes) >= 2 * SHARDS + 4
    return steps


def folders(base: Path) -> Callable[[], Store]:
    """Return a maker of stores in folders that are not there yet."""
    numbers = itertools.count()
    return lambda: LocalStore(base / f"out-{next(numbers)}")


def prefixes(base: str) -> Callable[[], Store]:
    """Return a maker of stores on S3 that are empty."""
    numbers = itertools.count()
    return lambda: open_store(f"{base}/{next(numbers)}")


def counts(steps: Steps, how: str) -> dict[str, int]:
    """Return how many deaths there were, by their moment."""
    return dict(Counter(f"{how} {death.moment} an operation" for death in steps.deaths))


def test_a_death_at_every_operation_changes_nothing(config: MixConfig, figures: Note) -> None:
    steps = die_everywhere(config, MemoryStore)
    figures("deaths", counts(steps, "by exception in memory"))
    assert len(steps.deaths) == len(MOMENTS) * len(steps.operations)


def died_at(config: MixConfig, name: str) -> MemoryStore:
    """Return what a run leaves that died before it created `name`."""
    store = MemoryStore()
    operations = count_operations(partial(build_on, config), MemoryStore())
    at = next(o.number for o in operations if o.verb == "create" and o.name == name)
    with pytest.raises(Crash):
        build_on(config, CrashingStore(store, at=at, moment="before"))
    return store


def test_a_second_death_while_a_dead_run_is_resumed_changes_nothing(config: MixConfig) -> None:
    dead = died_at(config, commits.slot_name(2))
    steps = die_at_every_step(
        partial(build_on, config),
        lambda: MemoryStore(dead.objects),
        partial(became_with_files, config),
        left_behind=partial(commits_are_true, config),
    )
    resumed = died_at(config, commits.slot_name(2))
    build_on(config, resumed)
    unbroken = MemoryStore()
    build_on(config, unbroken)
    assert became_with_files(config, resumed) == became_with_files(config, unbroken)
    assert len(steps.deaths) == len(MOMENTS) * len(steps.operations)


def test_a_finished_run_that_dies_while_it_is_run_again_is_unchanged(config: MixConfig) -> None:
    store = MemoryStore()
    build_on(config, store)
    before = objects(store)
    for operation in count_operations(partial(build_on, config), store):
        with pytest.raises(Crash):
            build_on(config, CrashingStore(store, at=operation.number, moment="in"))
        assert objects(store) == before


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.s3)])
def new_store(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[], Store]:
    """A maker of empty stores on a disk or on S3."""
    return folders(tmp_path) if request.param == "disk" else prefixes(request.getfixturevalue("s3_url"))


@pytest.mark.crash
@pytest.mark.parametrize("way", ["by exit", "by SIGKILL"])
def test_a_process_that_dies_at_an_operation_changes_nothing(
    config: MixConfig, new_store: Callable[[], Store], way: str, figures: Note
) -> None:
    where = "disk" if isinstance(new_store(), LocalStore) else "s3"
    die = {"by exit": by_exit, "by SIGKILL": by_sigkill}[way](in_delay_s=IN_DELAY_S[where])
    steps = die_everywhere(config, new_store, die=die, choose=DEATHS[way, where])
    figures("deaths", counts(steps, f"{way} on {where}"))
