"""At the end of a run the server gets the time to record it; one that is gone gets none."""

from __future__ import annotations

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.events import emit_event
from prefect.events.worker import EventsWorker

from flows.premix import run
from flows.recording import forget_unsent, wait_until_recorded
from mixer.config import MixConfig
from tests.flows.gate import Gate
from tests.flows.reading import eventually, flow_runs

pytestmark = pytest.mark.flows


def test_task_runs_are_waited_for_until_they_are_recorded(config: MixConfig, api: SyncPrefectClient) -> None:
    run(config)
    [flow_run] = flow_runs(api, config.output)
    assert wait_until_recorded(flow_run.id, 4)
    assert not wait_until_recorded(flow_run.id, 40, seconds=0.2)


@pytest.mark.timeout(120)
def test_a_server_that_is_gone_is_not_waited_for(gate: Gate) -> None:
    # The worker that other tests have used knows another server.
    EventsWorker.drain_all(timeout=120)
    gate.open()
    worker = EventsWorker.instance()
    send()
    eventually(lambda: worker._queue.unfinished_tasks, lambda left: left == 0)
    gate.shut()
    for _ in range(100):
        send()
    forget_unsent()
    assert worker._done_event is not None
    assert eventually(worker._done_event.is_set, bool)
    assert worker._queue.empty()


def send() -> None:
    emit_event("mixer.tried", resource={"prefect.resource.id": "mixer"})
