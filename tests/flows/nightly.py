"""Deployments as `infra/prefect.yaml` makes them, the workers that carry them out, and what is done to both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun

from mixer.core import commits
from tests.flows.holding import HELD_SHARD, HOLD
from tests.flows.reading import eventually

ROOT = Path(__file__).parents[2]
PREFECT_YAML = ROOT / "infra" / "prefect.yaml"
WAIT_S = 120.0

LEASES_ON_DISK = {"PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem"}
"""What the README says of the server."""
QUICK = {
    "PREFECT_SERVER_SERVICES_REPOSSESSOR_LOOP_SECONDS": "1",
    "PREFECT_SERVER_SERVICES_SCHEDULER_RECENT_DEPLOYMENTS_LOOP_SECONDS": "1",
    "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "2",
    "PREFECT_SERVER_EVENTS_PROACTIVE_GRANULARITY": "PT1S",
}
"""Of a server in tests: looks at things more often than usual."""


def deployment_like(name: str, hold: Path, *, pool: str = "mixer", is_quick: bool, **changes: Any) -> dict[str, Any]:
    """Return the deployment of `infra/prefect.yaml` under another name, without schedule and of a mix of that name.

    Its flow runs are held while `hold` is there.
    """
    (deployment,) = yaml.safe_load(PREFECT_YAML.read_text())["deployments"]
    variables = deployment["work_pool"]["job_variables"]
    variables["env"] |= {HOLD: str(hold)}
    if is_quick:
        # The worker's own way takes two processes of Prefect for each flow run, and one more for one that crashed.
        variables["command"] = f"{sys.executable} -m prefect.engine"
    return {
        **deployment,
        "name": name,
        "entrypoint": "tests.flows.held.premix",
        "schedules": [],
        "parameters": {"config": f"{name}.yaml"},
        "work_pool": {"name": pool, "job_variables": variables},
        **changes,
    }


def deploy(folder: Path, environment: Mapping[str, str], deployments: list[dict[str, Any]]) -> None:
    """Make deployments from a ``prefect.yaml`` in `folder`, by Prefect's own command."""
    (folder / "prefect.yaml").write_text(yaml.safe_dump({"name": "mixer", "deployments": deployments}))
    prefect(folder, environment, "--no-prompt", "deploy", "--prefect-file", "prefect.yaml", "--all")


def prefect(folder: Path, environment: Mapping[str, str], *arguments: str) -> str:
    """Run Prefect's command; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "prefect", *arguments],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


@contextmanager
def running(folder: Path, environment: Mapping[str, str], *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Python module that looks for work every second; kill it and all that it started at the end."""
    settings = {"PREFECT_WORKER_QUERY_SECONDS": "1", "PREFECT_RUNNER_POLL_FREQUENCY": "1"}
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=folder,
            env={**environment, **settings, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill_all(process)


@contextmanager
def worker(folder: Path, environment: Mapping[str, str], pool: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process worker, which makes its pool if need be."""
    arguments = ("prefect", "worker", "start", "--pool", pool, "--type", "process")
    with running(folder, environment, *arguments) as process:
        yield process


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and the flow runs that it has started, all at once, as if their machine lost power."""
    doomed = [process.pid, *descendants(process.pid)]
    for each in doomed:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    process.wait()


def descendants(process_id: int) -> list[int]:
    """Return the processes that a process has started, and those that these have started, and so on."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # After the name, which may hold anything, stand the state and the parent.
            parents.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
    found = list(parents.get(process_id, []))
    for child in found:
        found += parents.get(child, [])
    return found


def is_told(folder: Path) -> bool:
    """Return whether a worker has said all that it has to say of a flow run that was killed.

    It reports such a flow run as crashed twice, seconds apart, whatever was done to it in between.
    """
    return "prefect.flow_runs.worker - Check whether" in folder.joinpath("log").read_text()


def process_of(flow_run_id: UUID) -> int:
    """Return the process that carries a flow run out."""
    wanted = f"PREFECT__FLOW_RUN_ID={flow_run_id}\0".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_engine = b"prefect.engine" in process.joinpath("cmdline").read_bytes()
            if is_engine and wanted in process.joinpath("environ").read_bytes():
                return int(process.name)
    raise AssertionError(f"no process of flow run {flow_run_id}")


def flow_run_in(api: SyncPrefectClient, flow_run_id: UUID, *states: str) -> FlowRun:
    """Return a flow run when it is in one of `states`, by name."""
    found = eventually(lambda: api.read_flow_run(flow_run_id), lambda run: run.state_name in states, wait_s=WAIT_S)
    assert found.state_name in states, (found.state_name, found.state and found.state.message)
    return found


def held(output: Path) -> None:
    """Return when a run has committed the shard at which it is held."""
    log = output / commits.LOG_PREFIX
    assert eventually(lambda: len(list(log.glob("*.json"))), lambda slots: slots >= HELD_SHARD + 2, wait_s=WAIT_S)
