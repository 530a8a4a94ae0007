"""What a Prefect server holds, read back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterKey,
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterName,
)
from prefect.client.schemas.objects import Artifact, FlowRun, TaskRun
from prefect.client.schemas.sorting import FlowRunSort

T = TypeVar("T")
_WAIT_S = 120.0


def eventually(ask: Callable[[], T], is_there: Callable[[T], bool], *, wait_s: float = _WAIT_S) -> T:
    """Return the first answer that `is_there`, or the last one: a server records some things with a delay."""
    deadline_s = time.monotonic() + wait_s
    while not is_there(answer := ask()) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return answer


def versions(client: SyncPrefectClient, key: str) -> list[Artifact]:
    """Return the versions of an artifact, oldest first."""
    wanted = ArtifactFilter(key=ArtifactFilterKey(any_=[key]))
    found = client.read_artifacts(artifact_filter=wanted, limit=200)
    return sorted(found, key=lambda artifact: str(artifact.created))


def shown_shards(client: SyncPrefectClient, key: str) -> list[int]:
    """Return the shards that the versions of a run's state are of, in the order in which they came."""
    return [table(artifact)[0]["shard"] for artifact in versions(client, f"{key}-state")]


def table(artifact: Artifact) -> list[dict[str, Any]]:
    """Return the rows of a table."""
    rows: list[dict[str, Any]] = json.loads(str(artifact.data))
    return rows


def flow_runs(client: SyncPrefectClient, output: str) -> list[FlowRun]:
    """Return the flow runs that wrote to `output`, oldest first."""
    wanted = FlowRunFilter(name=FlowRunFilterName(any_=[f"premix {output}"]))
    return client.read_flow_runs(flow_run_filter=wanted, sort=FlowRunSort.START_TIME_ASC)


def task_runs(client: SyncPrefectClient, flow_run_id: UUID, *, count: int) -> list[TaskRun]:
    """Return the task runs of a flow run, when `count` of them have ended."""
    wanted = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id]))

    def ended() -> list[TaskRun]:
        found = client.read_task_runs(flow_run_filter=wanted)
        return [run for run in found if run.state is not None and run.state.is_final()]

    return eventually(ended, lambda found: len(found) >= count)
