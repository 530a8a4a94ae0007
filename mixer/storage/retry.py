"""The one retry loop: which failures of a remote store are worth another try, and how long to wait for it.

The retries of the libraries below are switched off: theirs multiply with each other (25 requests for one answer
of 503), and hide from us which calls have an unknown outcome. One stays: where a connection ends without a reply,
aiohttp sends a request that is not a POST once more by itself. So what a caller repeats must be safe to repeat
even if it is never tried again here.
"""

from __future__ import annotations

import errno
import importlib
import logging
import random
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NoReturn, TypeGuard, TypeVar

from mixer.errors import MixerError, StoreError, StoreUnavailableError
from mixer.storage.urls import redact

T = TypeVar("T")
logger = logging.getLogger(__name__)

_JITTER = random.SystemRandom()
_STATUS_AGAIN = frozenset({408, 409, 425, 429})
_STATUS_NOT_IMPLEMENTED = 501
_STATUS_SERVER = 500
_STATUS_PRECONDITION = 412
# Answered with a status of 400 or 403, and right again a moment later: the body was hurt on its way.
_CODES_AGAIN = frozenset(
    {
        *("BadDigest", "IncompleteBody", "RequestTimeout", "SlowDown", "Throttling", "XAmzContentSHA256Mismatch"),
        *("rateLimitExceeded", "userRateLimitExceeded"),
        *("Md5Mismatch", "OperationTimedOut", "ServerBusy"),
    }
)
# Answered with a status that elsewhere means that a moment later all is well.
_CODES_LASTING = frozenset({"BlobImmutableDueToPolicy", "DirectoryIsNotEmpty", "InvalidBlobType", "SnapshotsPresent"})
_CODES_NO_PLACE = frozenset({"NoSuchBucket", "ContainerNotFound"})
# Azure's answer to a create of what is there has the status of a conflict that passes.
_CODE_EXISTS = "BlobAlreadyExists"
_ERRNOS_AGAIN = frozenset({errno.ETIMEDOUT, errno.EPIPE, errno.ESTALE, errno.EHOSTUNREACH, errno.ENETUNREACH})
_HINTS = {
    "NoSuchBucket": "there is no such bucket: check its name, the endpoint and the region, or make it first",
    "InvalidAccessKeyId": "the access key is not known there: check AWS_ACCESS_KEY_ID or AWS_PROFILE, and the endpoint",
    "SignatureDoesNotMatch": "the secret does not fit the access key: check AWS_SECRET_ACCESS_KEY, and the region",
    "ExpiredToken": "the session's credentials have expired: renew them",
    "RequestTimeTooSkewed": "this machine's clock is off: set it",
    "PermanentRedirect": "the bucket lies in another region or at another endpoint: set AWS_REGION or AWS_ENDPOINT_URL",
    "AuthorizationHeaderMalformed": "the bucket lies in another region: set AWS_REGION",
    "NotImplemented": "the store does not know this request",
    "ContainerNotFound": "there is no such container: check its name and the account, or make it first",
    "AuthenticationFailed": "the account's key, its SAS token or this machine's clock is wrong: check AZURE_STORAGE_*",
    "AuthorizationPermissionMismatch": "access denied: the identity needs a role such as Storage Blob Data Contributor",
    "BlobImmutableDueToPolicy": "a policy of the container forbids to replace or delete it: choose another container",
    "required": (
        "no usable credentials: set GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login"
    ),
}
_HINT_FORBIDDEN = (
    "access denied: check the credentials and that they allow reading, writing and listing there"
    " (without the right to list, a store answers so for an object that does not exist)"
)
_HINT_CREDENTIALS = "no usable credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
_HINTS_LIBRARY = {
    "azure": (
        "no usable credentials: set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME with"
        " AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or log in (az login)"
    ),
    "google": _HINTS["required"],
    "gcsfs": _HINTS["required"],
}
"""What to do about an error of a library that no server has answered with."""


class AnswerError(OSError):
    """A server's answer that says no, with its HTTP status and the store's own word for it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class AbsentError(AnswerError, FileNotFoundError):
    """A server's answer that there is no such thing."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How patient the retry loop is: exponential waits up to a cap, each drawn evenly from 0 to its limit."""

    attempts: int = 12
    """Tries in all, the first one among them."""
    first_wait_s: float = 0.1
    """Limit of the first wait; each further one is twice as long."""
    max_wait_s: float = 5.0
    """No single wait is longer."""
    total_s: float = 180.0
    """No further try is begun so long after the first one began."""

    def wait_s(self, failures: int) -> float:
        """Return a random wait after so many failed tries (at least 1)."""
        return _JITTER.uniform(0.0, min(self.max_wait_s, self.first_wait_s * 2.0 ** min(failures - 1, 60)))


PATIENT = RetryPolicy()
"""What is used unless a caller says otherwise."""


