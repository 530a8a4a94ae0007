"""What the server is still to be told when a flow run is over: waited for, or given up."""

from __future__ import annotations

import queue
import time
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker

WAIT_SECONDS = 10.0
_POLL_SECONDS = 0.1
_DRAIN_SECONDS = 8.0
"""Prefect is done with a single event after about seven."""
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


def forget_unsent() -> None:
    """Give up the events and log lines that wait for a server which is gone.

    When the process exits Prefect would try to send each of them for some seconds, without any bound on the whole.
    """
    # There is no public way; Prefect is pinned to one minor version.
    services = tuple(EventsWorker._instances.values())  # type: ignore[misc]  # noqa: SLF001 -- see above
    for service in services:
        if isinstance(service, EventsWorker | APILogWorker):
            _empty(service._queue)  # noqa: SLF001 -- see above
    EventsWorker.drain_all(timeout=_DRAIN_SECONDS)
    APILogWorker.drain_all(timeout=_DRAIN_SECONDS)


def _empty(waiting: queue.Queue[Any]) -> None:
    while True:
        try:
            item = waiting.get_nowait()
        except queue.Empty:
            return
        waiting.task_done()
        if item is None:
            # It tells the service to end.
            waiting.put_nowait(None)
            return
