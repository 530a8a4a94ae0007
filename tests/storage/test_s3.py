"""What only a network can do to a store: lose, hurt, delay and forge, before a real S3 server."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from mixer.errors import StoreError, StoreUnavailableError
from mixer.storage import open_store
from mixer.storage.filesystems import filesystem_for
from mixer.storage.retry import RetryPolicy
from mixer.storage.s3 import S3Store
from tests.fault_proxy import Fault, FaultProxy, scripted
from tests.profiles import sized
from tests.s3_server import ACCESS_KEY_ID, SECRET_ACCESS_KEY

pytestmark = pytest.mark.s3

QUICK = RetryPolicy(attempts=3, first_wait_s=0.001, max_wait_s=0.005)
DATA = b"the bytes of an object, not many but enough to be hurt " * 40
AFTER = {Fault.STATUS_500_AFTER, Fault.RESET_AFTER, Fault.HANG_AFTER}


@pytest.fixture
def direct(s3_url: str, s3_server: object) -> S3Store:
    """The same place as `store`; made before the environment leads through the proxy, for looking at what is there."""
    store = open_store(s3_url)
    assert isinstance(store, S3Store)
    return replace(store, policy=QUICK)


@pytest.fixture
def store(direct: S3Store, fault_proxy: FaultProxy) -> S3Store:
    """An empty store behind a proxy that can do harm, and not very patient."""
    return direct


def verbs(store: S3Store, known: str = "") -> dict[str, Callable[[], object]]:
    return {
        "get": lambda: store.get("a"),
        "get_range": lambda: store.get_range("a", 10, 500),
        "put": lambda: store.put("a", DATA),
        "create": lambda: store.create("new", DATA),
        "replace": lambda: store.replace("a", DATA[::-1], known),
        "list": lambda: [info.name for info in store.list("")],
        "stat": lambda: store.stat("a"),
        "delete": lambda: store.delete("a"),
    }


def hasty(store: S3Store, fault: Fault) -> S3Store:
    """Return a store that does not wait long for a reply that never comes, but tries once more than it must."""
    if fault not in {Fault.HANG_BEFORE, Fault.HANG_AFTER}:
        return store
    return replace(store, policy=replace(QUICK, attempts=6), read_timeout_s=0.3)


ANSWERS = {
    "get": DATA,
    "get_range": DATA[10:500],
    "put": None,
    "create": True,
    "replace": True,
    "list": ["a"],
    "delete": None,
}
LEFT = {"replace": DATA[::-1], "delete": None}


@pytest.mark.parametrize(
    ("verb", "fault"),
    [
        *((verb, fault) for verb in ("get", "create", "replace") for fault in Fault),
        ("put", Fault.REQUEST_CUT),
        ("put", Fault.REQUEST_FLIPPED),
        # In ranges and listings a flipped bit is not seen: pages of a shard carry checksums, and the log is a chain.
        *(
            (verb, fault)
            for verb in ("get_range", "put", "list", "stat", "delete")
            for fault in (
                Fault.STATUS_503,
                Fault.STATUS_500_AFTER,
                Fault.RESET_AFTER,
                Fault.HANG_AFTER,
                Fault.REPLY_CUT,
            )
        ),
    ],
)
def test_one_fault_changes_no_answer(store: S3Store, fault_proxy: FaultProxy, verb: str, fault: Fault) -> None:
    store.put("a", DATA)
    there = store.stat("a")
    assert there is not None
    fault_proxy.reset(scripted([fault]))
    assert verbs(hasty(store, fault), there.version)[verb]() == (there if verb == "stat" else ANSWERS[verb])
    assert [hurt for _, hurt in fault_proxy.faults] == [fault]
    fault_proxy.reset()
    if verb == "create":
        assert store.get("new") == DATA
    assert store.get("a") == LEFT.get(verb, DATA)


@pytest.mark.parametrize("fault", sorted(AFTER, key=str), ids=str)
def test_a_create_whose_reply_is_lost_knows_its_own_success(
    store: S3Store, fault_proxy: FaultProxy, fault: Fault
) -> None:
    fault_proxy.reset(scripted([fault], methods=["PUT"]))
    assert hasty(store, fault).create("a", b"mine")
    assert [request.method for request in fault_proxy.requests[:2]] == ["PUT", "PUT"]
    assert fault_proxy.requests[-1].method == "GET"


@pytest.mark.parametrize("fault", sorted(AFTER, key=str), ids=str)
def test_a_create_none_of_whose_replies_comes_is_looked_up(
    store: S3Store, fault_proxy: FaultProxy, fault: Fault
) -> None:
    fault_proxy.reset(scripted([fault] * 99, methods=["PUT"]))
    assert hasty(store, fault).create("a", b"mine")
    assert not hasty(store, fault).create("a", b"ours")
    assert store.get("a") == b"mine"


def test_a_create_of_a_taken_name_is_lost_whatever_happens_on_the_way(store: S3Store, fault_proxy: FaultProxy) -> None:
    store.create("a", b"theirs")
    for fault in Fault:
        fault_proxy.reset(scripted([fault], methods=["PUT"]))
        assert not hasty(store, fault).create("a", b"mine!!"), fault
    for fault in (Fault.RESET_AFTER, Fault.STATUS_503):
        fault_proxy.reset(scripted([fault] * 99, methods=["PUT"]))
        assert not store.create("a", b"mine!!"), fault
    fault_proxy.reset()
    assert store.get("a") == b"theirs"


def test_a_taken_name_is_read_only_if_it_could_be_ones_own(store: S3Store, fault_proxy: FaultProxy) -> None:
    store.create("a", b"theirs")
    for data, methods in ((b"mine", ["PUT", "HEAD"]), (b"mine!!", ["PUT", "HEAD", "GET"])):
        fault_proxy.reset()
        assert not store.create("a", data)
        assert [request.method for request in fault_proxy.requests] == methods


def test_a_create_that_may_or_may_not_have_happened_says_so(store: S3Store, fault_proxy: FaultProxy) -> None:
    fault_proxy.reset(scripted([Fault.RESET_BEFORE] * 99, methods=["PUT"]))
    with pytest.raises(StoreUnavailableError, match=r"create s3://test/.*/a: no answer after 3 tries .* is unknown"):
        store.create("a", b"1")
    fault_proxy.reset(lambda request: Fault.RESET_AFTER)
    with pytest.raises(StoreUnavailableError, match=r"create s3://test/.*/a: no answer after 3 tries .* is unknown"):
        store.create("a", b"1")
    fault_proxy.reset()
    assert store.get("a") == b"1"


@pytest.mark.parametrize(
    ("verb", "fault"),
    [
        *((verb, Fault.STATUS_503) for verb in ("get", "get_range", "put", "list", "stat", "delete")),
        *((verb, fault) for verb in ("get", "put") for fault in (Fault.STATUS_500, Fault.HANG_BEFORE)),
        ("get", Fault.REPLY_CUT),
    ],
)
def test_a_fault_that_stays_is_tried_as_often_as_said_and_no_more(
    store: S3Store, fault_proxy: FaultProxy, verb: str, fault: Fault
) -> None:
    store.put("a", DATA)
    fault_proxy.reset(lambda request: fault)
    with pytest.raises(StoreUnavailableError, match=r"s3://test/.*: no answer after 3 tries") as caught:
        verbs(replace(store, read_timeout_s=0.1))[verb]()
    assert caught.value.transient
    # Neither botocore nor s3fs has retries of its own left.
    assert len(fault_proxy.requests) == QUICK.attempts


@pytest.mark.parametrize("verb", ["get", "put"])
def test_a_connection_that_is_always_reset_is_given_up(store: S3Store, fault_proxy: FaultProxy, verb: str) -> None:
    fault_proxy.reset(lambda request: Fault.RESET_BEFORE)
    with pytest.raises(StoreUnavailableError, match="no answer after 3 tries"):
        verbs(store)[verb]()
    # aiohttp sends each once more, and cannot be told not to.
    assert len(fault_proxy.requests) == 2 * QUICK.attempts


def test_a_listing_of_many_pages_survives_faults_and_starts_late_at_no_cost(
    store: S3Store, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(25):
        store.put(f"log/{number:04}", b"")
    real = S3Store._call

    def small_pages(self: S3Store, method: str, **fields: object) -> object:
        return real(self, method, **fields, **({"MaxKeys": 4} if method == "list_objects_v2" else {}))

    monkeypatch.setattr(S3Store, "_call", small_pages)
    faults = [Fault.STATUS_503, None, Fault.RESET_AFTER, Fault.REPLY_CUT, None, Fault.STATUS_500_AFTER]
    fault_proxy.reset(scripted(faults))
    assert [info.name for info in store.list("log/")] == [f"log/{number:04}" for number in range(25)]
    assert len(fault_proxy.faults) == 4
    fault_proxy.reset()
    assert [info.name for info in store.list("log/", after="log/0022")] == ["log/0023", "log/0024"]
    assert len(fault_proxy.requests) == 1


def test_an_object_is_one_conditional_put_with_its_checksum_whatever_its_size(
    store: S3Store, fault_proxy: FaultProxy
) -> None:
    # s3fs would cut it into parts, at its defaults; the server is spared it.
    data = bytes(101 * 2**20)
    once = replace(store, policy=RetryPolicy(attempts=1))
    for verb, condition in ((once.create, "*"), (once.put, None)):
        fault_proxy.reset(scripted([Fault.STATUS_503]))
        with pytest.raises(StoreUnavailableError):
            verb("large", data)
        request = fault_proxy.requests[0]
        assert request.method == "PUT"
        assert "?" not in request.target
        assert request.body_bytes == len(data)
        assert request.headers.get("if-none-match") == condition
        assert request.headers["x-amz-checksum-sha256"]


@pytest.mark.parametrize("verb", ["put", "create", "replace"])
def test_a_body_that_was_hurt_on_its_way_is_not_stored(store: S3Store, fault_proxy: FaultProxy, verb: str) -> None:
    store.put("a", b"before")
    there = store.stat("a")
    assert there is not None
    for salt in range(sized(short=4, long=100)):
        fault_proxy.reset(lambda request: Fault.REQUEST_FLIPPED, salt=salt)
        with pytest.raises(StoreUnavailableError, match=r"HTTP 400 \w+"):
            verbs(store, there.version)[verb]()
        assert all(status == 400 for request, status in fault_proxy.answered if request.body_bytes)
        fault_proxy.reset()
        assert (store.get("a"), store.get("new")) == (b"before", None)


def test_a_checksum_that_does_not_fit_is_refused(store: S3Store, fault_proxy: FaultProxy) -> None:
    hurt = {"Key": store._key("a"), "Body": b"1", "ChecksumSHA256": "A" * 43 + "="}
    with pytest.raises(OSError, match="did not match"):
        store._call("put_object", **hurt)
    assert store.get("a") is None


def test_a_retry_is_logged_with_what_and_why(
    store: S3Store, fault_proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    fault_proxy.reset(scripted([Fault.STATUS_503, Fault.STATUS_500]))
    with caplog.at_level(logging.WARNING, "mixer.storage.retry"):
        store.put("a", b"1")
    first, second = caplog.messages
    assert first.startswith(f"event=retry what=put {store.url}/a attempt=1 attempts=3 wait_s=0.0")
    assert "error=HTTP 503 SlowDown" in first
    assert " attempt=2 " in second


REFUSALS = {
    "AWS_ACCESS_KEY_ID": ("notakeythatisknown", "the access key is not known there: check AWS_ACCESS_KEY_ID"),
    "AWS_SECRET_ACCESS_KEY": ("notthesecretofthekey", "the secret does not fit the access key"),
}


@pytest.mark.parametrize(
    "wrong_and_verb",
    [(variable, verb) for variable in REFUSALS for verb in ("get", "get_range", "put", "create", "list")],
)
def test_wrong_credentials_are_refused_at_once_and_not_shown(
    store: S3Store,
    fault_proxy: FaultProxy,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    wrong_and_verb: tuple[str, str],
) -> None:
    variable, verb = wrong_and_verb
    wrong, expected = REFUSALS[variable]
    monkeypatch.setenv(variable, wrong)
    with caplog.at_level(logging.DEBUG, "mixer"), pytest.raises(StoreError, match=expected) as caught:
        verbs(store)[verb]()
    assert not caught.value.transient
    assert len(fault_proxy.requests) == 1
    assert f"s3://{store.bucket}/{store.prefix}" in str(caught.value)
    for shown in (str(caught.value), str(caught.value.__cause__), caplog.text):
        for secret in (wrong, ACCESS_KEY_ID, SECRET_ACCESS_KEY):
            assert secret not in shown


@pytest.mark.parametrize("verb", ["stat", "delete"])
def test_wrong_credentials_are_refused_also_where_the_answer_has_no_words(
    store: S3Store, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "notthesecretofthekey")
    with pytest.raises(StoreError, match=r"check the credentials|does not fit the access key"):
        verbs(store)[verb]()
    assert len(fault_proxy.requests) == 1


def test_no_credentials_at_all_are_refused_at_once(
    store: S3Store, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StoreError, match="no usable credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        store.put("a", b"1")
    assert fault_proxy.requests == []


def test_a_bucket_that_is_not_there_is_named(fault_proxy: FaultProxy) -> None:
    store = S3Store("no-such-bucket", "a/", policy=QUICK)
    for verb in (lambda: store.get("b"), lambda: store.get_range("b", 0, 1), lambda: store.list("")):
        fault_proxy.reset()
        with pytest.raises(StoreError, match=r"s3://no-such-bucket/a/b?: refused .*there is no such bucket"):
            verb()
        assert len(fault_proxy.requests) == 1


def test_a_server_that_is_not_there_is_named(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    expected = r"s3://test/.*/a: no answer after 3 tries.*check the network, the endpoint"
    with pytest.raises(StoreUnavailableError, match=expected) as caught:
        store.get("a")
    assert "http://127.0.0.1:1/" in str(caught.value)


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "FSSPEC_S3_ENDPOINT_URL"])
@pytest.mark.parametrize("login", ["me:hunter2", "hunter2", "me:hun/hunter2"])
def test_a_login_in_the_endpoint_is_refused_at_once_and_not_shown(
    direct: S3Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variable: str, login: str
) -> None:
    monkeypatch.setenv(variable, f"http://{login}@127.0.0.1:1")
    with pytest.raises(StoreError, match=f"S3: expected no login in {variable}; take it out") as caught:
        direct.get("a")
    assert not caught.value.transient
    assert "hunter2" not in f"{caught.value} {caught.value.__cause__}"
    # Nor was it tried again.
    assert caplog.messages == []


def test_more_than_one_upload_takes_is_refused_before_it_is_sent(
    store: S3Store, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mixer.storage.s3.PUT_BYTES_MAX", 10)
    for verb in (store.put, store.create):
        with pytest.raises(StoreError, match=r"expected at most 10 bytes.*found 11; make the shards smaller"):
            verb("a", b"x" * 11)
    assert fault_proxy.requests == []


def test_a_range_is_right_also_from_a_server_that_ignores_ranges(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a", DATA)
    real = S3Store._call

    def without_range(self: S3Store, method: str, **fields: object) -> object:
        fields.pop("Range", None)
        return real(self, method, **fields)

    monkeypatch.setattr(S3Store, "_call", without_range)
    assert store.get_range("a", 3, 9) == DATA[3:9]


def test_an_endpoint_that_changes_in_the_environment_is_followed(
    direct: S3Store, fault_proxy: FaultProxy, s3_server: object
) -> None:
    direct.put("a", b"1")
    assert len(fault_proxy.requests) == 1
    assert filesystem_for("s3") is filesystem_for("s3")
    assert filesystem_for("s3") is not filesystem_for("s3", read_timeout_s=1.0)


FORKER = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, which is what is tried
from mixer.storage import open_store
store = open_store(sys.argv[1])
store.put("parent", b"1")
child = os.fork()
if child == 0:
    found = store.get("parent")
    store.put("child", found + b"2")
    os._exit(0)
_, status = os.waitpid(child, 0)
print(status, store.get("child"))
"""


def test_a_store_works_on_in_a_forked_child(s3_url: str) -> None:
    command = [sys.executable, "-c", FORKER, s3_url]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ), timeout=180)
    assert done.stdout == "0 b'12'\n"