def call_with_retries(call: Callable[[], T], *, what: str, policy: RetryPolicy = PATIENT) -> T:
    """Return ``call()``, tried again for as long as its failures are of a passing kind.

    `what` says for logs and messages what is done to what, such as ``"get s3://bucket/key"``. `call` must be
    safe to repeat. An absent object (`FileNotFoundError`) and an unmet precondition (HTTP status 412) are
    answers, not failures: they come through unchanged, and at once.

    Raises:
        StoreUnavailableError: The last try of the policy failed as well.
        StoreError: The store refused for good.
    """
    began_s = time.monotonic()
    for attempt in range(1, policy.attempts + 1):
        try:
            return call()
        except remote_errors() as error:
            if not is_transient(error):
                raise_refusal(error, what)
            wait_s = policy.wait_s(attempt)
            elapsed_s = time.monotonic() - began_s
            if attempt == policy.attempts or elapsed_s + wait_s > policy.total_s:
                message = (
                    f"{what}: no answer after {attempt} tries in {elapsed_s:.0f} s, the last one: {describe(error)};"
                    " check the network, the endpoint and the store's health, then try again"
                )
                raise StoreUnavailableError(message) from _showable(error)
            logger.warning(
                "event=retry what=%s attempt=%d attempts=%d wait_s=%.2f error=%s",
                *(redact(what), attempt, policy.attempts, wait_s, describe(error)),
            )
            time.sleep(wait_s)
    raise ValueError(f"expected at least one attempt, found {policy.attempts}")


def understood(call: Callable[[], T]) -> T:
    """Return what `call` returns, which asks a server by its client's library, and does nothing of ours.

    A reply whose numbers or times were hurt on their way comes out of such a library as a bare `ValueError`; here it
    becomes a failure that may pass. Anywhere else a `ValueError` is a mistake in a program, and no retry helps.

    >>> understood(lambda: int("12"))
    12
    >>> understood(lambda: int("1x"))
    Traceback (most recent call last):
    ConnectionError: the reply is not understood: invalid literal for int() with base 10: '1x'
    """
    try:
        return call()
    except MixerError:
        raise
    except remote_errors():
        raise
    except ValueError as error:
        # It has no class of its own for an endpoint that is none.
        if str(error).startswith("Invalid endpoint: "):
            raise OSError(errno.EINVAL, str(error)) from error
        raise ConnectionError(f"the reply is not understood: {error}") from error


def remote_errors() -> tuple[type[Exception], ...]:
    """Return the classes of whatever a remote store's client may raise.

    Found when first needed, so that a run on a local disk does not pay for importing network clients. Those of
    Google and Azure are only looked for where they are in use: not everyone has them.
    """
    return (
        *_remote_errors(),
        *_loaded("azure.core.exceptions", "AzureError"),
        *_loaded("gcsfs.retry", "ChecksumError", "HttpError", "NonRetryableError"),
        *_loaded("google.auth.exceptions", "GoogleAuthError"),
    )


@cache
def _remote_errors() -> tuple[type[Exception], ...]:
    aiohttp, botocore, parsers = (
        importlib.import_module(n) for n in ("aiohttp", "botocore.exceptions", "botocore.parsers")
    )
    # Neither botocore's errors nor all of aiohttp's are OSErrors.
    clients = (aiohttp.ClientError, botocore.BotoCoreError, botocore.ClientError, parsers.ResponseParserError)
    return (OSError, *clients)


def _loaded(module: str, *names: str) -> tuple[type[Exception], ...]:
    """Return classes of a module that somebody has imported; none if nobody has, as nothing can have raised them."""
    found = sys.modules.get(module)
    return tuple(getattr(found, name) for name in names) if found is not None else ()


def is_transient(error: BaseException) -> bool:
    """Return whether the call that raised `error` may well succeed a little later with nothing changed.

    >>> is_transient(TimeoutError()), is_transient(ConnectionResetError()), is_transient(PermissionError())
    (True, True, False)
    """
    if isinstance(error, MixerError):
        return error.transient
    status = http_status(error)
    if status is not None:
        return _is_passing(status, error)
    if isinstance(error, OSError) and error.errno in _ERRNOS_AGAIN:
        return True
    if _is_certificate_refused(error):
        return False
    if isinstance(error, _loaded("google.auth.exceptions", "GoogleAuthError")) and getattr(error, "retryable", False):
        return True
    return isinstance(error, (TimeoutError, ConnectionError, *_transient_errors(), *_transient_if_loaded()))


def _is_passing(status: int, error: BaseException) -> bool:
    """Return whether an answer of this HTTP status may be another a little later."""
    code = error_code(error)
    if is_precondition_failed(error) or code in _CODES_LASTING:
        return False
    if code in _CODES_AGAIN or status in _STATUS_AGAIN:
        return True
    return status >= _STATUS_SERVER and status != _STATUS_NOT_IMPLEMENTED


