"""What is particular to Azure Blob Storage, before a fake of its REST interface."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace

import pytest

from mixer.errors import StoreError, StoreUnavailableError
from mixer.storage import open_store
from mixer.storage.azure import AzureStore
from mixer.storage.filesystems import filesystem_for
from mixer.storage.retry import RetryPolicy
from tests.storage.azure_server import ACCOUNT, ACCOUNT_KEY, CONTAINER, FakeAzure
from tests.storage.fake_server import Fault
from tests.storage.test_clouds import fill, found

ONCE = RetryPolicy(attempts=1)


@pytest.fixture
def store(azure_url: str) -> AzureStore:
    store = open_store(azure_url)
    assert isinstance(store, AzureStore)
    return replace(store, policy=ONCE)


@pytest.fixture
def no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that knows of no account."""
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING", raising=False)


def md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def test_an_object_is_one_conditional_upload_with_its_checksum(azure: FakeAzure, store: AzureStore) -> None:
    store.put("a", b"1")
    info = store.stat("a")
    assert info is not None
    for verb, conditions in (
        (lambda: store.create("new", b"body"), {"if-none-match": "*"}),
        (lambda: store.replace("a", b"body", info.version), {"if-match": f'"{info.version}"'}),
        (lambda: store.put("a", b"body"), {}),
    ):
        azure.reset()
        verb()
        (request,) = azure.requests
        assert request.method == "PUT"
        assert request.query == {}
        assert {name: value for name, value in request.headers.items() if name.startswith("if-")} == conditions
        assert request.headers["content-md5"] == request.headers["x-ms-blob-content-md5"] == md5(b"body")


def test_so_is_one_that_the_sdk_would_send_in_blocks(azure: FakeAzure, store: AzureStore) -> None:
    # From 64 MiB on the SDK by itself puts blocks, and the list of them.
    data = bytes(65 * 2**20)
    azure.reset()
    assert store.create("large", data)
    (request,) = azure.requests
    assert (request.method, request.query, request.headers["if-none-match"]) == ("PUT", {}, "*")
    assert request.headers["content-md5"] == md5(data)
    assert store.get("large") == data
    assert len(azure.requests) == 2
    store.delete("large")


def test_more_than_one_upload_takes_is_refused_before_it_is_sent(
    azure: FakeAzure, store: AzureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mixer.storage.azure.PUT_BYTES_MAX", 10)
    for verb in (store.put, store.create):
        with pytest.raises(StoreError, match=r"expected at most 10 bytes.*found 11; make the shards smaller"):
            verb("a", b"x" * 11)
    assert azure.requests == []


def test_a_body_that_was_hurt_on_its_way_is_not_stored(azure: FakeAzure, store: AzureStore) -> None:
    azure.reset(Fault.HURT)
    with pytest.raises(StoreUnavailableError, match="HTTP 400 Md5Mismatch"):
        store.put("a", b"body" * 100)
    assert store.get("a") is None


def test_a_blob_that_another_holds_a_lease_on_is_named(azure: FakeAzure, store: AzureStore) -> None:
    store.put("a", b"1")
    info = store.stat("a")
    assert info is not None
    azure.leased.add(f"{store.prefix}a")
    for verb in (lambda: store.put("a", b"2"), lambda: store.replace("a", b"2", info.version)):
        with pytest.raises(StoreError, match=r"put az://container/.*/a: refused .*lease.*check what holds the blob"):
            verb()


def test_the_account_is_that_of_the_address_or_of_the_environment(
    no_account: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY)
    named = filesystem_for("abfss", account="acme")
    assert named.service_client.url == "https://acme.blob.core.windows.net/"
    assert named is filesystem_for("az", account="acme")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "other")
    assert filesystem_for("az").service_client.url == "https://other.blob.core.windows.net/"
    assert filesystem_for("az", account="acme").service_client.account_name == "acme"


def test_an_account_that_is_named_twice_must_be_the_same(azure: FakeAzure) -> None:
    assert AzureStore(CONTAINER, "x/", account=ACCOUNT).stat("a") is None
    expected = rf"names the account 'acme', AZURE_STORAGE_CONNECTION_STRING names '{ACCOUNT}'; leave one of them out"
    with pytest.raises(StoreError, match=expected) as caught:
        AzureStore(CONTAINER, "x/", account="acme").stat("a")
    assert ACCOUNT_KEY not in str(caught.value)


def test_no_account_at_all_is_told_with_what_to_set(no_account: None) -> None:
    with pytest.raises(StoreError, match="expected to know the account; set AZURE_STORAGE_CONNECTION_STRING"):
        AzureStore(CONTAINER).stat("a")


def test_settings_that_are_not_understood_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountKey=hunter2;nonsense")
    with pytest.raises(StoreError, match=r"not understood .*; check AZURE_STORAGE_CONNECTION_STRING") as caught:
        AzureStore(CONTAINER).stat("a")
    assert "hunter2" not in f"{caught.value} {caught.value.__cause__}"


def test_a_key_that_cannot_sign_is_refused_at_once(azure: FakeAzure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "AZURE_STORAGE_CONNECTION_STRING",
        azure.environment()["AZURE_STORAGE_CONNECTION_STRING"].replace(ACCOUNT_KEY, "hunter2"),
    )
    with pytest.raises(StoreError, match="no usable credentials: set AZURE_STORAGE_CONNECTION_STRING") as caught:
        AzureStore(CONTAINER).stat("a")
    assert "hunter2" not in f"{caught.value} {caught.value.__cause__}"
    assert azure.requests == []


def test_folders_of_a_hierarchical_account_are_no_objects(
    azure: FakeAzure, store: AzureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(azure, "hierarchical", True)
    names = ["data/a.parquet", "data/deep/er/b.parquet", "log/0"]
    fill(store, *names)
    assert [info.name for info in store.list("")] == names
    assert [info.name for info in store.list("data/")] == names[:2]
    for folder in ("data", "data/deep"):
        assert store.stat(folder) is None
        assert store.get(folder) is None
        store.delete(folder)
        with pytest.raises(StoreError, match="there is no such object"):
            store.get_range(folder, 0, 0)
    assert found(f"{store.url}/data", store) == names[:2]
    assert found(f"{store.url}/*/*.parquet", store) == names[:1]
    assert store.get("log/0") == b"log/0" * 10
