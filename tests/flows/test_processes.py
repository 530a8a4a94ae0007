"""Flows in processes of their own: killed and run again, with a server that dies, and with no server set up at all."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from prefect.client.orchestration import SyncPrefectClient

from flows.artifacts import artifact_key
from flows.premix import run
from mixer import building
from mixer.building import RunSummary
from mixer.config import MixConfig
from mixer.core.commits import Commit
from tests.flows.outputs import SHARDS, shard_bytes
from tests.flows.prefect_server import PrefectServer, bare_environment, running_prefect_server
from tests.flows.reading import eventually, flow_runs, shown_shards

pytestmark = [pytest.mark.flows, pytest.mark.crash]

ROOT = Path(__file__).parents[2]
KILLED = -9


@dataclass(frozen=True, slots=True)
class Ended:
    """A child that has ended."""

    exit_code: int
    shards: list[int]
    head: str | None
    stderr: str


def run_child(config: MixConfig, environment: dict[str, str], *, kills: int | None = None, at: int = -1) -> Ended:
    """Run the flow in a process of its own; see `tests.flows.child` for what it kills."""
    path = Path(config.output).with_name("config.json")
    path.write_text(config.model_dump_json())
    arguments = [] if kills is None else [str(kills), str(at)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.flows.child", str(path), *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = done.stdout.split("\n")
    last = json.loads(lines[-2]) if done.returncode == 0 else {"head": None}
    return Ended(done.returncode, [int(line) for line in lines if line.isdecimal()], last["head"], done.stderr)


def test_a_flow_that_was_killed_and_is_run_again_makes_the_same_bytes(
    config: MixConfig, unbroken: RunSummary, prefect_server: PrefectServer, api: SyncPrefectClient
) -> None:
    killed = run_child(config, prefect_server.environment(), kills=0, at=4)
    assert (killed.exit_code, killed.shards) == (KILLED, [0, 1, 2, 3, 4])
    heard: list[Commit] = []
    assert run(config, on_commit=heard.append).head == unbroken.head
    assert shard_bytes(config.output) == shard_bytes(unbroken.output)
    assert heard[0].shard in {5, 6}
    assert [flow_run.state_name for flow_run in flow_runs(api, config.output)] == ["Running", "Completed"]
    shown = shown_shards(api, artifact_key(config.output, building.existing(config.output)[1].fingerprint))
    assert shown == sorted(set(shown))
    assert shown[-13:] == list(range(5, SHARDS))


def test_a_run_whose_server_dies_in_the_middle_is_finished(
    config: MixConfig, unbroken: RunSummary, prefect_server: PrefectServer
) -> None:
    with running_prefect_server(like=prefect_server) as mortal:
        ended = run_child(config, mortal.environment(), kills=-mortal.process_id, at=4)
    assert (ended.exit_code, ended.head) == (0, unbroken.head)
    assert shard_bytes(config.output) == shard_bytes(unbroken.output)
    assert ended.shards == list(range(SHARDS))
    assert "the Prefect server could not be told of a commit; the run goes on" in ended.stderr
    assert "the Prefect server was not told how the flow run ended" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "ERROR" not in ended.stderr


def processes_at(home: Path) -> list[str]:
    """Return the commands of all processes that have `home` for their home."""
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"HOME={home}\0".encode() in process.joinpath("environ").read_bytes():
                commands.append(process.joinpath("cmdline").read_bytes().decode().replace("\0", " "))
    return commands


def completed_task_runs(home: Path) -> list[str]:
    """Return the task runs of the last flow run that a server which is gone has recorded as completed."""
    with closing(sqlite3.connect(home / ".prefect" / "prefect.db")) as database:
        found = database.execute(
            "SELECT name FROM task_run WHERE state_type = 'COMPLETED' "
            "AND flow_run_id = (SELECT id FROM flow_run ORDER BY created DESC LIMIT 1)"
        )
        return [name for (name,) in found]


def test_with_no_server_set_up_a_run_is_finished_recorded_and_quiet(
    config: MixConfig, unbroken: RunSummary, tmp_path: Path
) -> None:
    ended = run_child(config, bare_environment(tmp_path))
    assert (ended.exit_code, ended.head, ended.stderr) == (0, unbroken.head, "")
    assert shard_bytes(config.output) == shard_bytes(unbroken.output)
    assert {"open", "finish"} <= set(completed_task_runs(tmp_path))
    assert processes_at(tmp_path) == []


def test_a_run_that_is_killed_leaves_no_server_of_its_own_behind(tmp_path: Path) -> None:
    # It need not answer yet: the run is killed as soon as it has begun to start.
    dying = """
import os, signal
from flows import embedded
def end(process_id):
    ends(process_id)
    os.kill(os.getpid(), signal.SIGKILL)
ends, embedded._end_with_this_process = embedded._end_with_this_process, end
embedded.start_embedded_server()
"""
    died = subprocess.run([sys.executable, "-c", dying], cwd=ROOT, env=bare_environment(tmp_path), check=False)
    assert died.returncode == KILLED
    assert eventually(lambda: processes_at(tmp_path), lambda found: found == []) == []
