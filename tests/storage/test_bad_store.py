"""A store that takes no notice of conditions is refused; who accepts it gets what can be had without them.

It is also the negative control of the races: what passes on the other stores must fail on this one.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mixer.errors import OutputError, StoreError, StoreUnavailableError
from mixer.storage import CheckThenPutStore, LocalStore, Store, fit_to_write, open_store, probe_create_only
from mixer.testing import MemoryStore, OverwritingStore
from tests.rclone_server import RcloneServer
from tests.storage.test_races import assert_one_winner_each, race_threads

BOTH_SPELLINGS = r"accept the risk: --accept-unsafe-store, in Python accept_unsafe_store=True"
RISK = "two runs at the very same moment could overwrite each other's shards and commits"


@pytest.fixture(params=["memory", "local", pytest.param("rclone", marks=pytest.mark.s3)])
def bad_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store that heeds no condition."""
    if request.param == "rclone":
        return open_store(request.getfixturevalue("rclone_url"))
    return OverwritingStore(MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "store"))


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)


def test_it_is_refused_with_the_risk_and_both_spellings_of_the_option(bad_store: Store) -> None:
    with pytest.raises(OutputError, match=rf"refuse a second create .* accepted it; .* {RISK}; .* {BOTH_SPELLINGS}"):
        fit_to_write(bad_store, accept_unsafe=False)
    assert bad_store.list("") == []


def test_it_is_wrapped_if_the_risk_is_accepted(bad_store: Store) -> None:
    assert fit_to_write(bad_store, accept_unsafe=True) == CheckThenPutStore(bad_store)
    assert bad_store.list("") == []


def test_its_races_have_several_winners(bad_store: Store) -> None:
    """Or else the tests of races test nothing."""
    with pytest.raises(AssertionError, match=r"round \d: 2 winners"):
        assert_one_winner_each(bad_store, race_threads(bad_store, 2, 5), 5)


def test_accepting_the_risk_changes_nothing_where_there_is_none(store: Store) -> None:
    assert fit_to_write(store, accept_unsafe=True) is store
    assert store.list("") == []


def test_what_comes_second_is_refused_by_the_wrapped_store(bad_store: Store) -> None:
    store = CheckThenPutStore(bad_store)
    assert store.create("log/0", b"first")
    assert store.create("log/0", b"first")
    assert not store.create("log/0", b"other")
    assert not store.create("log/0", b"a longer one")
    assert store.get("log/0") == b"first"
    info = store.stat("log/0")
    assert info is not None
    assert store.replace("log/0", b"the second", info.version)
    assert store.replace("log/0", b"the second", info.version)
    assert not store.replace("log/0", b"one of equal", info.version)
    assert not store.replace("log/0", b"third", info.version)
    assert not store.replace("log/1", b"third", info.version)
    assert store.get("log/0") == b"the second"
    assert [info.name for info in store.list("log/")] == ["log/0"]
    probe_create_only(store)


def test_a_put_that_did_not_last_is_no_success() -> None:
    class Forgetful(OverwritingStore):
        def put(self, name: str, data: bytes) -> None:
            super().put(name, data[:-1])

    store = CheckThenPutStore(Forgetful(MemoryStore()))
    assert not store.create("a", b"1")


def test_the_wrapped_store_gives_what_lies_below(store: Store) -> None:
    wrapped = CheckThenPutStore(store)
    wrapped.put("a", b"0123456789")
    assert wrapped.url == store.url
    assert wrapped.get("a") == b"0123456789"
    assert wrapped.get_range("a", 2, 5) == b"234"
    assert wrapped.stat("a") == store.stat("a")
    assert wrapped.list("", after="A") == store.list("")
    wrapped.delete("a")
    assert wrapped.list("") == []


@pytest.mark.usefixtures("no_links")
def test_a_disk_without_hard_links_is_refused_with_the_option_and_works_with_it(tmp_path: Path) -> None:
    disk = LocalStore(tmp_path)
    with pytest.raises(OutputError, match=rf"refuses hard links .* {RISK}; .* {BOTH_SPELLINGS}"):
        fit_to_write(disk, accept_unsafe=False)
    store = fit_to_write(disk, accept_unsafe=True)
    assert isinstance(store, CheckThenPutStore)
    assert store.create("log/0", b"first")
    assert not store.create("log/0", b"other")
    assert [info.name for info in disk.list("")] == ["log/0"]
    assert list((tmp_path / ".mixer" / "tmp").iterdir()) == []


class Refusing(MemoryStore):
    """A store that answers that it does not know conditional requests, or any, or nothing."""

    def __init__(self, create: StoreError, put: StoreError | None = None) -> None:
        super().__init__()
        self._create, self._put = create, put

    def create(self, name: str, data: bytes) -> bool:
        raise self._create

    def put(self, name: str, data: bytes) -> None:
        if self._put is not None:
            raise self._put
        super().put(name, data)


def test_a_store_that_does_not_know_the_condition_is_refused_with_the_option() -> None:
    store = Refusing(StoreError("create a: refused (HTTP 501 NotImplemented)"))
    with pytest.raises(OutputError, match=rf"HTTP 501 .* {RISK}; .* {BOTH_SPELLINGS}"):
        fit_to_write(store, accept_unsafe=False)
    assert isinstance(fit_to_write(store, accept_unsafe=True), CheckThenPutStore)
    assert store.objects == {}


@pytest.mark.parametrize(
    ("create", "put"),
    [
        (StoreError("create: access denied"), StoreError("put: access denied")),
        (StoreUnavailableError("create: no answer"), None),
    ],
)
def test_a_store_that_cannot_be_used_at_all_says_so_and_names_no_option(
    create: StoreError, put: StoreError | None
) -> None:
    for accept in (False, True):
        with pytest.raises(StoreError) as caught:
            fit_to_write(Refusing(create, put), accept_unsafe=accept)
        assert caught.value is create


def test_no_option_lets_a_store_pass_that_loses_objects() -> None:
    class Forgetful(MemoryStore):
        def get(self, name: str) -> bytes | None:
            return None

    with pytest.raises(OutputError, match="does not keep what was created") as caught:
        fit_to_write(Forgetful(), accept_unsafe=True)
    assert "--accept-unsafe-store" not in str(caught.value)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("before", ["create", "get"])
def test_a_probe_whose_object_is_tidied_away_is_made_again(
    monkeypatch: pytest.MonkeyPatch, times: int, before: str
) -> None:
    store = MemoryStore()
    honest = getattr(MemoryStore, before)
    tidied = 0

    def tidied_first(self: MemoryStore, name: str, *data: bytes) -> object:
        nonlocal tidied
        if name in self.objects and tidied < times:
            tidied += 1
            del self.objects[name]
        return honest(self, name, *data)

    monkeypatch.setattr(MemoryStore, before, tidied_first)
    probe_create_only(store)
    assert tidied == times


@pytest.mark.s3
def test_the_bad_server_heeds_no_condition(rclone_server: RcloneServer, rclone_url: str) -> None:
    store = open_store(rclone_url)
    assert store.create("a", b"first")
    assert store.create("a", b"second")
    assert store.replace("a", b"third", "a version that never was")
    assert store.get("a") == b"third"
    assert (rclone_server.folder / rclone_url.removeprefix("s3://") / "a").read_bytes() == b"third"
