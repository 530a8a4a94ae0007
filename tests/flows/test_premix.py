"""The flow on a real server makes the bare engine's bytes, whatever happens to it on the way."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from prefect.client.orchestration import SyncPrefectClient

from flows.artifacts import artifact_key
from flows.premix import premix, run
from flows.settling import mix_of
from mixer import building
from mixer.building import RunSummary
from mixer.config import MixConfig
from mixer.core.commits import Commit
from mixer.errors import (
    ChangedError,
    ConfigError,
    CorruptionError,
    FencedError,
    MixerError,
    NotEnoughDataError,
    OutputError,
    StoreUnavailableError,
)
from mixer.storage import Store, open_store
from mixer.testing import CrashingStore, Moment
from tests.flows.gate import Gate
from tests.flows.outputs import SHARDS, shard_bytes
from tests.flows.reading import flow_runs, shown_shards, task_runs, versions
from tests.mixes import mix_config

pytestmark = pytest.mark.flows


def state_key(config: MixConfig) -> str:
    """Return what the keys of the run's artifacts begin with."""
    return artifact_key(config.output, building.existing(config.output)[1].fingerprint)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Make the stores that are opened from now on fail: the n-th at its ``at[n]``-th object, later ones never."""

    def arrange(
        error: type[MixerError],
        *at: int,
        moment: Moment = "before",
        pauses: str = "0.1,0.1",
        verb: str = "create",
    ) -> list[str]:
        opened: list[str] = []
        moments: Iterator[int] = iter(at)

        def fail() -> NoReturn:
            raise error("as the test wants it")

        def open_failing(url: str) -> Store:
            opened.append(url)
            return CrashingStore(open_store(url), at=next(moments, None), moment=moment, crash=fail, verbs={verb})

        monkeypatch.setenv("MIXER_RETRY_DELAYS_SECONDS", pauses)
        monkeypatch.setattr(building, "open_store", open_failing)
        return opened

    return arrange


def test_a_flow_makes_the_bytes_of_the_bare_engine(
    config: MixConfig, unbroken: RunSummary, api: SyncPrefectClient
) -> None:
    heard: list[Commit] = []
    summary = run(config, on_commit=heard.append)
    assert shard_bytes(config.output) == shard_bytes(unbroken.output)
    assert (summary.head, summary.state, summary.finished) == (unbroken.head, unbroken.state, True)
    assert [commit.shard for commit in heard] == list(range(SHARDS))


def test_every_commit_of_a_flow_has_a_version_of_the_state(config: MixConfig, api: SyncPrefectClient) -> None:
    run(config)
    [flow_run] = flow_runs(api, config.output)
    assert shown_shards(api, state_key(config)) == list(range(SHARDS))
    artifacts = [versions(api, f"{state_key(config)}-{name}")[-1] for name in ("state", "progress", "report")]
    assert [artifact.flow_run_id for artifact in artifacts] == [flow_run.id] * 3
    assert artifacts[1].data == 100
    assert str(artifacts[2].data).startswith("# Finished")
    names = [run.name for run in task_runs(api, flow_run.id, count=4)]
    assert "shard 0" in names
    assert 4 <= len(names) <= 6


def test_a_finished_run_run_again_does_nothing(config: MixConfig, api: SyncPrefectClient) -> None:
    first = run(config)
    assert run(config).head == first.head
    assert [flow_run.state_name for flow_run in flow_runs(api, config.output)] == ["Completed", "Completed"]
    assert shown_shards(api, state_key(config)) == list(range(SHARDS))


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_store_that_fails_in_the_middle_is_tried_again_by_the_task(
    moment: Moment,
    config: MixConfig,
    unbroken: RunSummary,
    api: SyncPrefectClient,
    failing: Callable[..., list[str]],
) -> None:
    # Shards and slots take turns: the first store fails at a slot, the second one at a shard.
    opened = failing(StoreUnavailableError, 16, 8, moment=moment)
    heard: list[Commit] = []
    summary = run(config, on_commit=heard.append)
    assert len(opened) == 3
    assert [commit.shard for commit in heard] == list(range(SHARDS))
    assert shard_bytes(config.output) == shard_bytes(unbroken.output)
    assert summary.head == unbroken.head
    [flow_run] = flow_runs(api, config.output)
    assert flow_run.state_name == "Completed"
    assert max(task.run_count for task in task_runs(api, flow_run.id, count=4)) > 1
    assert shown_shards(api, state_key(config)) == list(range(SHARDS))


def test_the_risk_of_an_unsafe_store_stays_accepted_when_a_task_is_tried_again(
    config: MixConfig,
    unbroken: RunSummary,
    api: SyncPrefectClient,
    failing: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(source: object, target: object) -> NoReturn:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(OutputError, match=r"hard links .* accept_unsafe_store=True"):
        run(config)
    opened = failing(StoreUnavailableError, 8, verb="put")
    assert run(config, accept_unsafe_store=True).head == unbroken.head
    assert len(opened) == 2
    assert shard_bytes(config.output) == shard_bytes(unbroken.output)
    assert [flow_run.state_name for flow_run in flow_runs(api, config.output)] == ["Failed", "Completed"]


def test_a_flow_that_fails_in_the_middle_is_tried_again_by_prefect(
    config: MixConfig,
    unbroken: RunSummary,
    api: SyncPrefectClient,
    failing: Callable[..., list[str]],
) -> None:
    failing(StoreUnavailableError, 16, 15, pauses="")
    premix.with_options(retries=2, retry_delay_seconds=0)(config)
    assert shard_bytes(config.output) == shard_bytes(unbroken.output)
    [flow_run] = flow_runs(api, config.output)
    assert (flow_run.state_name, flow_run.run_count) == ("Completed", 3)
    reports = [str(artifact.data) for artifact in versions(api, f"{state_key(config)}-report")]
    assert [report.partition("\n")[0] for report in reports] == ["# Failed", "# Failed", "# Finished"]


@pytest.mark.parametrize("error", [FencedError, CorruptionError, ConfigError])
def test_what_will_not_go_away_is_not_tried_again(
    config: MixConfig,
    api: SyncPrefectClient,
    failing: Callable[..., list[str]],
    error: type[MixerError],
) -> None:
    opened = failing(error, 12)
    with pytest.raises(error, match="as the test wants it"):
        run(config)
    assert len(opened) == 1
    [flow_run] = flow_runs(api, config.output)
    assert (flow_run.state_name, flow_run.run_count) == ("Failed", 1)


def test_a_config_that_cannot_be_run_is_refused_with_the_error_of_the_engine(
    config: MixConfig, api: SyncPrefectClient
) -> None:
    with pytest.raises(NotEnoughDataError):
        run(config.model_copy(update={"batches": 10**6}))


def test_a_server_that_is_not_there_is_said_to_be_and_nothing_is_begun(config: MixConfig, gate: Gate) -> None:
    with pytest.raises(MixerError, match="Prefect did not run the flow on the server that PREFECT_API_URL names"):
        run(config)
    assert not Path(config.output).exists()


def test_a_flow_that_is_asked_to_stop_is_cancelled_and_can_be_continued(
    config: MixConfig, unbroken: RunSummary, api: SyncPrefectClient
) -> None:
    heard: list[Commit] = []
    summary = run(config, on_commit=heard.append, should_stop=lambda: len(heard) >= 5)
    assert not summary.finished
    assert 5 <= summary.committed == len(heard) < SHARDS
    assert run(config).head == unbroken.head
    assert shard_bytes(config.output) == shard_bytes(unbroken.output)
    stopped, finished = flow_runs(api, config.output)
    assert (stopped.state_name, finished.state_name) == ("Cancelled", "Completed")
    assert stopped.state is not None
    assert f"{summary.committed} of {SHARDS} shards" in str(stopped.state.message)
    assert shown_shards(api, state_key(config)) == list(range(SHARDS))


def test_a_config_is_the_same_after_its_way_through_the_server(config: MixConfig) -> None:
    sent = json.loads(json.dumps({"config": config.model_dump(mode="json")}))
    received = mix_of(premix.validate_parameters(sent)["config"])
    assert received == config
    assert list(received.datasets) == list(config.datasets)


def test_weights_beyond_64_bits_pass_through_the_server(tmp_path: Path, api: SyncPrefectClient) -> None:
    plain = mix_config(tmp_path)
    datasets = {
        name: dataset.model_copy(update={"weight": (dataset.weight or 0) * 10**30})
        for name, dataset in plain.datasets.items()
    }
    assert run(plain.model_copy(update={"datasets": datasets})).finished


def test_a_flow_extends_a_run_if_it_is_told_to_also_when_it_fails_meanwhile(
    tmp_path: Path, failing: Callable[..., list[str]], api: SyncPrefectClient
) -> None:
    short, long = mix_config(tmp_path, batches=10), mix_config(tmp_path, batches=17)
    run(short)
    with pytest.raises(ChangedError, match="--extend"):
        run(long)
    # Its probe, `open` and amendment are behind it.
    failing(StoreUnavailableError, 6)
    summary = run(long, extend=True)
    assert (summary.finished, summary.committed, summary.extensions) == (True, 7, 1)
    # The longer run has artifacts of its own, which begin with the last shard that was there.
    assert shown_shards(api, state_key(long)) == [3, 4, 5, 6]
    alone = [config.model_copy(update={"output": str(tmp_path / "alone")}) for config in (short, long)]
    assert summary.head == [building.build(config, extend=True).head for config in alone][-1]


def test_a_flow_begins_a_fork_after_the_shards_that_it_takes_also_when_it_fails_meanwhile(
    tmp_path: Path, failing: Callable[..., list[str]], api: SyncPrefectClient
) -> None:
    before = run(mix_config(tmp_path))
    config = building.fork(before.output, 2, str(tmp_path / "new"), weights={"web": 1, "code": 1}, batches=6)
    failing(StoreUnavailableError, 6)
    summary = run(config)
    assert (summary.finished, summary.committed, summary.shards) == (True, 4, 4)
    assert shown_shards(api, state_key(config)) == [2, 3]
    alone = building.build(config.model_copy(update={"output": str(tmp_path / "alone")}))
    assert summary.head == alone.head
