"""From the address of an output to its store."""

from __future__ import annotations

import re

from mixer.errors import OutputError, StoreError
from mixer.storage.base import Store
from mixer.storage.local import LocalStore
from mixer.storage.urls import NAME_BYTES_MAX, check_name, is_chained, redact_url, split_protocol

_SUPPORTED = "a path on a local disk, file:///folder, or s3://bucket/prefix"
_SLASH_MISSING = re.compile(r"(file|s3a?|gc?s|abfss?|az|https?|memory):")
_PREFIX_BYTES_MAX = NAME_BYTES_MAX // 2


def open_store(url: str) -> Store:
    """Return the store at `url`: a path, ``file://`` or ``s3://``. Nothing is read, made or connected yet.

    Raises:
        OutputError: `url` is no address of a store that mixer can write to, or holds a user, password or query.

    >>> open_store("s3://bucket/corpus/v1").url
    's3://bucket/corpus/v1'
    """
    protocol, rest = split_protocol(url)
    if not rest or not rest.isprintable() or is_chained(url):
        raise OutputError(f"output {redact_url(url)!r}: expected {_SUPPORTED}")
    if protocol == "file":
        if _SLASH_MISSING.match(rest) or (url != rest and not rest.startswith("/")):
            raise OutputError(f"output {redact_url(url)!r}: expected {_SUPPORTED}; mind the number of slashes")
        return LocalStore(rest)
    if protocol in {"s3", "s3a"}:
        return _open_s3(url, rest)
    if protocol == "memory":
        raise OutputError("output memory://: for tests, pass a mixer.testing.MemoryStore instead of an address")
    raise OutputError(f"output {redact_url(url)!r}: {protocol}:// is not supported for outputs; expected {_SUPPORTED}")


def _open_s3(url: str, rest: str) -> Store:
    from mixer.storage.s3 import S3Store  # noqa: PLC0415 - not needed for a local disk

    shown = redact_url(url)
    bucket, _, prefix = rest.partition("/")
    if "@" in bucket or "?" in rest or "#" in rest:
        raise OutputError(
            f"output {shown!r}: expected no user, password, query or fragment in the address; credentials come from"
            " the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE)"
        )
    if not bucket or ":" in bucket:
        raise OutputError(f"output {shown!r}: expected s3://bucket/prefix (for an access point, its alias as bucket)")
    prefix = prefix.strip("/")
    if not prefix:
        return S3Store(bucket)
    if len(prefix.encode()) > _PREFIX_BYTES_MAX:
        raise OutputError(f"output {shown!r}: expected a prefix of at most {_PREFIX_BYTES_MAX} bytes")
    try:
        check_name(prefix)
    except StoreError as error:
        raise OutputError(f"output {shown!r}: {error}") from error
    return S3Store(bucket, prefix + "/")
