"""A real Prefect server for the tests of flows, and its client."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mixer import building
from mixer.building import RunSummary
from mixer.config import MixConfig
from tests.flows.gate import Gate, gate_to
from tests.flows.outputs import SHARDS
from tests.flows.prefect_server import PrefectServer, running_prefect_server
from tests.mixes import mix_config

_HERE = Path(__file__).parent

# Prefect makes its home when it is imported; no test may touch the user's.
_HOME = tempfile.TemporaryDirectory(prefix="prefect-")
os.environ["PREFECT_HOME"] = _HOME.name
os.environ.pop("PREFECT_API_URL", None)

import prefect.settings  # noqa: E402 -- see above
from prefect.client.orchestration import SyncPrefectClient, get_client  # noqa: E402
from prefect.logging.handlers import APILogWorker  # noqa: E402
from prefect.settings import temporary_settings  # noqa: E402

_SHARED: list[tuple[ExitStack, PrefectServer]] = []
"""The server that tests share, if it runs, and what stops it."""


@pytest.fixture
def prefect_server() -> PrefectServer:
    """A server that nobody takes down."""
    if not _SHARED:
        stack = ExitStack()
        server = stack.enter_context(running_prefect_server())
        # What flows of this process have logged is sent while there is somebody to send it to.
        stack.callback(APILogWorker.drain_all, timeout=10)
        _SHARED.append((stack, server))
    return _SHARED[0][1]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Stop the server once tests of other things follow: it takes half a core even when nobody asks it anything."""
    if _SHARED and (nextitem is None or nextitem.path.parent != _HERE):
        _SHARED.pop()[0].close()


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


@pytest.fixture
def gate(prefect_server: PrefectServer) -> Iterator[Gate]:
    """A shut gate before the server, which this process takes for the server."""
    with gate_to(prefect_server.port) as gate, temporary_settings({prefect.settings.PREFECT_API_URL: gate.api_url}):
        yield gate


@pytest.fixture
def config(tmp_path: Path) -> MixConfig:
    """A small run."""
    return mix_config(tmp_path, batches=SHARDS, batches_per_shard=1)


@pytest.fixture
def unbroken(config: MixConfig, tmp_path: Path) -> RunSummary:
    """What the bare engine makes of `config` elsewhere, in one go."""
    return building.build(config.model_copy(update={"output": str(tmp_path / "unbroken")}))
