"""The flow served as the README shows it: a run that is asked for by its deployment is carried out."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName

from mixer import building
from mixer.building import RunSummary
from mixer.config import MixConfig
from tests.flows.outputs import shard_bytes
from tests.flows.prefect_server import PrefectServer
from tests.flows.reading import eventually

pytestmark = pytest.mark.flows

ROOT = Path(__file__).parents[2]
WAIT_S = 120.0


def deployments(api: SyncPrefectClient) -> list[UUID]:
    """Return the deployment of that name, if it is there."""
    wanted = DeploymentFilter(name=DeploymentFilterName(any_=["nightly"]))
    return [deployment.id for deployment in api.read_deployments(deployment_filter=wanted)]


def snippet() -> str:
    """Return the README's program that serves the flow."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (found,) = [block for block in blocks if "premix.serve(" in block]
    return str(found)


def test_the_readmes_schedule_runs_what_it_is_asked_for(
    tmp_path: Path, config: MixConfig, unbroken: RunSummary, prefect_server: PrefectServer, api: SyncPrefectClient
) -> None:
    (tmp_path / "mix.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
    (tmp_path / "serve.py").write_text(snippet())
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "serve.py"],
            cwd=tmp_path,
            env={**prefect_server.environment(), "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        found = eventually(lambda: deployments(api), bool, wait_s=WAIT_S)
        assert found, (tmp_path / "log").read_text()[-3000:]
        run = api.create_flow_run_from_deployment(found[0])
        state = eventually(
            lambda: api.read_flow_run(run.id).state, lambda state: state is not None and state.is_final(), wait_s=WAIT_S
        )
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    assert state is not None
    assert state.is_completed(), (tmp_path / "log").read_text()[-3000:]
    summary = building.status(config.output)
    assert (summary.finished, summary.head) == (True, unbroken.head)
    assert shard_bytes(config.output) == shard_bytes(unbroken.output)
