from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from mixer.storage import Store, open_store
from mixer.testing import MemoryStore
from tests.storage.azure_server import CONTAINER, FakeAzure
from tests.storage.fake_server import running
from tests.storage.gcs_server import BUCKET, FakeGCS

_ADDRESSES = ["local", pytest.param("s3", marks=pytest.mark.s3), "gcs", "azure"]


@pytest.fixture(scope="session")
def _gcs() -> Iterator[FakeGCS]:
    with running(FakeGCS()) as service, pytest.MonkeyPatch.context() as patch:
        patch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
        for name, value in service.environment().items():
            patch.setenv(name, value)
        yield service


@pytest.fixture
def gcs(_gcs: FakeGCS) -> FakeGCS:
    """A fake of Google Cloud Storage that does no harm until it is told to; the environment leads there."""
    _gcs.reset()
    return _gcs


@pytest.fixture
def gcs_url(gcs: FakeGCS) -> str:
    """An empty place in the fake's bucket."""
    return f"gs://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def _azure() -> Iterator[FakeAzure]:
    with running(FakeAzure()) as service, pytest.MonkeyPatch.context() as patch:
        for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN"):
            patch.delenv(name, raising=False)
        for name, value in service.environment().items():
            patch.setenv(name, value)
        yield service


@pytest.fixture
def azure(_azure: FakeAzure) -> FakeAzure:
    """A fake of Azure Blob Storage that does no harm until it is told to; the environment leads there."""
    _azure.reset()
    return _azure


@pytest.fixture
def azure_url(azure: FakeAzure) -> str:
    """An empty place in the fake's container."""
    return f"az://{CONTAINER}/{uuid.uuid4().hex}"


@pytest.fixture(params=_ADDRESSES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty place in each kind of store that a process of its own can open."""
    if request.param == "local":
        return str(tmp_path / "store")
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture(params=[*_ADDRESSES, "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store of each kind."""
    if request.param == "memory":
        return MemoryStore()
    if request.param == "local":
        return open_store(str(tmp_path / "store"))
    return open_store(request.getfixturevalue(f"{request.param}_url"))
