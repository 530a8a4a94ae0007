"""Preparing in a flow on a real server: the bare engine's bytes, in a task that is stopped and retried as all are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
from prefect.client.schemas.objects import FlowRun

from flows import premix, prepare
from mixer import building, preparing
from mixer.config import MixConfig
from mixer.errors import ConfigError, StoppedError, StoreUnavailableError
from mixer.preparation.engine import Progress
from mixer.storage import Store, open_store
from mixer.testing import CrashingStore
from tests.e2e.runs import objects, result
from tests.flows.reading import flow_runs, task_runs
from tests.preparing import config_of, small_parts

pytestmark = pytest.mark.flows


@pytest.fixture(autouse=True)
def _several_parts() -> Iterator[None]:
    with small_parts():
        yield


@pytest.fixture
def config(tmp_path: Path) -> MixConfig:
    return config_of(tmp_path)


def flow_run_of(api: SyncPrefectClient, output: str) -> FlowRun:
    """Return the one flow run that prepared for `output`."""
    wanted = FlowRunFilter(name=FlowRunFilterName(any_=[f"prepare {output}"]))
    (found,) = api.read_flow_runs(flow_run_filter=wanted)
    return found


def copies(output: str) -> dict[str, bytes]:
    return objects(open_store(output), ".mixer/prepared/")


def test_a_flow_prepares_what_the_bare_engine_does(config: MixConfig, tmp_path: Path, api: SyncPrefectClient) -> None:
    heard: list[Progress] = []
    done = prepare.run(config, on_part=heard.append)
    assert (done.made, len(heard)) == (1, done.stages[0].parts)
    alone = config.model_copy(update={"output": str(tmp_path / "alone")})
    building.prepare(alone)
    assert copies(config.output) == copies(alone.output)
    flow_run = flow_run_of(api, config.output)
    assert flow_run.state_name == "Completed"
    assert [run.name for run in task_runs(api, flow_run.id, count=1)] == ["prepare"]


def test_a_mix_as_a_server_keeps_it_is_prepared_or_refused_in_mixers_words(
    config: MixConfig, api: SyncPrefectClient
) -> None:
    assert prepare.prepare.parameters.properties["config"]["$ref"] == "#/definitions/MixConfig"
    kept: Any = config.model_dump(mode="json")
    wrong: Any = {**kept, "batch_size": 4.0}
    with pytest.raises(ConfigError, match=r"^batch_size: expected a positive whole number, found 4\.0$"):
        prepare.prepare(wrong)
    place: Any = "mix.yaml"
    with pytest.raises(ConfigError, match=r"^config: expected a mapping that describes a mix, found str$"):
        prepare.prepare(place)
    prepare.prepare(kept)
    assert flow_run_of(api, config.output).state_name == "Completed"
    assert building.prepare(config).made == 0


def test_a_flow_that_mixes_prepares_first_in_a_task_of_its_own(
    config: MixConfig, tmp_path: Path, api: SyncPrefectClient
) -> None:
    heard: list[Progress] = []
    assert premix.run(config, on_part=heard.append).finished
    assert heard
    alone = config.model_copy(update={"output": str(tmp_path / "alone")})
    building.build(alone)
    assert result(config.output) == result(alone.output)
    (flow_run,) = flow_runs(api, config.output)
    runs = sorted(task_runs(api, flow_run.id, count=4), key=lambda run: str(run.start_time))
    assert [run.name for run in runs][:2] == ["prepare", "open"]


def test_a_run_that_is_there_is_gone_on_with_and_nothing_prepared(
    config: MixConfig, tmp_path: Path, api: SyncPrefectClient
) -> None:
    building.prepare(config)
    stops = iter([False] * 2 + [True] * 100)
    building.build(config, should_stop=stops.__next__)
    (tmp_path / "inputs/web.jsonl").unlink()
    assert premix.run(config).finished
    (flow_run,) = flow_runs(api, config.output)
    assert "prepare" not in {run.name for run in task_runs(api, flow_run.id, count=3)}


@pytest.mark.parametrize("mixes", [False, True])
def test_stopped_at_a_parts_edge_the_flow_is_cancelled_and_goes_on(
    config: MixConfig, api: SyncPrefectClient, *, mixes: bool
) -> None:
    # It is asked once before the first part.
    stops = iter([False, True])
    with pytest.raises(StoppedError):
        (premix.run if mixes else prepare.run)(config, should_stop=stops.__next__)
    assert len(list(Path(config.output).rglob("part-*.parquet"))) == 1
    found = flow_runs(api, config.output)[0] if mixes else flow_run_of(api, config.output)
    assert found.state_name == "Cancelled"
    assert building.build(config).finished


def test_a_store_that_does_not_answer_is_tried_again_by_the_task(
    config: MixConfig, api: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def fail() -> None:
        raise StoreUnavailableError("as the test wants it")

    def open_failing(url: str) -> Store:
        opened.append(url)
        return CrashingStore(open_store(url), at=5 if len(opened) == 1 else None, crash=fail, verbs={"put"})

    monkeypatch.setenv("MIXER_RETRY_DELAYS_SECONDS", "0.1")
    monkeypatch.setattr(preparing, "open_store", open_failing)
    assert prepare.run(config).made == 1
    assert len(opened) == 2
    assert building.prepare(config).made == 0


def test_a_mistake_in_the_config_is_told_as_by_the_bare_engine(config: MixConfig, api: SyncPrefectClient) -> None:
    web = config.datasets["web"].model_copy(update={"document": "file"})
    wrong = config.model_copy(update={"datasets": {"web": web}})
    for run in (prepare.run, premix.run):
        with pytest.raises(ConfigError, match=r"datasets\.web\.document: only plain text has it"):
            run(wrong)
