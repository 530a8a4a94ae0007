"""Deployments of `infra/prefect.yaml` under a process worker: on time, killed, cancelled, retried, on a dead machine.

The flow runs of all tests are started together, because starting a process of Prefect takes seconds; each is held in
its middle until its test comes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from uuid import UUID
from zoneinfo import ZoneInfo

import prefect.settings
import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterDeploymentId
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.events.schemas.automations import AutomationCore
from prefect.settings import temporary_settings
from prefect.states import Cancelling

from flows.artifacts import artifact_key
from mixer import building
from tests.flows import nightly
from tests.flows.nightly import flow_run_in
from tests.flows.outputs import shard_bytes
from tests.flows.prefect_server import PrefectServer, running_prefect_server
from tests.flows.reading import eventually, shown_shards
from tests.mixes import config_values, mix_config
from tests.profiles import sized

pytestmark = [pytest.mark.flows, pytest.mark.crash]

QUICK = sized(short=True, long=False)
SHARDS = 12
ZONE = "Asia/Tokyo"
NAMES = ("due", "killed", "cancelled", "dead")
DEAD_SECONDS = 45
"""Instead of the two minutes of `infra/dead-runs.yaml`; a living flow run gives a sign every 30 s."""


@dataclass(frozen=True, slots=True)
class Nights:
    """A server, a folder that is deployed from, and what has been started."""

    folder: Path
    server: PrefectServer
    api: SyncPrefectClient
    deployments: dict[str, DeploymentResponse]
    runs: dict[str, UUID]
    """Flow runs that were asked for by hand, by the name of their deployment."""
    dying: Popen[bytes]
    """The worker of the deployment `dead`."""

    def output(self, name: str, run: FlowRun) -> Path:
        """Return where a flow run writes to."""
        return self.folder / name / str(run.parameters["date"])

    def held(self, name: str) -> FlowRun:
        """Return the flow run of a deployment that waits in its middle."""
        ours = FlowRunFilter(deployment_id=FlowRunFilterDeploymentId(any_=[self.deployments[name].id]))

        def found() -> list[FlowRun]:
            return [run for run in self.api.read_flow_runs(flow_run_filter=ours) if run.state_name == "Running"]

        (run,) = eventually(found, lambda runs: bool(runs and "date" in runs[0].parameters), wait_s=nightly.WAIT_S)
        nightly.held(self.output(name, run))
        return run

    def ask(self, name: str) -> UUID:
        """Ask for one more flow run."""
        return self.api.create_flow_run_from_deployment(self.deployments[name].id).id

    def release(self, name: str) -> None:
        (self.folder / f"{name}.hold").unlink()


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nights]:
    folder = tmp_path_factory.mktemp("nights")
    with ExitStack() as stack:
        server = stack.enter_context(running_prefect_server(settings={**nightly.LEASES_ON_DISK, **nightly.QUICK}))
        stack.enter_context(temporary_settings({prefect.settings.PREFECT_API_URL: server.api_url}))
        api = stack.enter_context(get_client(sync_client=True))
        stack.enter_context(nightly.worker(folder, server.environment(), "mixer"))
        dying = stack.enter_context(nightly.worker(folder, server.environment(), "mortal"))
        pools = eventually(api.read_work_pools, lambda pools: len(pools) == 2, wait_s=nightly.WAIT_S)
        assert len(pools) == 2
        yield _begun(folder, server, api, dying)


def _begun(folder: Path, server: PrefectServer, api: SyncPrefectClient, dying: Popen[bytes]) -> Nights:
    """Deploy, and start a flow run of each deployment."""
    rule = yaml.safe_load((nightly.ROOT / "infra" / "dead-runs.yaml").read_text())
    rule["trigger"]["within"] = DEAD_SECONDS
    api.create_automation(AutomationCore.model_validate(rule))
    for name in NAMES:
        config = config_values(folder, output=f"{name}/{{date}}", batches=SHARDS, batches_per_shard=1)
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        (folder / f"{name}.hold").touch()
    schedule = {"cron": "0 3 * * *", "timezone": ZONE}
    wanted = [
        nightly.deployment_like("due", folder / "due.hold", is_quick=QUICK, schedules=[schedule]),
        nightly.deployment_like("killed", folder / "killed.hold", is_quick=QUICK),
        nightly.deployment_like("cancelled", folder / "cancelled.hold", is_quick=QUICK),
        nightly.deployment_like("dead", folder / "dead.hold", is_quick=QUICK, pool="mortal"),
    ]
    nightly.deploy(folder, server.environment(), wanted)
    deployments = {name: api.read_deployment_by_name(f"premix/{name}") for name in NAMES}
    asked = {
        name: api.create_flow_run_from_deployment(deployments[name].id).id for name in ("dead", "killed", "cancelled")
    }
    (made,) = deployments["due"].schedules
    cron = CronSchedule(cron="* * * * * */20", timezone=ZONE)
    api.update_deployment_schedule(deployments["due"].id, made.id, schedule=cron)
    return Nights(folder, server, api, deployments, asked, dying)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The shards of a run that nothing was done to."""
    folder = tmp_path_factory.mktemp("unbroken")
    summary = building.build(mix_config(folder, batches=SHARDS, batches_per_shard=1))
    return shard_bytes(summary.output)


