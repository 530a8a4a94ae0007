"""`mixer run` as people use it: the flow below, one clean result above."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prefect.client.orchestration import SyncPrefectClient

from mixer import building
from tests.flows.prefect_server import PrefectServer
from tests.mixes import SHARDS, config_file, mix_config

pytestmark = pytest.mark.flows

MIXER = str(Path(sys.executable).with_name("mixer"))
SLOW_RUN = str(Path(__file__).parent.parent / "cli" / "slow_run.py")
MANY_SHARDS = {"batches": 18, "batches_per_shard": 1, "batch_size": 4}


def state_of_the_run(api: SyncPrefectClient, output: str) -> str | None:
    (found,) = [run for run in api.read_flow_runs() if run.name == f"premix {output}"]
    return found.state.name if found.state else None


@pytest.mark.crash
def test_a_signal_stops_the_flow_at_a_shards_edge_and_it_is_cancelled(
    tmp_path: Path, prefect_server: PrefectServer, api: SyncPrefectClient
) -> None:
    whole = building.build(mix_config(tmp_path, output=str(tmp_path / "whole"), **MANY_SHARDS))
    config = config_file(tmp_path, **MANY_SHARDS)
    process = subprocess.Popen(
        [sys.executable, SLOW_RUN, "run", config, "--json"],
        env=prefect_server.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not list((tmp_path / "out/.mixer/log").glob("*2.json")):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)

    assert process.returncode == 143
    value = json.loads(out)
    assert value["error"]["type"] == "Stopped"
    assert 2 <= value["committed"] < 18
    first, *rest = err.strip().splitlines()
    assert first.startswith("SIGTERM: stopping after the shard under way")
    assert [line for line in rest if not line.startswith("shard ")] == [f"mixer: {value['error']['message']}"]
    assert state_of_the_run(api, str(tmp_path / "out")) == "Cancelled"

    assert building.build(mix_config(tmp_path, **MANY_SHARDS)).head == whole.head


def test_on_a_terminal_nothing_stands_between_bar_and_result(tmp_path: Path, prefect_server: PrefectServer) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [MIXER, "run", config_file(tmp_path), "--json"],
        env={**prefect_server.environment(), "TERM": "xterm", "COLUMNS": "120", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            said += os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
    os.close(ours)
    out, _ = process.communicate(timeout=120)

    assert process.returncode == 0
    assert json.loads(out)["committed"] == SHARDS
    repaints = [line for line in said.decode().replace("\x1b[2K", "\n").replace("\r", "\n").splitlines() if line]
    assert any("shard 4 of 4" in line for line in repaints)
    shown = [line for line in repaints if "starting Prefect" not in line and "shard " not in line]
    assert [line for line in shown if not line.startswith("\x1b[?25")] == []


def test_an_error_from_inside_the_flow_is_the_same_as_from_the_bare_engine(
    tmp_path: Path, prefect_server: PrefectServer
) -> None:
    config = config_file(tmp_path, batches=1000)
    answers = [
        subprocess.run(
            [MIXER, "run", config, *options],
            env=prefect_server.environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        for options in ([], ["--no-prefect"])
    ]
    assert [answer.returncode for answer in answers] == [5, 5]
    assert answers[0].stderr == answers[1].stderr
    assert answers[0].stdout == ""
