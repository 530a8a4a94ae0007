"""Extensions that die at any of their operations, are killed, or race: the run becomes what an undisturbed one is."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import pytest

from mixer import building
from mixer.config import MixConfig
from mixer.core import commits
from mixer.core.commits import Commit
from mixer.log import CommitLog
from mixer.storage import LocalStore, Store, open_store
from mixer.testing import MOMENTS, WRITES, Choose, Crash, CrashingStore, MemoryStore, by_exit, die_at_every_step, sample
from mixer.verifying import verify
from tests.e2e.runs import Child, Result, at_once, became, lying_on, many_shards, objects, result
from tests.e2e.test_every_step import IN_DELAY_S, commits_are_true
from tests.mixes import mix_config
from tests.profiles import sized

pytestmark = pytest.mark.timeout(sized(short=600, long=3600))

DONE, CHANGED, FENCED = 0, 3, 6
EVERY: Choose = list
EVERY_WRITE = sized(short=sample(10_000, verbs=WRITES), long=EVERY)
SOME_WRITES = sized(short=sample(9, verbs=WRITES), long=EVERY)
"""Which deaths are died in memory."""


@pytest.fixture
def short(tmp_path: Path) -> MixConfig:
    """A run whose last shard is short."""
    return mix_config(tmp_path, batches=10)


@pytest.fixture
def long(tmp_path: Path) -> MixConfig:
    return mix_config(tmp_path, batches=17)


def extend_on(config: MixConfig, store: Store) -> None:
    """Build to a store of one's choice, longer than the run there if it must be."""
    with lying_on(config, store):
        building.build(config, extend=True)


def kinds(store: Store, config: MixConfig) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mixer.building.open_store", lambda url: store)
        _, run = building.existing(config.output)
    return [kind for kind, _ in CommitLog(store, run.genesis).payloads() if kind != "open"]


@pytest.mark.parametrize(
    ("committed", "choose"),
    [(0, SOME_WRITES), (2, SOME_WRITES), (4, SOME_WRITES), (None, EVERY_WRITE)],
    ids=["begun", "stopped", "written", "finished"],
)
def test_a_death_at_every_operation_of_an_extension_changes_nothing(
    short: MixConfig, long: MixConfig, committed: int | None, choose: Choose
) -> None:
    before = MemoryStore()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mixer.building.open_store", lambda url: before)
        with building.start(short) as run:
            run.write(run.plan.shard_count if committed is None else committed)
            if committed is None:
                run.finish()
    there = {name: data for name, data in before.objects.items() if name != commits.MANIFEST_NAME}

    def nothing_is_touched(store: Store) -> None:
        commits_are_true(short, store)
        found = objects(store)
        assert {name: found[name] for name in there if name != commits.CARD_NAME} == {
            name: data for name, data in there.items() if name != commits.CARD_NAME
        }

    steps = die_at_every_step(
        partial(extend_on, long),
        lambda: MemoryStore(before.objects),
        partial(became, long),
        choose=choose,
        left_behind=nothing_is_touched,
    )
    writes = [operation for operation in steps.operations if operation.verb in WRITES]
    assert len(writes) > 10
    assert len(steps.deaths) >= (len(MOMENTS) * len(writes) if committed is None else 9)
    ended = MemoryStore(before.objects)
    extend_on(long, ended)
    assert kinds(ended, long).count("amend") == 1


def test_a_death_at_every_operation_of_a_second_extension_changes_nothing(
    tmp_path: Path, short: MixConfig, long: MixConfig
) -> None:
    """The first one died when it had just been written, so that the second is put on top of it."""
    before = MemoryStore()
    extend_on(short, before)
    longer = mix_config(tmp_path, batches=14)
    with pytest.raises(Crash):
        extend_on(longer, CrashingStore(before, at=dies_after(longer, before, "amend"), moment="after"))
    assert kinds(before, longer)[-1] == "amend"
    die_at_every_step(
        partial(extend_on, long),
        lambda: MemoryStore(before.objects),
        partial(became, long),
        choose=SOME_WRITES,
        left_behind=partial(commits_are_true, short),
    )


def dies_after(config: MixConfig, store: MemoryStore, kind: str) -> int:
    """Return the number of the operation that creates the first slot of a kind."""
    counting = CrashingStore(MemoryStore(store.objects))
    extend_on(config, counting)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mixer.building.open_store", lambda url: counting)
        amended = building.look(config.output).tail.amended
    assert amended is not None
    assert amended.kind == kind
    name = commits.slot_name(amended.number)
    return next(one.number for one in counting.operations if (one.verb, one.name) == ("create", name))


