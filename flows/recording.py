"""Waiting until a server that ends with this process has recorded what was done in it."""

from __future__ import annotations

import time
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client

WAIT_SECONDS = 10.0
_POLL_SECONDS = 0.1
_FINAL = ["COMPLETED", "FAILED", "CRASHED", "CANCELLED"]


def wait_until_recorded(flow_run_id: UUID, task_runs: int, *, seconds: float = WAIT_SECONDS) -> bool:
    """Wait until `task_runs` task runs of a flow run have ended in the server's records; return whether they have.

    Task runs reach the server as events, some time after they ended, and one that is shut down forgets what it has
    not recorded.
    """
    ended = {"flow_runs": {"id": {"any_": [str(flow_run_id)]}}, "task_runs": {"state": {"type": {"any_": _FINAL}}}}
    deadline = time.monotonic() + seconds
    try:
        with get_client(sync_client=True) as client:
            while time.monotonic() < deadline:
                if client.request("POST", "/task_runs/count", json=ended).json() >= task_runs:
                    return True
                time.sleep(_POLL_SECONDS)
    except httpx.HTTPError:
        pass
    return False
