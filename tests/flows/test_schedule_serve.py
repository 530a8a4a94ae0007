"""`python -m flows.serve` as the README shows it: on time, killed in the middle, gone on with by the next tick."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import prefect
import prefect.settings
import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterName,
    FlowRunFilter,
    FlowRunFilterDeploymentId,
)
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.deployments.runner import RunnerDeployment
from prefect.settings import temporary_settings

from flows import serve
from mixer import building
from tests.flows import nightly
from tests.flows.outputs import shard_bytes
from tests.flows.prefect_server import PrefectServer
from tests.flows.reading import eventually
from tests.mixes import config_values, mix_config

pytestmark = [pytest.mark.flows, pytest.mark.crash]

SHARDS = 120
CRON = "* * * * * */15"
"""Of four a minute: the last field is seconds."""


def ended(api: SyncPrefectClient) -> list[FlowRun]:
    """Return the flow runs of the deployment that have ended, in the order in which they were due."""
    deployment = api.read_deployment_by_name("premix/served")
    ours = FlowRunFilter(deployment_id=FlowRunFilterDeploymentId(any_=[deployment.id]))
    found = api.read_flow_runs(flow_run_filter=ours, sort=FlowRunSort.EXPECTED_START_TIME_ASC)
    return [run for run in found if run.state is not None and run.state.is_final()]


def kill_in_the_middle(output: Path, *, of: int) -> list[bytes]:
    """Kill the flow run that writes to `output` when it has written a few shards; return what its environment was."""
    deadline_s = time.monotonic() + nightly.WAIT_S
    while not output.joinpath("data", "shard-00000003.parquet").exists() and time.monotonic() < deadline_s:
        time.sleep(0.005)
    for process in nightly.descendants(of):
        if b"prefect.engine" in Path(f"/proc/{process}/cmdline").read_bytes():
            environment = Path(f"/proc/{process}/environ").read_bytes()
            os.kill(process, signal.SIGKILL)
            return environment.split(b"\0")
    raise AssertionError("the flow run was not there")


def test_a_served_mix_is_made_on_time_and_gone_on_with_after_a_kill(
    tmp_path: Path, prefect_server: PrefectServer, api: SyncPrefectClient
) -> None:
    values = config_values(tmp_path, output="served", batches=SHARDS, batches_per_shard=1, on_exhausted="repeat")
    (tmp_path / "mix.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    arguments = ("flows.serve", "mix.yaml", "--name", "served", "--cron", CRON, "--timezone", "Europe/Berlin")
    with nightly.running(tmp_path, prefect_server.environment(), *arguments) as serving:
        environment = kill_in_the_middle(tmp_path / "served", of=serving.pid)
        # It counts as dead after 90 s without a sign of life, and Prefect's own gives one every 180 s.
        assert b"PREFECT_FLOWS_HEARTBEAT_FREQUENCY=30" in environment
        runs = eventually(lambda: ended(api), lambda found: len(found) >= 2, wait_s=nightly.WAIT_S)
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(nightly.WAIT_S) == 0, (tmp_path / "log").read_text()[-3000:]
    assert [run.state_name for run in runs[:2]] == ["Crashed", "Completed"]
    assert all(run.created_by is not None and run.created_by.type == "SCHEDULE" for run in runs[:2])
    assert runs[1].name.startswith("premix served of 20")
    unbroken = building.build(mix_config(tmp_path, batches=SHARDS, batches_per_shard=1, on_exhausted="repeat"))
    assert shard_bytes(str(tmp_path / "served")) == shard_bytes(unbroken.output)
    deployment = api.read_deployment_by_name("premix/served")
    # What falls due while nobody serves is made up for later.
    assert not deployment.paused
    api.delete_deployment(deployment.id)


def test_a_server_that_is_away_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "mix.yaml").write_text(yaml.safe_dump(config_values(tmp_path)))
    with socket.socket() as nobody:
        # Bound, and nobody listens: connections are refused.
        nobody.bind(("127.0.0.1", 0))
        away = {
            "PREFECT_API_URL": f"http://127.0.0.1:{nobody.getsockname()[1]}/api",
            "PREFECT_CLIENT_MAX_RETRIES": "0",
            "PREFECT_HOME": str(tmp_path / "home"),
        }
        done = subprocess.run(
            [sys.executable, "-m", "flows.serve", str(tmp_path / "mix.yaml")],
            env={**os.environ, **away},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.endswith("PREFECT_API_URL: no server answers there (ConnectError); start it, or set its API\n")
    assert "Traceback" not in done.stderr


def test_each_flow_run_is_told_where_the_config_is(
    tmp_path: Path, api: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[RunnerDeployment] = []
    monkeypatch.setattr(prefect, "serve", lambda deployment, **_: served.append(deployment))
    monkeypatch.setenv(serve.HEARTBEAT, serve.HEARTBEAT_SECONDS)
    (tmp_path / "mix.yaml").write_text(yaml.safe_dump(config_values(tmp_path)))
    monkeypatch.chdir(tmp_path)
    url = (tmp_path / "mix.yaml").as_uri()
    assert (serve.main(["mix.yaml"]), serve.main([url])) == (0, 0)
    assert [each.parameters for each in served] == [{"config": str(tmp_path / "mix.yaml")}, {"config": url}]


def test_what_cannot_be_served_is_refused_before_anything_is_deployed(
    tmp_path: Path, api: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = yaml.safe_dump(config_values(tmp_path))
    (tmp_path / "good.yaml").write_text(good)
    (tmp_path / "bad.yaml").write_text(good.replace("batch_size: 4", "batch_size: 0"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "30")
    assert serve.main(["bad.yaml"]) == 2
    said = f"{tmp_path}/bad.yaml:1: batch_size: expected a positive whole number, found 0\n"
    assert capsys.readouterr().err == said
    assert serve.main([(tmp_path / "bad.yaml").as_uri()]) == 2
    assert capsys.readouterr().err == f"file://{said}"
    assert serve.main([(tmp_path / "away.yaml").as_uri()]) == 2
    assert capsys.readouterr().err == f"file://{tmp_path}/away.yaml: no such file\n"
    for wrong in (["--cron", "every night"], ["--timezone", "Europe/Atlantis"]):
        assert serve.main(["good.yaml", *wrong]) == 2
        assert capsys.readouterr().err.startswith("--cron '")
    with temporary_settings({prefect.settings.PREFECT_API_URL: None}):
        assert serve.main(["good.yaml"]) == 2
        assert capsys.readouterr().err.startswith("PREFECT_API_URL: not set; start a server")
    nightly = DeploymentFilter(name=DeploymentFilterName(any_=["nightly"]))
    assert api.read_deployments(deployment_filter=nightly) == []
