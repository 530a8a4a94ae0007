"""What `mixer run` makes of how a run ends."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mixer import building
from mixer.building import RunSummary
from mixer.cli import running
from mixer.config import MixConfig
from mixer.core.commits import Commit
from mixer.errors import StoreError
from mixer.storage import LocalStore
from tests.cli.conftest import Mixer
from tests.mixes import config_file


class EntryPoint:
    """An installed flow."""

    def __init__(self, flow: Callable[..., RunSummary]) -> None:
        self.flow = flow

    def load(self) -> Callable[..., RunSummary]:
        return self.flow


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put flows in the place of the one that is installed."""
    monkeypatch.setenv(running.CONSOLE_LEVEL, "CRITICAL")

    def put(*flows: Callable[..., RunSummary]) -> None:
        monkeypatch.setattr(running, "entry_points", lambda **_: list(map(EntryPoint, flows)))

    return put


def test_a_store_that_fails_ends_with_1_and_the_same_command_goes_on(
    mixer: Mixer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = LocalStore.create

    def full(self: LocalStore, name: str, data: bytes) -> bool:
        if name == "data/shard-00000002.parquet":
            raise StoreError(f"create {name}: no space left on device; make room")
        return honest(self, name, data)

    config = config_file(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "create", full)
        answer = mixer("run", config, "--no-prefect", "--quiet")
    assert (answer.code, answer.out) == (1, "")
    assert (
        answer.err
        == f"mixer: create data/shard-00000002.parquet: no space left on device; make room\n{running.AGAIN}\n"
    )
    assert mixer("status", str(tmp_path / "out"), "--json").json["committed"] == 2
    assert mixer("run", config, "--no-prefect", "--quiet").code == 0


def test_a_run_whose_output_is_removed_is_not_said_to_go_on(
    mixer: Mixer, tmp_path: Path, install: Callable[..., None]
) -> None:
    def removed(config: MixConfig, *, on_commit: Callable[[Commit], None], **options: Any) -> RunSummary:
        def remove(commit: Commit) -> None:
            on_commit(commit)
            shutil.rmtree(tmp_path / "out", ignore_errors=True)

        return building.build(config, on_commit=remove, **options)

    install(removed)
    config = config_file(tmp_path)
    answer = mixer("run", config, "--quiet")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.endswith(f"its folder was removed meanwhile\n{running.GONE}\n")
    assert not (tmp_path / "out").exists()
    assert mixer("run", config, "--no-prefect", "--quiet").code == 0


def test_a_run_that_another_start_takes_over_ends_with_6(
    mixer: Mixer, tmp_path: Path, install: Callable[..., None]
) -> None:
    def rivalled(config: MixConfig, *, on_commit: Callable[[Commit], None], **options: Any) -> RunSummary:
        def take_over(commit: Commit) -> None:
            on_commit(commit)
            building.start(config).close()

        return building.build(config, on_commit=take_over, **options)

    install(rivalled)
    answer = mixer("run", config_file(tmp_path), "--quiet")
    assert (answer.code, answer.out) == (6, "")
    assert "taken by another start of this run" in answer.err
    assert running.AGAIN not in answer.err


def test_a_flow_that_a_signal_tears_off_is_stopped_like_any_other(
    mixer: Mixer, tmp_path: Path, install: Callable[..., None]
) -> None:
    class Torn(BaseException):
        """What Prefect raises when it has caught SIGTERM itself."""

    def torn(config: MixConfig, **_: Any) -> RunSummary:
        with building.start(config) as run:
            run.write(1)
        signal.raise_signal(signal.SIGTERM)
        raise Torn

    install(torn)
    answer = mixer("run", config_file(tmp_path), "--json")
    assert answer.code == 143
    assert (answer.json["committed"], answer.json["error"]["type"]) == (1, "Stopped")


def test_a_run_that_is_finished_when_the_signal_is_heard_is_no_failure(
    mixer: Mixer, tmp_path: Path, install: Callable[..., None]
) -> None:
    def late(config: MixConfig, **options: Any) -> RunSummary:
        summary = building.build(config, **options)
        signal.raise_signal(signal.SIGTERM)
        return summary

    install(late)
    answer = mixer("run", config_file(tmp_path), "--json")
    assert (answer.code, answer.json["finished"]) == (0, True)
    assert "error" not in answer.json


def test_without_a_flow_the_way_out_is_named(mixer: Mixer, tmp_path: Path, install: Callable[..., None]) -> None:
    install()
    answer = mixer("run", config_file(tmp_path))
    assert answer.code == 1
    assert "--no-prefect" in answer.err