@pytest.mark.crash
def test_a_process_that_ends_at_a_write_of_an_extension_on_disk_changes_nothing(
    tmp_path: Path, short: MixConfig, long: MixConfig
) -> None:
    numbers = iter(range(10_000))

    def finished() -> Store:
        store = LocalStore(tmp_path / f"out-{next(numbers)}")
        extend_on(short, store)
        return store

    steps = die_at_every_step(
        partial(extend_on, long),
        finished,
        partial(became, long),
        die=by_exit(in_delay_s=IN_DELAY_S["disk"]),
        choose=sized(short=sample(6, verbs=WRITES), long=sample(10_000, verbs=WRITES)),
        left_behind=partial(commits_are_true, short),
    )
    assert steps.deaths


def extend_and_die(config: MixConfig, shard: int) -> None:
    def on_commit(commit: Commit) -> None:
        if commit.shard == shard:
            signal.raise_signal(signal.SIGKILL)

    building.build(config, extend=True, on_commit=on_commit)


@pytest.mark.crash
def test_an_extension_that_is_killed_goes_on_without_being_asked_for_again(tmp_path: Path) -> None:
    short = many_shards(tmp_path, str(tmp_path / "out"), shards=24, batches=9)
    long = short.model_copy(update={"batches": 24})
    alone = [config.model_copy(update={"output": str(tmp_path / "alone")}) for config in (short, long)]
    for config in alone:
        building.build(config, extend=True)
    building.build(short)
    for shard in (9, 15):
        child = Child(tmp_path / f"stderr-{shard}", extend_and_die, long, shard)
        assert child.ended() == -signal.SIGKILL, child.said
    building.build(long)
    assert result(long.output) == result(alone[1].output)
    assert verify(long.output).problems == ()


def extended(config: MixConfig) -> None:
    building.build(config, extend=True)


def assert_one_history(output: str, expected: list[Result]) -> None:
    report = verify(output)
    assert (report.problems, report.orphans, report.finished) == ((), (), True)
    assert result(output) in expected


@pytest.mark.crash
@pytest.mark.parametrize("count", [2, 4])
def test_equal_extensions_at_once_end_as_one(tmp_path: Path, count: int) -> None:
    short = many_shards(tmp_path, str(tmp_path / "alone"), shards=16, batches=6)
    long = short.model_copy(update={"batches": 16})
    building.build(short)
    building.build(long, extend=True)
    expected = result(short.output)
    for number in range(2 if count == 2 else 1):
        output = str(tmp_path / f"out-{number}")
        building.build(short.model_copy(update={"output": output}))
        here = long.model_copy(update={"output": output})
        with at_once(tmp_path / f"stderr-{number}", [(extended, here)] * count) as children:
            codes = [child.ended() for child in children]
            assert set(codes) <= {DONE, FENCED}, [child.said for child in children]
            assert DONE in codes, [child.said for child in children]
        assert_one_history(output, [expected])
        assert kinds(open_store(output), here).count("amend") == 1


@pytest.mark.crash
@pytest.mark.s3
def test_equal_extensions_at_once_on_s3_end_as_one(tmp_path: Path, s3_url: str) -> None:
    short = many_shards(tmp_path, str(tmp_path / "alone"), shards=10, batches=4)
    here = [short.model_copy(update={"output": s3_url, "batches": batches}) for batches in (4, 10)]
    building.build(short)
    building.build(here[1].model_copy(update={"output": short.output}), extend=True)
    building.build(here[0])
    with at_once(tmp_path / "stderr", [(extended, here[1])] * 2) as children:
        codes = [child.ended() for child in children]
        assert set(codes) <= {DONE, FENCED}, [child.said for child in children]
        assert DONE in codes, [child.said for child in children]
    assert_one_history(s3_url, [result(short.output)])


@pytest.mark.crash
def test_other_extensions_at_once_end_as_one_or_one_on_top_of_the_other(tmp_path: Path) -> None:
    """The longer one can be put on top of the shorter one, while the shorter one is refused after the longer one."""
    short = many_shards(tmp_path, str(tmp_path / "alone"), shards=20, batches=6)
    lengths = (14, 20)
    for number in range(sized(short=2, long=20)):
        output = str(tmp_path / f"out-{number}")
        building.build(short.model_copy(update={"output": output}))
        both = [short.model_copy(update={"output": output, "batches": batches}) for batches in lengths]
        with at_once(tmp_path / f"stderr-{number}", [(extended, config) for config in both]) as children:
            codes = [child.ended() for child in children]
            assert set(codes) <= {DONE, CHANGED, FENCED}, [child.said for child in children]
            assert DONE in codes, [child.said for child in children]
        report = verify(output)
        assert (report.problems, report.orphans, report.finished) == ((), (), True)
        found = building.status(output)
        # The longer one, unless it was overtaken by the shorter one and stopped.
        assert found.batches == 20 if codes[1] == DONE else found.batches == 14
        assert 1 <= found.extensions <= 2