def test_when_a_machine_dies_the_flow_run_is_left_as_running(nights: Nights) -> None:
    run = nights.held("dead")
    assert run.id == nights.runs["dead"]
    nightly.kill_all(nights.dying)
    nights.release("dead")
    assert nights.api.read_flow_run(run.id).state_name == "Running"


def test_a_flow_run_that_is_due_while_another_one_works_waits_for_it(
    nights: Nights, unbroken: dict[str, bytes]
) -> None:
    run = nights.held("due")
    (schedule,) = nights.deployments["due"].schedules
    nights.api.update_deployment_schedule(nights.deployments["due"].id, schedule.id, active=False)
    assert run.created_by is not None
    assert run.created_by.type == "SCHEDULE"
    assert run.expected_start_time is not None
    date = run.expected_start_time.astimezone(ZoneInfo(ZONE)).date().isoformat()
    assert (run.parameters["date"], run.name, run.tags) == (date, f"premix due/{date}", ["auto-scheduled", "mixer"])
    second = nights.ask("due")
    flow_run_in(nights.api, second, "AwaitingConcurrencySlot")
    nights.release("due")
    flow_run_in(nights.api, run.id, "Completed")
    flow_run_in(nights.api, second, "Completed")
    output = nights.output("due", run)
    assert shard_bytes(str(output)) == unbroken
    fingerprint = building.existing(str(output))[1].fingerprint
    shown = shown_shards(nights.api, artifact_key(f"due/{date}", fingerprint))
    assert shown == list(range(SHARDS))


def test_a_flow_run_whose_process_is_killed_has_crashed_and_can_be_retried(
    nights: Nights, unbroken: dict[str, bytes]
) -> None:
    run = nights.held("killed")
    os.kill(nightly.process_of(run.id), signal.SIGKILL)
    nights.release("killed")
    flow_run_in(nights.api, run.id, "Crashed")
    # A retry that comes in between would be crashed by the second report.
    assert eventually(lambda: nightly.is_told(nights.folder), bool, wait_s=nightly.WAIT_S)
    nightly.prefect(nights.folder, nights.server.environment(), "flow-run", "retry", str(run.id))
    done = flow_run_in(nights.api, run.id, "Completed")
    assert done.parameters == run.parameters
    assert shard_bytes(str(nights.output("killed", run))) == unbroken


def test_a_flow_run_that_is_cancelled_is_gone_on_with_by_the_next_one(
    nights: Nights, unbroken: dict[str, bytes]
) -> None:
    run = nights.held("cancelled")
    nights.api.set_flow_run_state(run.id, Cancelling())
    flow_run_in(nights.api, run.id, "Cancelled")
    nights.release("cancelled")
    following = flow_run_in(nights.api, nights.ask("cancelled"), "Completed")
    assert nights.output("cancelled", following) == nights.output("cancelled", run)
    assert shard_bytes(str(nights.output("cancelled", run))) == unbroken


def test_what_a_dead_machine_left_is_found_dead_and_gone_on_with(nights: Nights, unbroken: dict[str, bytes]) -> None:
    following = nights.ask("dead")
    with nightly.worker(nights.folder, nights.server.environment(), "mortal"):
        dead = flow_run_in(nights.api, nights.runs["dead"], "Crashed")
        assert dead.state is not None
        assert dead.state.message == "No sign of life for two minutes; run it again, or leave it to the next night."
        done = flow_run_in(nights.api, following, "Completed")
    assert shard_bytes(str(nights.output("dead", done))) == unbroken
