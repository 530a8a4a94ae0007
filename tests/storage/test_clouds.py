"""What only a network can do to the stores of Google and Azure: lose, hurt, cut and refuse, before fakes of both."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import pytest

from mixer.errors import ChangedError, StoreError, StoreUnavailableError
from mixer.storage import open_store
from mixer.storage.inputs import InputFile, find_inputs, open_input, read_range, stat_input
from mixer.storage.remote import RemoteStore
from mixer.storage.retry import RetryPolicy
from tests.storage.azure_server import ACCOUNT_KEY
from tests.storage.fake_server import FakeService, Fault
from tests.storage.test_races import assert_one_winner_each, race_threads
from tests.storage.test_s3 import FORKER

QUICK = RetryPolicy(attempts=3, first_wait_s=0.001, max_wait_s=0.005)
OTHER_PROTOCOLS = {"gs": "gcs", "az": "abfs"}
DATA = b"the bytes of an object, not many but enough to be hurt " * 40


@dataclass(frozen=True, slots=True)
class Cloud:
    """A fake service and an empty, not very patient store on it."""

    service: FakeService
    store: RemoteStore
    upload: str
    """The method of an upload."""


@pytest.fixture(params=["gcs", "azure"])
def cloud(request: pytest.FixtureRequest) -> Cloud:
    store = open_store(request.getfixturevalue(f"{request.param}_url"))
    assert isinstance(store, RemoteStore)
    service = request.getfixturevalue(request.param)
    return Cloud(service, replace(store, policy=QUICK), {"gcs": "POST", "azure": "PUT"}[request.param])


def version(store: RemoteStore, name: str) -> str:
    info = store.stat(name)
    assert info is not None
    return info.version


def verbs(store: RemoteStore, known: str) -> dict[str, Callable[[], object]]:
    return {
        "get": lambda: store.get("a"),
        "get_range": lambda: store.get_range("a", 10, 500),
        "put": lambda: store.put("a", DATA),
        "create": lambda: store.create("new", DATA),
        "replace": lambda: store.replace("a", DATA[::-1], known),
        "list": lambda: [info.name for info in store.list("")],
        "stat": lambda: store.stat("a") is not None,
        "delete": lambda: store.delete("a"),
    }


ANSWERS = {
    "get": DATA,
    "get_range": DATA[10:500],
    "put": None,
    "create": True,
    "replace": True,
    "list": ["a"],
    "stat": True,
    "delete": None,
}
LEFT = {"replace": DATA[::-1], "delete": None}


@pytest.mark.parametrize(
    ("verb", "fault"),
    [
        *((verb, fault) for verb in ANSWERS for fault in (Fault.BUSY, Fault.RESET, Fault.LOST, Fault.LATE, Fault.CUT)),
        *((verb, Fault.HURT) for verb in ("put", "create", "replace")),
        *((verb, Fault.SILENT) for verb in ("get", "create")),
        ("get", Fault.BENT),
    ],
)
def test_one_fault_changes_no_answer(cloud: Cloud, verb: str, fault: Fault) -> None:
    store = replace(cloud.store, read_timeout_s=0.3) if fault is Fault.SILENT else cloud.store
    store.put("a", DATA)
    known = version(store, "a")
    cloud.service.reset(fault)
    assert verbs(store, known)[verb]() == ANSWERS[verb]
    # Of an empty reply nothing can be cut, and an upload's answer is its status.
    assert len(cloud.service.requests) > 1 or fault is Fault.CUT
    if verb == "create":
        assert store.get("new") == DATA
    assert store.get("a") == LEFT.get(verb, DATA)


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.LATE])
def test_a_write_whose_reply_is_lost_knows_its_own_success(cloud: Cloud, fault: Fault) -> None:
    cloud.service.reset(fault, methods=cloud.upload)
    assert cloud.store.create("a", b"mine")
    assert cloud.service.methods().count(cloud.upload) == 2
    cloud.service.reset(fault, methods=cloud.upload)
    assert cloud.store.replace("a", b"next", version(cloud.store, "a"))
    assert cloud.store.get("a") == b"next"


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.LATE])
def test_a_write_none_of_whose_replies_comes_is_looked_up(cloud: Cloud, fault: Fault) -> None:
    store = cloud.store
    cloud.service.reset(*[fault] * 99, methods=cloud.upload)
    assert store.create("a", b"mine")
    assert not store.create("a", b"ours")
    known = version(store, "a")
    assert store.replace("a", b"next", known)
    assert not store.replace("a", b"last", known)
    assert store.get("a") == b"next"


@pytest.mark.parametrize("fault", [Fault.BUSY, Fault.RESET, Fault.LOST, Fault.LATE])
def test_what_another_holds_is_lost_whatever_happens_on_the_way(cloud: Cloud, fault: Fault) -> None:
    store = cloud.store
    store.put("a", b"before")
    known = version(store, "a")
    store.put("a", b"theirs")
    for times in (1, 99):
        cloud.service.reset(*[fault] * times, methods=cloud.upload)
        assert not store.create("a", b"mine!!")
        assert not store.replace("a", b"mine!!", known)
    assert store.get("a") == b"theirs"


@pytest.mark.parametrize("fault", [Fault.RESET, Fault.BUSY])
def test_a_write_that_may_or_may_not_have_happened_says_so(cloud: Cloud, fault: Fault) -> None:
    store = cloud.store
    store.put("there", b"old")
    known = version(store, "there")
    cloud.service.reset(*[fault] * 99, methods=cloud.upload)
    acts: dict[str, Callable[[], object]] = {
        "created": lambda: store.create("a", b"1"),
        "replaced": lambda: store.replace("there", b"new", known),
    }
    for verb, act in acts.items():
        with pytest.raises(StoreUnavailableError, match=rf"no answer after 3 tries .* will yet be {verb} is unknown"):
            act()
    cloud.service.reset()
    assert (store.get("a"), store.get("there")) == (None, b"old")


def test_only_the_version_that_was_named_is_replaced(cloud: Cloud) -> None:
    store = cloud.store
    for nonsense in ("", "0", "*", "no version", "-1"):
        assert not store.replace("a", b"1", nonsense)
        assert store.get("a") is None
    store.put("a", b"1")
    first = version(store, "a")
    for nonsense in ("", "0", "*", "no version", "-1", first + "0"):
        assert not store.replace("a", b"2", nonsense)
    assert store.replace("a", b"2", first)
    assert not store.replace("a", b"3", first)
    store.delete("a")
    assert not store.replace("a", b"4", first)
    assert store.get("a") is None


def test_a_taken_name_is_read_only_if_it_could_be_ones_own(cloud: Cloud) -> None:
    cloud.store.create("a", b"theirs")
    for data, requests in ((b"mine", 2), (b"mine!!", 3)):
        cloud.service.reset()
        assert not cloud.store.create("a", data)
        assert len(cloud.service.requests) == requests


@pytest.mark.parametrize("verb", ANSWERS)
def test_a_fault_that_stays_is_tried_as_often_as_said_and_no_more(cloud: Cloud, verb: str) -> None:
    cloud.store.put("a", DATA)
    known = version(cloud.store, "a")
    cloud.service.reset(*[Fault.BUSY] * 99)
    with pytest.raises(StoreUnavailableError, match=r"://\w+/.*: no answer after 3 tries.*HTTP 503") as caught:
        verbs(cloud.store, known)[verb]()
    assert caught.value.transient
    # The libraries have no retries of their own left; what became of a write is looked up, as often.
    assert len(cloud.service.requests) == QUICK.attempts * (2 if verb in {"create", "replace"} else 1)


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.BENT])
def test_a_body_that_never_comes_whole_is_not_taken(cloud: Cloud, fault: Fault) -> None:
    cloud.store.put("a", DATA)
    cloud.service.reset(*[fault] * 99)
    with pytest.raises(StoreUnavailableError, match="no answer after 3 tries"):
        cloud.store.get("a")
    assert len(cloud.service.requests) == QUICK.attempts


@pytest.mark.parametrize("verb", ANSWERS)
def test_a_refusal_is_told_at_once_and_without_secrets(
    cloud: Cloud, caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    cloud.store.put("a", DATA)
    known = version(cloud.store, "a")
    cloud.service.reset(*[Fault.FORBIDDEN] * 99)
    with (
        caplog.at_level(logging.DEBUG, "mixer"),
        pytest.raises(StoreError, match=r"HTTP 403 .*access denied") as caught,
    ):
        verbs(cloud.store, known)[verb]()
    assert not caught.value.transient
    assert len(cloud.service.requests) == 1
    assert f"{cloud.store.url}/" in str(caught.value)
    for shown in (str(caught.value), str(caught.value.__cause__), caplog.text):
        assert ACCOUNT_KEY not in shown
        assert "SharedKey" not in shown


@pytest.mark.parametrize("verb", ANSWERS)
def test_a_bucket_that_is_not_there_is_named(cloud: Cloud, verb: str) -> None:
    store = replace(cloud.store, bucket="no-such-place")
    with pytest.raises(StoreError, match=r"://no-such-place/.*there is no such (bucket|container): check its name"):
        verbs(store, "1")[verb]()
    assert len(cloud.service.requests) == 1


def test_a_listing_of_many_pages_survives_faults_and_starts_late(cloud: Cloud) -> None:
    for number in range(25):
        cloud.store.put(f"log/{number:04}", b"")
    faults = [Fault.BUSY, None, Fault.LOST, Fault.CUT, None, Fault.LATE]
    cloud.service.reset(*faults)
    assert [info.name for info in cloud.store.list("log/")] == [f"log/{number:04}" for number in range(25)]
    assert len(cloud.service.requests) == 7 + 4
    assert [info.name for info in cloud.store.list("log/", after="log/0022")] == ["log/0023", "log/0024"]


def test_of_two_that_race_for_a_name_one_wins(cloud: Cloud) -> None:
    assert_one_winner_each(cloud.store, race_threads(cloud.store, 2, 60), 60)


def test_of_four_that_race_for_a_version_one_wins(cloud: Cloud) -> None:
    store = cloud.store
    store.put("a", b"0")
    for number in range(15):
        known = version(store, "a")
        bodies = [f"writer {writer} round {number}".encode() for writer in range(4)]
        with ThreadPoolExecutor(4) as threads:
            won = list(threads.map(partial(store.replace, "a", version=known), bodies))
        assert won.count(True) == 1
        assert store.get("a") == bodies[won.index(True)]


def test_a_server_that_is_not_there_is_named(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in list(os.environ.items()):
        if f"127.0.0.1:{cloud.service.port}" in value:
            monkeypatch.setenv(name, value.replace(f":{cloud.service.port}", ":1"))
    with pytest.raises(StoreUnavailableError, match=r"/a: no answer after 3 tries.*check the network") as caught:
        cloud.store.get("a")
    assert ACCOUNT_KEY not in f"{caught.value} {caught.value.__cause__}"


def test_a_store_works_on_in_a_forked_child(cloud: Cloud) -> None:
    command = [sys.executable, "-c", FORKER, cloud.store.url]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ), timeout=180)
    assert done.stdout == "0 b'12'\n"


def fill(store: RemoteStore, *names: str) -> None:
    for name in names:
        store.put(name, name.encode() * 10)


def found(path: str, store: RemoteStore) -> list[str]:
    return [file.url.removeprefix(f"{store.url}/") for file in find_inputs(path).files]


def test_inputs_are_found_in_folders_and_by_patterns(cloud: Cloud) -> None:
    store = cloud.store
    names = [
        *(f"data/{number}.parquet" for number in range(9)),
        "data/more/a#1?b%20c.parquet",
        "data/_x",
        "other.parquet",
    ]
    fill(store, *names)
    assert found(f"{store.url}/data", store) == names[:10]
    assert found(f"{store.url}/data/", store) == names[:10]
    assert found(f"{store.url}/data/[12].parquet", store) == names[1:3]
    assert found(f"{store.url}/*/**/*c.parquet", store) == [names[9]]
    assert found(f"{store.url}/{names[9]}", store) == [names[9]]
    protocol, _, place = store.url.partition("://")
    (file,) = find_inputs(f"{OTHER_PROTOCOLS[protocol]}://{place}/{names[9]}").files
    assert read_range(file, 5, 12) == (names[9].encode() * 10)[5:12]
    assert find_inputs(f"{store.url}/data").ignored == (f"{store.url}/data/_x",)


def one_input(store: RemoteStore) -> InputFile:
    fill(store, "a.parquet", "b.parquet")
    file = find_inputs(f"{store.url}/*.parquet").files[0]
    assert stat_input(file.url) == file
    return file


def test_an_input_is_read_in_ranges_of_one_version(cloud: Cloud) -> None:
    with open_input(one_input(cloud.store)) as handle:
        cloud.service.reset(Fault.BUSY, Fault.CUT, Fault.LOST)
        handle.seek(10)
        assert handle.read(20) == (b"a.parquet" * 10)[10:30]
        assert handle.read() == (b"a.parquet" * 10)[30:]
    reads = [request for request in cloud.service.requests if {"range", "x-ms-range"} & request.headers.keys()]
    asked = {request.headers.get("x-ms-range") or request.headers["range"] for request in reads}
    assert asked == {"bytes=10-29", "bytes=30-89"}
    assert all(request.query.get("ifGenerationMatch") or request.headers.get("if-match") for request in reads)


@pytest.mark.parametrize("change", ["replaced", "deleted"])
def test_an_input_that_changes_is_noticed(cloud: Cloud, change: str) -> None:
    store = cloud.store
    file = one_input(store)
    with open_input(file) as handle:
        assert handle.read(3) == b"a.p"
        if change == "replaced":
            store.put("a.parquet", b"A.PARQUET" * 10)
        else:
            store.delete("a.parquet")
        with pytest.raises(ChangedError, match=r"a\.parquet has changed since the run was planned"):
            handle.read(3)
    with pytest.raises(ChangedError, match=r"a\.parquet has changed since the run was planned"):
        open_input(file)
