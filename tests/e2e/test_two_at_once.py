"""Several starts of a run at once: one finishes it, the others leave it to that one, and nothing is harmed."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from mixer import building
from mixer.config import MixConfig
from mixer.core import commits
from mixer.core.commits import Commit
from mixer.errors import FencedError
from mixer.storage import LocalStore, open_store
from mixer.verifying import verify
from tests.e2e.runs import DEADLINE_S, Child, Result, at_once, many_shards, objects, result, unbroken
from tests.profiles import sized

pytestmark = pytest.mark.crash

SHARDS = 24
DONE, CHANGED, FENCED = 0, 3, 6


@pytest.fixture
def config(tmp_path: Path) -> MixConfig:
    return many_shards(tmp_path, str(tmp_path / "out"), shards=SHARDS)


@pytest.fixture
def expected(config: MixConfig, tmp_path: Path) -> Result:
    return unbroken(config, tmp_path / "unbroken")


def start_at_once(configs: list[MixConfig], log: Path) -> list[int]:
    """Build `configs` in a process each, all begun together; return their exit codes."""
    with at_once(log, [(building.build, config) for config in configs]) as children:
        codes = [child.ended() for child in children]
        assert set(codes) <= {DONE, CHANGED, FENCED}, [child.said for child in children]
        assert DONE in codes, [child.said for child in children]
        return codes


def assert_untouched(output: str, expected: Result) -> None:
    found = result(output)
    assert found.head == expected.head
    assert found == expected
    report = verify(output)
    assert (report.problems, report.orphans) == ((), ())


@pytest.mark.parametrize("count", [2, 3, 8])
def test_starts_at_once_on_disk_end_as_one_run(tmp_path: Path, config: MixConfig, expected: Result, count: int) -> None:
    for number in range(8 if count == 2 else 1):
        here = config.model_copy(update={"output": str(tmp_path / f"out-{number}")})
        codes = start_at_once([here] * count, tmp_path / f"stderr-{number}")
        assert CHANGED not in codes
        assert_untouched(here.output, expected)


@pytest.mark.s3
@pytest.mark.parametrize("count", [2, 3, 8])
def test_starts_at_once_on_s3_end_as_one_run(
    tmp_path: Path, config: MixConfig, expected: Result, s3_url: str, count: int
) -> None:
    for number in range(sized(short=1, long=10)):
        output = f"{s3_url}/{number}"
        codes = start_at_once([config.model_copy(update={"output": output})] * count, tmp_path / f"stderr-{number}")
        assert CHANGED not in codes
        assert_untouched(output, expected)


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.s3)])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Where outputs can lie."""
    return str(tmp_path) if request.param == "disk" else str(request.getfixturevalue("s3_url"))


@pytest.mark.parametrize("starts", [[0, 1], [0, 0, 1]], ids=["one of each", "two and one"])
def test_of_two_definitions_at_once_one_wins(
    tmp_path: Path, config: MixConfig, expected: Result, place: str, starts: list[int]
) -> None:
    shorter = config.model_copy(update={"batches": SHARDS - 5})
    results = [expected, unbroken(shorter, tmp_path / "shorter")]
    for number in range(sized(short=1 if place.startswith("s3:") else 3, long=20)):
        output = f"{place}/out-{number}"
        definitions = [(config, shorter)[start].model_copy(update={"output": output}) for start in starts]
        codes = start_at_once(definitions, tmp_path / f"stderr-{number}")
        [winner] = {start for start, code in zip(starts, codes, strict=True) if code == DONE}
        # Of the winner's definition another start may be fenced off, or find the run finished; the others may begin
        # before there is a run, and then they are fenced off as well.
        assert all(code in {CHANGED, FENCED} for start, code in zip(starts, codes, strict=True) if start != winner)
        assert all(code in {DONE, FENCED} for start, code in zip(starts, codes, strict=True) if start == winner)
        assert_untouched(output, results[winner])


def stop_at(config: MixConfig, shard: int) -> None:
    """Build, and stop this process, as Ctrl-Z does, when a shard is committed."""

    def on_commit(commit: Commit) -> None:
        if commit.shard == shard:
            signal.raise_signal(signal.SIGSTOP)

    building.build(config, on_commit=on_commit)


def wait_until_stopped(child: Child) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert child.process.exitcode is None, child.said
        assert time.monotonic() < deadline_s
        time.sleep(0.002)


@pytest.mark.parametrize("where", ["disk", pytest.param("s3", marks=pytest.mark.s3)])
def test_a_run_that_sleeps_while_another_finishes_harms_nothing(
    tmp_path: Path, config: MixConfig, expected: Result, where: str, request: pytest.FixtureRequest
) -> None:
    output = config.output if where == "disk" else request.getfixturevalue("s3_url")
    here = config.model_copy(update={"output": output})
    sleeper = Child(tmp_path / "stderr", stop_at, here, 5)
    wait_until_stopped(sleeper)
    building.build(here)
    before = objects(open_store(output))
    sleeper.signal(signal.SIGCONT)
    assert sleeper.ended() == FENCED, sleeper.said
    assert "nothing is harmed" in sleeper.said
    assert objects(open_store(output)) == before
    assert_untouched(output, expected)


def test_one_that_slept_through_the_start_of_another_leaves_it_the_run(config: MixConfig, expected: Result) -> None:
    """The newest start owns the run, also while it has not committed anything yet."""
    with building.start(config) as older:
        older.write(3)
        with building.start(config) as newer:
            for _ in range(2):
                with pytest.raises(FencedError, match="taken by another start"):
                    older.write(SHARDS)
            assert newer.committed == 3
            newer.write(SHARDS)
            newer.finish()
        with pytest.raises(FencedError):
            older.write(SHARDS)
    assert_untouched(config.output, expected)


def test_a_start_that_meets_one_which_began_a_moment_ago_finds_its_run(
    config: MixConfig, expected: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between looking for a run and looking for foreign objects, another start does everything."""
    get = LocalStore.get
    looked_for = 0

    def get_then_rival(self: LocalStore, name: str) -> bytes | None:
        nonlocal looked_for
        found = get(self, name)
        if name == commits.RUN_NAME:
            looked_for += 1
            if looked_for == 1:
                assert found is None
                building.build(config)
        return found

    monkeypatch.setattr(LocalStore, "get", get_then_rival)
    summary = building.build(config)
    assert (summary.finished, summary.head) == (True, expected.head)
    assert result(config.output) == expected
