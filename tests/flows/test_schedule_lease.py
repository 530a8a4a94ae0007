"""A place among the flow runs that may work at once, held by one that died together with its server."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import prefect.settings
import pytest
from prefect.client.orchestration import get_client
from prefect.settings import temporary_settings
from prefect.states import Pending

from flows import serving
from tests.flows import nightly
from tests.flows.prefect_server import PrefectServer, running_prefect_server
from tests.flows.reading import eventually
from tests.profiles import LONG, sized

pytestmark = [pytest.mark.flows, pytest.mark.crash]

SETTINGS = {**nightly.LEASES_ON_DISK, **nightly.QUICK}
LONG_AGO = "2026-01-01T00:00:00+00:00"
WAIT_S = sized(short=60.0, long=420.0)
"""Prefect's leases last for 300 s."""


def let_time_pass(home: Path) -> None:
    """Make all leases of a server that is down run out."""
    for path in (home / ".prefect" / "concurrency_leases").glob("*.json"):
        values = json.loads(path.read_text())
        # Either a lease, or the index of all: when each of them runs out.
        known = {"expiration"} if "expiration" in values else set(values)
        path.write_text(json.dumps(values | dict.fromkeys(known, LONG_AGO)))


def is_taken(flow_run_id: UUID) -> bool:
    """Take a place for a flow run, as a worker does before it starts one; return whether there was one."""
    with get_client(sync_client=True) as api:
        api.set_flow_run_state(flow_run_id, Pending())
        return api.read_flow_run(flow_run_id).state_name == "Pending"


def test_the_next_night_is_made_though_a_flow_run_and_its_server_have_died(
    tmp_path: Path, prefect_server: PrefectServer
) -> None:
    with (
        running_prefect_server(like=prefect_server, home=tmp_path, settings=SETTINGS) as server,
        temporary_settings({prefect.settings.PREFECT_API_URL: server.api_url}),
    ):
        deployment = serving.deployment_of("mix.yaml", name="leased", cron="0 3 * * *", timezone="UTC").apply()
        assert isinstance(deployment, UUID)
        with get_client(sync_client=True) as api:
            first, second = (api.create_flow_run_from_deployment(deployment).id for _ in range(2))
        assert is_taken(first)
        assert not is_taken(second)
        server.kill()
    if not LONG:
        let_time_pass(tmp_path)
    with (
        running_prefect_server(home=tmp_path, settings=SETTINGS) as server,
        temporary_settings({prefect.settings.PREFECT_API_URL: server.api_url}),
    ):
        assert eventually(lambda: is_taken(second), bool, wait_s=WAIT_S)
