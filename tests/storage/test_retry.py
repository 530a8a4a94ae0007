from __future__ import annotations

import errno
import logging
import ssl
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import aiohttp
import azure.core.exceptions as azure_errors
import botocore.exceptions
import gcsfs.retry
import google.auth.exceptions as untyped_google_errors
import pytest
import requests
import urllib3.exceptions
from botocore.parsers import ResponseParserError
from gcsfs.retry import HttpError
from hypothesis import given
from hypothesis import strategies as st

from mixer.errors import ConfigError, CorruptionError, InputError, StoreError, StoreUnavailableError
from mixer.storage.filesystems import filesystem_for
from mixer.storage.retry import (
    AbsentError,
    AnswerError,
    RetryPolicy,
    call_with_retries,
    describe,
    is_transient,
    understood,
)

# Without types of its own.
google_errors: Any = untyped_google_errors

AT_ONCE = RetryPolicy(attempts=5, first_wait_s=0.0)


def answered(status: int, code: str, message: str = "words") -> OSError:
    """Return an error as s3fs raises it."""
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error = OSError(errno.EIO, message)
    error.__cause__ = botocore.exceptions.ClientError(response, "PutObject")
    return error


def azure_answered(status: int, code: str) -> azure_errors.HttpResponseError:
    """Return an error as Azure's SDK raises it."""
    error = azure_errors.HttpResponseError("words")
    error.status_code = status
    error.error_code = code  # type: ignore[attr-defined]  # the SDK sets it from outside as well
    return error


def failing(error: Exception, times: int) -> tuple[Callable[[], str], list[int]]:
    calls: list[int] = []

    def call() -> str:
        calls.append(len(calls))
        if len(calls) <= times:
            raise error
        return "done"

    return call, calls


def certificate_refused(library: str) -> Exception:
    """Return an error as `library` raises it where the server's certificate is not to be trusted."""
    found = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
    key: Any = SimpleNamespace(host="host", port=443, is_ssl=True, ssl=True)
    client = aiohttp.ClientConnectorCertificateError(key, found)
    if library == "aiohttp":
        return client
    if library == "botocore":
        seen_by_botocore: Exception = botocore.exceptions.SSLError(endpoint_url="https://host", error=client)
        return seen_by_botocore
    if library == "azure":
        return azure_errors.ServiceRequestError("words", error=client)
    pool = SimpleNamespace(host="host")
    counted = urllib3.exceptions.MaxRetryError(pool, "/", urllib3.exceptions.SSLError(found))  # type: ignore[arg-type]
    requested = requests.exceptions.SSLError(counted)
    seen_by_google: Exception = google_errors.TransportError(requested)
    return requested if library == "requests" else seen_by_google


# A name may hold any word, and libraries put the URL into their errors.
NAMED = "https://host/test/certificates/Invalid endpoint: /CERTIFICATE_VERIFY_FAILED"

