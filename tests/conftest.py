"""What tests of several folders share."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from mixer import building
from mixer.config import MixConfig
from mixer.storage.s3 import S3Store
from mixer.testing import MemoryStore
from tests import figures as counted
from tests.fault_proxy import FaultProxy, running_fault_proxy
from tests.garbage import Use
from tests.mixes import mix_config
from tests.rclone_server import RcloneServer, running_rclone_server
from tests.s3_server import BUCKET, S3Server, running_s3_server

# How long an example takes says more about the machine than about the code.
settings.register_profile("mixer", deadline=None)
settings.load_profile("mixer")

_LONGEST_FIRST = ("install", "flows", "crash", "s3")
"""Marks, by how long the files that hold them take."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let what takes longest begin first, so that no process is left alone with it at the end."""
    ranks: dict[str, int] = {}
    for item in items:
        marks = [_LONGEST_FIRST.index(mark.name) for mark in item.iter_markers() if mark.name in _LONGEST_FIRST]
        file = item.nodeid.partition("::")[0]
        ranks[file] = min([ranks.get(file, len(_LONGEST_FIRST)), *marks])
    items.sort(key=lambda item: ranks[item.nodeid.partition("::")[0]])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what tests have counted; their reports carry it, from whatever process they ran in."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    # The last report of each test, which holds what was counted in its fixtures as well.
    last = [report for report in reports if getattr(report, "when", None) == "teardown"]
    lines = counted.lines(named for report in last for named in report.user_properties)
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> counted.Note:
    """Count for the end: a group, and numbers by name."""
    return lambda group, counts: record_property(counted.PROPERTY, [group, dict(counts)])


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Make every output a given store."""
    return lambda store: monkeypatch.setattr("mixer.building.open_store", lambda url: store)


@pytest.fixture
def whole(config: MixConfig, use: Use) -> dict[str, bytes]:
    """The objects of an unbroken run of the `config` of a test's own file."""
    store = MemoryStore()
    use(store)
    building.build(config)
    return dict(store.objects)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A real S3 server; the environment, and so that of child processes, leads to it from the first use on."""
    with running_s3_server() as server, pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_PROFILE", raising=False)
        patch.delenv("AWS_SESSION_TOKEN", raising=False)
        for name, value in server.environment().items():
            patch.setenv(name, value)
        # The first object of a bucket costs the server 0.2 s; no test should pay for it.
        S3Store(BUCKET).put("first", b"")
        yield server


@pytest.fixture
def s3_url(s3_server: S3Server) -> str:
    """An empty place in the server's bucket."""
    # A test whose patches began before the server did has taken the way to it out of the environment when it ended.
    for name, value in s3_server.environment().items():
        os.environ.setdefault(name, value)
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def _running_fault_proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    with running_fault_proxy(s3_server.port) as proxy:
        yield proxy


@pytest.fixture
def fault_proxy(_running_fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> FaultProxy:
    """A proxy before the S3 server that does no harm until it is told to; the environment leads through it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", _running_fault_proxy.endpoint_url)
    _running_fault_proxy.reset()
    return _running_fault_proxy


@pytest.fixture(scope="session")
def _running_rclone_server() -> Iterator[RcloneServer]:
    with running_rclone_server() as server:
        yield server


@pytest.fixture
def rclone_server(_running_rclone_server: RcloneServer, monkeypatch: pytest.MonkeyPatch) -> RcloneServer:
    """A real S3 server that heeds no condition; the environment leads to it for as long as the test."""
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    for name, value in _running_rclone_server.environment().items():
        monkeypatch.setenv(name, value)
    return _running_rclone_server


@pytest.fixture
def rclone_url(rclone_server: RcloneServer) -> str:
    """An empty place in the bad server's bucket."""
    assert rclone_server.process_id
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a small run that is complete; nobody writes to it."""
    folder = tmp_path_factory.mktemp("finished")
    building.build(mix_config(folder))
    return folder / "out"


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    """A finished run, to be damaged."""
    return Path(shutil.copytree(finished, tmp_path / "out"))
