"""A run on a store that heeds no condition: refused, or, if its user accepts the risk, as exact as on any other.

What the risk is, is shown with the probe out of the way: then a start that was overtaken does not notice.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mixer import building
from mixer.config import MixConfig
from mixer.core.commits import Commit
from mixer.errors import FencedError, OutputError
from mixer.storage import LocalStore, Store, open_store
from mixer.verifying import verify
from tests.e2e.runs import Child, Result, config_file, many_shards, objects, result, unbroken

pytestmark = [pytest.mark.s3, pytest.mark.crash]

SHARDS = 8


@pytest.fixture
def config(tmp_path: Path, rclone_url: str) -> MixConfig:
    return many_shards(tmp_path, rclone_url, shards=SHARDS)


@pytest.fixture
def expected(config: MixConfig, tmp_path: Path) -> Result:
    return unbroken(config, tmp_path / "unbroken")


def mixer(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = str(Path(sys.executable).with_name("mixer"))
    return subprocess.run([command, *arguments], check=False, capture_output=True, text=True)


def test_the_command_refuses_it_names_the_option_and_leaves_nothing(config: MixConfig, tmp_path: Path) -> None:
    path = config_file(config, tmp_path / "mix.yaml")
    refused = mixer("run", path, "--no-prefect")
    assert refused.returncode == 2
    assert f"mixer: output {config.output}: expected the store to refuse a second create" in refused.stderr
    assert "two runs at the very same moment could overwrite each other's shards and commits" in refused.stderr
    assert "--accept-unsafe-store, in Python accept_unsafe_store=True" in refused.stderr
    assert open_store(config.output).list("") == []

    accepted = mixer("run", path, "--no-prefect", "--accept-unsafe-store")
    assert accepted.returncode == 0, accepted.stderr
    assert accepted.stderr.count("UNSAFE STORE, AND ITS RISK IS ACCEPTED") == 1
    assert verify(config.output).ok


def build_and_die(config: MixConfig, shard: int) -> None:
    """Build, and kill this process when a shard is committed."""

    def on_commit(commit: Commit) -> None:
        if commit.shard == shard:
            signal.raise_signal(signal.SIGKILL)

    building.build(config, accept_unsafe_store=True, on_commit=on_commit)


def test_with_the_option_a_run_that_is_killed_and_resumed_ends_in_the_same_bytes(
    config: MixConfig, expected: Result, tmp_path: Path
) -> None:
    for shard in (1, 4):
        child = Child(tmp_path / "stderr", build_and_die, config, shard)
        assert child.ended() == -signal.SIGKILL, child.said
        with pytest.raises(OutputError, match="accept_unsafe_store"):
            building.build(config)
        assert building.status(config.output).committed == shard + 1
    assert building.build(config, accept_unsafe_store=True).head == expected.head
    assert result(config.output) == expected
    report = verify(config.output)
    assert (report.problems, report.orphans) == ((), ())


def test_a_complete_run_needs_no_proof_no_option_and_is_left_alone(config: MixConfig) -> None:
    first = building.build(config, accept_unsafe_store=True)
    store = open_store(config.output)
    before = store.list("")
    assert building.build(config) == first
    assert building.build(config, accept_unsafe_store=True) == first
    assert store.list("") == before


def test_with_the_option_what_was_overtaken_stops(config: MixConfig, expected: Result) -> None:
    with building.start(config, accept_unsafe_store=True) as older:
        older.write(3)
        with building.start(config, accept_unsafe_store=True) as newer:
            newer.write(5)
            with pytest.raises(FencedError):
                older.write(SHARDS)
            with pytest.raises(FencedError):
                building.attach(config.output, older.owner, accept_unsafe_store=True)
            with building.attach(config.output, newer.owner, accept_unsafe_store=True) as again:
                again.write(SHARDS)
                again.finish()
    assert result(config.output) == expected


def test_with_the_probe_out_of_the_way_what_was_overtaken_breaks_the_run(
    config: MixConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: the same as before, on the same store, but nobody looks before a put."""

    def unproven(store: Store, *, accept_unsafe: bool) -> Store:
        assert not accept_unsafe
        return store

    monkeypatch.setattr(building, "fit_to_write", unproven)
    with building.start(config) as older:
        older.write(3)
        with building.start(config) as newer:
            newer.write(5)
            older.write(4)
    assert verify(config.output).problems


@pytest.mark.parametrize("accept", [False, True])
def test_the_warning_comes_once_a_start_and_never_on_a_good_store(
    config: MixConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture, accept: bool
) -> None:
    good = config.model_copy(update={"output": str(tmp_path / "good")})
    with caplog.at_level(logging.WARNING, "mixer"), building.start(good, accept_unsafe_store=accept):
        assert caplog.messages == []
        with building.start(config, accept_unsafe_store=True) as run:
            run.write(2)
        building.attach(config.output, run.owner, accept_unsafe_store=True).close()
        building.start(config, accept_unsafe_store=True).close()
    warning = f"UNSAFE STORE, AND ITS RISK IS ACCEPTED: {config.output} has no create-only writes"
    assert [message.partition(";")[0] for message in caplog.messages] == [warning, warning]


def test_a_good_store_is_proven_at_every_start_and_nothing_else_changes(
    config: MixConfig, tmp_path: Path, expected: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed = []
    create = LocalStore.create

    def watched(self: LocalStore, name: str, data: bytes) -> bool:
        if name.startswith(".mixer/probe/"):
            probed.append(name)
        return create(self, name, data)

    monkeypatch.setattr(LocalStore, "create", watched)
    good = config.model_copy(update={"output": str(tmp_path / "good")})
    building.build(good, accept_unsafe_store=True, should_stop=iter([False, True]).__next__)
    building.build(good)
    building.build(good)
    # Twice each, for the first two starts.
    assert (len(probed), len(set(probed))) == (4, 2)
    assert result(good.output) == expected
    assert set(objects(LocalStore(good.output))) >= {".mixer/run.json", "manifest.json"}
    assert verify(good.output).orphans == ()
