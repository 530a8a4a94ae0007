"""A real Prefect server for the tests of flows, and its client."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest

from tests.flows.prefect_server import PrefectServer, running_prefect_server

# Prefect makes its home when it is imported; no test may touch the user's.
_HOME = tempfile.TemporaryDirectory(prefix="prefect-")
os.environ["PREFECT_HOME"] = _HOME.name
os.environ.pop("PREFECT_API_URL", None)

import prefect.settings  # noqa: E402 -- see above
from prefect.client.orchestration import SyncPrefectClient, get_client  # noqa: E402
from prefect.logging.handlers import APILogWorker  # noqa: E402
from prefect.settings import temporary_settings  # noqa: E402


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[PrefectServer]:
    """A server that nobody takes down."""
    with running_prefect_server() as server:
        yield server
        # What flows of this process have logged is sent while there is somebody to send it to.
        APILogWorker.drain_all(timeout=10)


@pytest.fixture
def api(prefect_server: PrefectServer) -> Iterator[SyncPrefectClient]:
    """A client of the server, and this process set up to use it."""
    settings = {
        prefect.settings.PREFECT_API_URL: prefect_server.api_url,
        # With them the end of a flow run waits for up to a second.
        prefect.settings.PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,
    }
    with temporary_settings(settings), get_client(sync_client=True) as client:
        yield client