def _is_certificate_refused(error: BaseException) -> bool:
    """Return whether the other side's certificate does not do; no text is asked, which may hold any name."""
    waiting: list[BaseException] = list(_causes(error))
    seen: set[int] = set()
    while waiting:
        link = waiting.pop()
        if isinstance(link, ssl.SSLCertVerificationError):
            return True
        if id(link) in seen:
            continue
        seen.add(id(link))
        # Where libraries keep what they were told, if not as a cause: botocore, Azure, urllib3, requests.
        kept = (getattr(link, "kwargs", None) or {}).get("error"), getattr(link, "inner_exception", None)
        waiting += [inner for inner in (*kept, getattr(link, "reason", None), *link.args) if _is_error(inner)]
    return False


def _is_error(value: object) -> TypeGuard[BaseException]:
    return isinstance(value, BaseException)


@cache
def _transient_errors() -> tuple[type[Exception], ...]:
    aiohttp, botocore, parsers = (
        importlib.import_module(n) for n in ("aiohttp", "botocore.exceptions", "botocore.parsers")
    )
    return (
        aiohttp.ClientConnectionError,
        aiohttp.ClientPayloadError,
        botocore.ChecksumError,
        botocore.ConnectionError,
        botocore.FlexibleChecksumError,
        botocore.HTTPClientError,
        botocore.IncompleteReadError,
        parsers.ResponseParserError,
    )


def _transient_if_loaded() -> tuple[type[Exception], ...]:
    return (
        *_loaded("azure.core.exceptions", "IncompleteReadError", "ServiceRequestError", "ServiceResponseError"),
        *_loaded("gcsfs.retry", "ChecksumError"),
        *_loaded("google.auth.exceptions", "TransportError"),
        *_loaded("requests.exceptions", "ChunkedEncodingError", "ConnectionError", "Timeout"),
    )


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status that `error`, or what it was raised from, tells of."""
    for link in _causes(error):
        response = getattr(link, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if isinstance(status, int):
                return status
        # Of answers and aiohttp, of Azure, and of gcsfs; other errors of aiohttp have a code that no server gave.
        names = ("code",) if isinstance(link, _loaded("gcsfs.retry", "HttpError")) else ("status", "status_code")
        for name in names:
            status = getattr(link, name, None)
            if isinstance(status, int):
                return status
    return None


def error_code(error: BaseException) -> str:
    """Return the store's own word for the error, such as ``NoSuchBucket``; empty if there is none."""
    for link in _causes(error):
        response = getattr(link, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
        # Of answers, and of Azure, where it may be one of an enumeration.
        for name in ("code", "error_code"):
            code = getattr(link, name, None)
            if isinstance(code, str):
                return str(getattr(code, "value", code))
    return ""


def is_precondition_failed(error: BaseException) -> bool:
    """Return whether a condition of the request was not met: the status says so; codes and classes differ by store."""
    return http_status(error) == _STATUS_PRECONDITION or error_code(error) == _CODE_EXISTS


def is_absent(error: BaseException) -> bool:
    """Return whether `error` says that there is no such object, in a place that does exist."""
    return isinstance(error, FileNotFoundError) and error_code(error) not in _CODES_NO_PLACE


def raise_refusal(error: Exception, what: str) -> NoReturn:
    """Raise what a refusal is to its caller: itself if it is an answer, else a `StoreError` that says what to do."""
    if isinstance(error, MixerError) or is_absent(error) or is_precondition_failed(error):
        raise error
    status, code = http_status(error), error_code(error)
    hint = _HINTS.get(code)
    if hint is None and (status in {401, 403} or isinstance(error, PermissionError)):
        hint = _HINT_FORBIDDEN
    if hint is None and status is None:
        hint = _HINTS_LIBRARY.get(type(error).__module__.partition(".")[0])
    if hint is None and "Credential" in type(error).__name__:
        hint = _HINT_CREDENTIALS
    message = f"{what}: refused ({describe(error)})" + (f"; {hint}" if hint else "")
    raise StoreError(redact(message)) from _showable(error)


def describe(error: BaseException) -> str:
    """Return one line on `error`, without secrets: HTTP status and code if there are any, class, and text."""
    status, code = http_status(error), error_code(error)
    answer = f"HTTP {status} {code}".strip() + ", " if status is not None else ""
    text = redact(" ".join(str(error).split()))
    return f"{answer}{type(error).__name__}: {text[:500]}"


def _showable(error: Exception) -> Exception | None:
    """Return `error`, to be shown as a cause, unless a traceback would show a secret with it."""
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if redact(str(link)) != str(link):
            return None
        link = link.__cause__ or link.__context__
    return error


def _causes(error: BaseException) -> Iterator[BaseException]:
    # Not `__context__`: what merely happened to be handled at that time says nothing about this error.
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__