PASSING = [
    botocore.exceptions.ReadTimeoutError(endpoint_url=NAMED, error="x"),
    botocore.exceptions.EndpointConnectionError(endpoint_url=NAMED, error="x"),
    botocore.exceptions.SSLError(endpoint_url=NAMED, error=ssl.SSLError(1, "[SSL] record layer failure")),
    aiohttp.ServerDisconnectedError(NAMED),
    azure_errors.ServiceRequestError(NAMED),
    requests.exceptions.ReadTimeout(NAMED),
    *(AnswerError(status, "backendError", "words") for status in (408, 429, 500, 502, 503, 504)),
    AnswerError(403, "rateLimitExceeded", "words"),
    AnswerError(400, "BadDigest", "words"),
    HttpError({"code": 503, "message": "words"}),
    gcsfs.retry.ChecksumError("words"),
    google_errors.TransportError("words"),
    google_errors.RefreshError("words", retryable=True),
    requests.exceptions.ConnectionError("words"),
    requests.exceptions.ReadTimeout("words"),
    *(azure_answered(status, "InternalError") for status in (408, 409, 429, 500, 502, 503, 504)),
    azure_answered(400, "Md5Mismatch"),
    azure_errors.ServiceRequestError("words"),
    azure_errors.ServiceResponseError("words"),
    azure_errors.ServiceResponseTimeoutError("words"),
    azure_errors.IncompleteReadError("words"),
    TimeoutError(),
    ConnectionResetError(),
    BrokenPipeError(),
    OSError(errno.EHOSTUNREACH, "no route"),
    aiohttp.ClientPayloadError("cut"),
    aiohttp.ServerDisconnectedError(),
    aiohttp.ClientOSError(errno.ECONNRESET, "reset"),
    botocore.exceptions.EndpointConnectionError(endpoint_url="http://host", error="x"),
    botocore.exceptions.ConnectTimeoutError(endpoint_url="http://host", error="x"),
    botocore.exceptions.ReadTimeoutError(endpoint_url="http://host", error="x"),
    botocore.exceptions.ConnectionClosedError(endpoint_url="http://host", error="x"),
    botocore.exceptions.ResponseStreamingError(error="x"),
    botocore.exceptions.IncompleteReadError(actual_bytes=1, expected_bytes=2),
    botocore.exceptions.FlexibleChecksumError(error_msg="x"),
    botocore.exceptions.HTTPClientError(error="x"),
    ResponseParserError("not XML"),
    StoreUnavailableError("cut short"),
    *(answered(status, "Words") for status in (408, 409, 425, 429, 500, 502, 503, 504, 599)),
    answered(400, "BadDigest"),
    answered(400, "IncompleteBody"),
    answered(400, "RequestTimeout"),
    answered(400, "XAmzContentSHA256Mismatch"),
    answered(403, "SlowDown"),
]
LASTING = [
    *(AnswerError(status, "words", "words") for status in (400, 401, 403, 405, 411, 501)),
    AbsentError(404, "NoSuchBucket", "words"),
    AbsentError(404, "ContainerNotFound", "words"),
    AnswerError(409, "BlobImmutableDueToPolicy", "words"),
    HttpError({"code": 401, "message": "Invalid Credentials"}),
    gcsfs.retry.NonRetryableError("words"),
    google_errors.DefaultCredentialsError("words"),
    google_errors.RefreshError("words"),
    *(azure_answered(status, "words") for status in (400, 401, 403, 405, 501)),
    azure_errors.ClientAuthenticationError("no credential of the chain worked"),
    *(certificate_refused(library) for library in ("botocore", "aiohttp", "azure", "requests", "google")),
    PermissionError(errno.EACCES, "no"),
    OSError(errno.ENOSPC, "full"),
    botocore.exceptions.NoCredentialsError(),
    botocore.exceptions.ParamValidationError(report="x"),
    botocore.exceptions.ProfileNotFound(profile="x"),
    *(answered(status, "Words") for status in (400, 401, 403, 405, 411, 501)),
    answered(404, "NoSuchBucket"),
    answered(403, "SignatureDoesNotMatch"),
    answered(400, "ExpiredToken"),
]


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_what_may_pass_is_tried_again(error: Exception) -> None:
    assert is_transient(error)
    call, calls = failing(error, 4)
    assert call_with_retries(call, what="get x", policy=AT_ONCE) == "done"
    assert len(calls) == 5


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_what_may_pass_but_does_not_is_unavailable(error: Exception) -> None:
    call, calls = failing(error, 99)
    with pytest.raises(StoreUnavailableError, match="get x: no answer after 5 tries"):
        call_with_retries(call, what="get x", policy=AT_ONCE)
    assert len(calls) == 5


@pytest.mark.parametrize("error", LASTING, ids=repr)
def test_what_lasts_is_refused_at_once(error: Exception) -> None:
    call, calls = failing(error, 1)
    with pytest.raises(StoreError, match="get x: refused") as caught:
        call_with_retries(call, what="get x", policy=AT_ONCE)
    assert not caught.value.transient
    assert len(calls) == 1


def test_a_reply_that_a_library_does_not_understand_is_asked_for_again() -> None:
    error = ValueError('Invalid timestamp "2026-11-38T09:14:11Z": day is out of range for month')
    call, calls = failing(error, 4)
    assert call_with_retries(lambda: understood(call), what="get x", policy=AT_ONCE) == "done"
    assert len(calls) == 5


def test_an_endpoint_that_is_none_is_refused_at_once() -> None:
    call, calls = failing(ValueError("Invalid endpoint: htp:/host"), 99)
    with pytest.raises(StoreError, match=r"get x: refused .*Invalid endpoint: htp:/host"):
        call_with_retries(lambda: understood(call), what="get x", policy=AT_ONCE)
    assert len(calls) == 1


@pytest.mark.parametrize("error", [TimeoutError("a"), ConfigError("b"), TypeError("c")], ids=repr)
def test_only_what_is_not_understood_becomes_another_error(error: Exception) -> None:
    call, _ = failing(error, 99)
    with pytest.raises(type(error)) as caught:
        understood(call)
    assert caught.value is error


