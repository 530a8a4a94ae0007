"""Answers that are shorter than the store says its object is: no library below may let one through as whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mixer.errors import StoreUnavailableError
from mixer.storage import open_store
from mixer.storage.azure import AzureStore
from mixer.storage.gcs import GCSStore
from mixer.storage.remote import RemoteStore
from mixer.storage.retry import RetryPolicy
from mixer.storage.s3 import S3Store

QUICK = RetryPolicy(attempts=3, first_wait_s=0.001, max_wait_s=0.005)
DATA = bytes(range(200))
READS: dict[str, Callable[[RemoteStore], bytes | None]] = {
    "get": lambda store: store.get("a"),
    "get_range": lambda store: store.get_range("a", 10, 90),
    "get_range past the end": lambda store: store.get_range("a", 10, 900),
}
EXPECTED = {"get": DATA, "get_range": DATA[10:90], "get_range past the end": DATA[10:]}


@pytest.fixture(params=[pytest.param("s3", marks=pytest.mark.s3), "gcs", "azure"])
def store(request: pytest.FixtureRequest) -> RemoteStore:
    """A store that is not very patient, with an object in it."""
    store = open_store(request.getfixturevalue(f"{request.param}_url"))
    assert isinstance(store, RemoteStore)
    store.put("a", DATA)
    return replace(store, policy=QUICK)


def shorten(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Cut the last byte off so many bodies, as a library would that takes a closed connection for the end."""
    left = iter(range(times))

    def cut(data: bytes) -> bytes:
        return data[:-1] if next(left, None) is not None else data

    body, media, download = S3Store._body, GCSStore._media, AzureStore._download

    def cut_media(self: GCSStore, key: str, **headers: str) -> tuple[Any, bytes]:
        found, data = media(self, key, **headers)
        return found, cut(data)

    def cut_download(self: AzureStore, key: str, **which: int) -> tuple[bytes, Any]:
        data, headers = download(self, key, **which)
        return cut(data), headers

    monkeypatch.setattr(S3Store, "_body", lambda self, response: cut(body(self, response)))
    monkeypatch.setattr(GCSStore, "_media", cut_media)
    monkeypatch.setattr(AzureStore, "_download", cut_download)


@pytest.mark.parametrize("read", READS)
def test_a_short_answer_is_asked_for_again(store: RemoteStore, monkeypatch: pytest.MonkeyPatch, read: str) -> None:
    shorten(monkeypatch, times=2)
    assert READS[read](store) == EXPECTED[read]


@pytest.mark.parametrize("read", READS)
def test_answers_that_stay_short_are_no_objects(store: RemoteStore, monkeypatch: pytest.MonkeyPatch, read: str) -> None:
    shorten(monkeypatch, times=99)
    with pytest.raises(StoreUnavailableError, match=r"no answer after 3 tries.*expected "):
        READS[read](store)
