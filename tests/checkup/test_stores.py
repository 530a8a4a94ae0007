"""A store is tried: what it does not keep is found, and what was tried on it is gone afterwards."""

from __future__ import annotations

import pytest

from mixer.checkup.base import Check, Checks
from mixer.checkup.stores import RACES, store_checks
from mixer.errors import StoreError
from mixer.storage import LocalStore, ObjectInfo, Store, open_store
from mixer.storage.facts import impatient
from mixer.testing import MemoryStore, OverwritingStore

NAMES = ["create", "create at once", "replace", "read and list", "delete"]


def states(store: Store) -> dict[str, str]:
    return {check.name: check.state for check in store_checks(store)}


def found(store: Store, name: str) -> Check:
    return next(check for check in store_checks(store) if check.name == name)


@pytest.mark.parametrize("where", ["disk", "memory", pytest.param("s3", marks=pytest.mark.s3)])
def test_a_good_store_passes_and_is_left_as_it_was(
    where: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    store: Store = MemoryStore()
    if where != "memory":
        url = request.getfixturevalue("s3_url") if where == "s3" else str(tmp_path_factory.mktemp("out"))
        store = open_store(url)
    store.put("data/shard-00000000.parquet", b"PAR1")
    before = store.list("")
    assert states(store) == dict.fromkeys(NAMES, "ok")
    assert store.list("") == before
    if isinstance(store, LocalStore):
        assert store.leftovers() == ()


def test_a_store_that_overwrites_fails() -> None:
    store = MemoryStore()
    checks = {check.name: check for check in store_checks(OverwritingStore(store))}
    assert {name: check.state for name, check in checks.items()} == {
        "create": "failed",
        "create at once": "failed",
        "replace": "warning",
        "read and list": "ok",
        "delete": "ok",
    }
    assert checks["create"].found == "a second create of one name went through"
    assert "two runs at the very same moment could overwrite each other's shards" in checks["create"].advice
    assert checks["create at once"].found == "of two creates of one name at once 2 went through, in race 1"
    assert checks["replace"].found == "an object that had changed was replaced"
    assert store.objects == {}


@pytest.mark.s3
def test_a_real_server_that_ignores_conditions_fails(rclone_url: str) -> None:
    store = impatient(open_store(rclone_url))
    found_states = states(store)
    assert (found_states["create"], found_states["create at once"]) == ("failed", "failed")
    assert store.list("") == []


class Racy(MemoryStore):
    """A store that refuses a second create, unless both come at once: it looks first and writes then."""

    def __init__(self) -> None:
        super().__init__()
        self.races = 0

    def create(self, name: str, data: bytes) -> bool:
        if data in {b"one", b"two"}:
            self.races += 1
            if self.races > 2 * (RACES - 1):
                self.put(name, data)
                return True
        return super().create(name, data)


def test_a_store_that_is_wrong_in_one_race_fails() -> None:
    check = found(Racy(), "create at once")
    assert (check.state, check.found) == (
        "failed",
        f"of two creates of one name at once 2 went through, in race {RACES}",
    )


class Forgetful(MemoryStore):
    """A store that breaks one promise."""

    def __init__(self, verb: str) -> None:
        super().__init__()
        self.verb = verb

    def get(self, name: str) -> bytes | None:
        data = super().get(name)
        return data[:-1] if data and self.verb == "get" else data

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        return super().get_range(name, start, stop) if self.verb != "get_range" else self.objects[name][start:]

    def list(self, prefix: str, *, after: str = "") -> list[ObjectInfo]:
        return [] if self.verb == "list" else super().list(prefix, after=after)

    def stat(self, name: str) -> ObjectInfo | None:
        return None if self.verb == "stat" else super().stat(name)

    def delete(self, name: str) -> None:
        if self.verb != "delete":
            super().delete(name)


@pytest.mark.parametrize(
    ("verb", "name", "said"),
    [
        ("get", "read and list", "its bytes differ"),
        ("get_range", "read and list", "bytes 0 to 10 differ"),
        ("list", "read and list", "a listing does not show it as it is"),
        ("stat", "read and list", "a look finds no bytes"),
        ("delete", "delete", "still there"),
    ],
)
def test_each_promise_that_is_broken_is_named(verb: str, name: str, said: str) -> None:
    check = found(Forgetful(verb), name)
    assert check.state == "failed"
    assert said in check.found


class Refusing(MemoryStore):
    def create(self, name: str, data: bytes) -> bool:
        raise StoreError(f"create s3://key:hunter2@bucket/{name}: refused")


def test_no_check_shows_a_secret_in_what_it_says() -> None:
    seen = "see s3://key:hunter2@bucket/a"
    checks = Checks("output")
    said = [checks.ok("a", seen), checks.warning("a", seen, seen), checks.failed("a", seen, seen)]
    assert [(check.found, check.advice) for check in said] == [
        ("see s3://bucket/a", ""),
        ("see s3://bucket/a", "see s3://bucket/a"),
        ("see s3://bucket/a", "see s3://bucket/a"),
    ]


def test_a_refusal_ends_the_trial_and_shows_no_secret() -> None:
    (check,) = store_checks(Refusing())
    assert (check.name, check.state) == ("create", "failed")
    assert "refused" in check.found
    assert "hunter2" not in check.found
