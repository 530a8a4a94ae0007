"""What is particular to Google Cloud Storage, before a fake of its JSON interface."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from mixer.errors import StoreError, StoreUnavailableError
from mixer.storage import open_store
from mixer.storage.filesystems import filesystem_for
from mixer.storage.gcs import GCSStore
from mixer.storage.retry import RetryPolicy
from tests.storage.fake_server import Fault, Request
from tests.storage.gcs_server import BUCKET, FakeGCS

ONCE = RetryPolicy(attempts=1)


@pytest.fixture
def store(gcs_url: str) -> GCSStore:
    store = open_store(gcs_url)
    assert isinstance(store, GCSStore)
    return replace(store, policy=ONCE)


def about(request: Request) -> dict[str, Any]:
    """Return what an upload says of its object."""
    value: dict[str, Any] = json.loads(request.body.split(b"\r\n\r\n")[1].partition(b"\r\n")[0])
    return value


def md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def test_an_object_is_one_conditional_upload_with_its_checksum(gcs: FakeGCS, store: GCSStore) -> None:
    store.put("a", b"1")
    info = store.stat("a")
    assert info is not None
    for verb, condition in (
        (lambda: store.create("new", b"body"), "0"),
        (lambda: store.replace("a", b"body", info.version), info.version),
        (lambda: store.put("a", b"body"), None),
    ):
        gcs.reset()
        verb()
        (request,) = gcs.requests
        assert request.method == "POST"
        assert request.path == ("upload", "storage", "v1", "b", BUCKET, "o")
        assert request.query == {"uploadType": "multipart"} | ({"ifGenerationMatch": condition} if condition else {})
        assert about(request)["md5Hash"] == md5(b"body")


def test_so_is_one_that_gcsfs_would_send_in_parts(gcs: FakeGCS, store: GCSStore) -> None:
    # From 50 MiB on gcsfs itself begins a resumable upload.
    data = bytes(51 * 2**20)
    gcs.reset()
    assert store.create("large", data)
    (request,) = gcs.requests
    assert request.query == {"uploadType": "multipart", "ifGenerationMatch": "0"}
    assert about(request)["md5Hash"] == md5(data)
    assert store.get("large") == data
    assert len(gcs.requests) == 2
    store.delete("large")


def test_the_fake_refuses_what_gcsfs_would_send_by_itself(gcs: FakeGCS, store: GCSStore) -> None:
    with pytest.raises(OSError, match="multipart uploads only"):
        filesystem_for("gs").pipe_file(f"{BUCKET}/{store.prefix}large", bytes(51 * 2**20), mode="create")
    assert gcs.requests[0].query["uploadType"] == "resumable"


def test_a_body_that_was_hurt_on_its_way_is_not_stored(gcs: FakeGCS, store: GCSStore) -> None:
    gcs.reset(Fault.HURT)
    with pytest.raises(StoreUnavailableError, match="HTTP 400 BadDigest"):
        store.put("a", b"body" * 100)
    assert store.get("a") is None


def test_an_upload_is_not_sent_again_behind_our_back(gcs: FakeGCS, store: GCSStore) -> None:
    store.put("a", b"")
    gcs.reset(*[Fault.RESET] * 9, methods="POST")
    with pytest.raises(StoreUnavailableError, match="no answer after 1 tries"):
        store.put("a", b"1")
    assert gcs.methods() == ["POST"]


def test_an_answer_that_is_not_understood_is_asked_for_again(
    gcs: FakeGCS, store: GCSStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a", b"1")
    real, garbled = GCSStore._call, [(None, b"<html>"), (None, b"{")]

    def call(self: GCSStore, *args: str, **params: Any) -> object:
        return garbled.pop() if garbled else real(self, *args, **params)

    monkeypatch.setattr(GCSStore, "_call", call)
    patient = replace(store, policy=RetryPolicy(first_wait_s=0.001))
    assert [info.name for info in patient.list("")] == ["a"]


def test_an_endpoint_that_changes_in_the_environment_is_followed(
    gcs: FakeGCS, store: GCSStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert filesystem_for("gs") is filesystem_for("gcs")
    # Without a protocol, as Google's own tools take it too.
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"127.0.0.1:{gcs.port}")
    assert store.stat("a") is None
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:1")
    with pytest.raises(StoreUnavailableError):
        store.stat("a")


def test_credentials_that_are_not_understood_are_named_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mixer.storage.filesystems._filesystems", {})
    monkeypatch.setenv("GOOGLE_API_USE_MTLS_ENDPOINT", "hunter2")
    monkeypatch.setattr("gcsfs.core._use_client_cert", lambda: True)
    with pytest.raises(
        StoreError, match=r"not understood \(ValueError\); check GOOGLE_APPLICATION_CREDENTIALS"
    ) as caught:
        GCSStore("bucket").get("a")
    assert "hunter2" not in str(caught.value)