@pytest.mark.parametrize(
    "error",
    [
        *(FileNotFoundError("a"), AbsentError(404, "notFound", "a"), answered(412, "PreconditionFailed")),
        *(AnswerError(412, "conditionNotMet", "a"), azure_answered(409, "BlobAlreadyExists")),
        *(
            azure_answered(412, "ConditionNotMet"),
            CorruptionError("a"),
            StoreError("b"),
            KeyError("c"),
            ValueError("d"),
        ),
    ],
    ids=repr,
)
def test_answers_and_errors_of_others_come_through_as_they_are(error: Exception) -> None:
    call, calls = failing(error, 1)
    with pytest.raises(type(error)) as caught:
        call_with_retries(call, what="get x", policy=AT_ONCE)
    assert caught.value is error
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (answered(403, "AccessDenied"), "HTTP 403 AccessDenied.*access denied: check the credentials"),
        (answered(403, "RequestTimeTooSkewed"), "this machine's clock is off"),
        (answered(400, "ExpiredToken"), "have expired: renew them"),
        (answered(301, "PermanentRedirect"), "another region or at another endpoint"),
        (answered(404, "NoSuchBucket"), "there is no such bucket: check its name"),
        (answered(501, "NotImplemented"), "does not know this request"),
        (botocore.exceptions.NoCredentialsError(), "no usable credentials: set AWS_ACCESS_KEY_ID"),
        (AnswerError(401, "required", "Anonymous caller"), "no usable credentials: set GOOGLE_APPLICATION_CREDENTIALS"),
        (google_errors.RefreshError("x"), "no usable credentials: set GOOGLE_APPLICATION_CREDENTIALS"),
        (AbsentError(404, "ContainerNotFound", "x"), "there is no such container: check its name and the account"),
        (azure_answered(403, "AuthenticationFailed"), "HTTP 403 AuthenticationFailed.* check AZURE_STORAGE_"),
        (azure_errors.ClientAuthenticationError("x"), "no usable credentials: set AZURE_STORAGE_CONNECTION"),
    ],
    ids=repr,
)
def test_a_refusal_says_what_to_do(error: Exception, expected: str) -> None:
    call, _ = failing(error, 1)
    with pytest.raises(StoreError, match=f"(?s)put s3://bucket/key: refused .*{expected}"):
        call_with_retries(call, what="put s3://bucket/key", policy=AT_ONCE)


def test_no_further_try_is_begun_when_the_time_is_up() -> None:
    call, calls = failing(TimeoutError(), 99)
    with pytest.raises(StoreUnavailableError, match="after 1 tries"):
        call_with_retries(call, what="get x", policy=RetryPolicy(attempts=99, first_wait_s=1e-9, total_s=0.0))
    assert len(calls) == 1


@given(st.integers(1, 2000), st.floats(0.0, 10.0), st.floats(0.0, 60.0))
def test_a_wait_is_never_longer_than_its_limits(failures: int, first_wait_s: float, max_wait_s: float) -> None:
    policy = RetryPolicy(first_wait_s=first_wait_s, max_wait_s=max_wait_s)
    wait_s = policy.wait_s(failures)
    assert 0.0 <= wait_s <= max_wait_s
    if failures == 1:
        assert wait_s <= first_wait_s
    if failures == 3:
        assert wait_s <= 4 * first_wait_s


def test_waits_differ_so_that_many_clients_do_not_come_back_together() -> None:
    assert len({RetryPolicy().wait_s(5) for _ in range(20)}) > 10


def test_a_secret_is_in_no_message_log_or_cause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    words = (
        "header b'AWS4-HMAC-SHA256 Credential=AKIA7/x, Signature=abc1' wJalrXUtnFEMI http://me:hunter2@host/a?sig=q9"
    )
    for error in (TimeoutError(words), answered(403, "AccessDenied", words)):
        call, _ = failing(error, 99)
        with caplog.at_level(logging.DEBUG), pytest.raises(StoreError) as caught:
            call_with_retries(call, what="get x", policy=AT_ONCE)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
        for secret in ("wJalrXUtnFEMI", "AKIA7", "abc1", "hunter2", "q9"):
            assert secret not in str(caught.value) + caplog.text + describe(error)


def test_what_merely_happened_before_says_nothing_about_an_error() -> None:
    def call() -> None:
        try:
            raise answered(412, "PreconditionFailed")
        except OSError:
            raise ConnectionResetError  # noqa: B904 - this is what is tried

    with pytest.raises(StoreUnavailableError):
        call_with_retries(call, what="get x", policy=AT_ONCE)


def test_a_protocol_nobody_speaks_is_named() -> None:
    with pytest.raises(InputError, match="gopher://: expected a protocol that fsspec knows"):
        filesystem_for("gopher")


def test_file_systems_are_kept_and_have_no_listing_cache(gcs: object, azure: object) -> None:
    for protocol in ("s3", "gs", "az", "memory"):
        found = filesystem_for(protocol)
        assert found is filesystem_for(protocol)
        assert not found.dircache.use_listings_cache
    assert filesystem_for("s3a") is filesystem_for("s3")
    assert filesystem_for("gcs") is filesystem_for("gs")
    assert filesystem_for("abfs") is filesystem_for("abfss") is filesystem_for("az")
    assert filesystem_for("s3").retries == 1
