"""From the address of an output to its store, and the proof that the store can do what a run needs."""

from __future__ import annotations

import logging
import re
import uuid

from mixer.errors import OutputError, StoreError
from mixer.storage.base import Store
from mixer.storage.local import LocalStore
from mixer.storage.urls import NAME_BYTES_MAX, check_name, is_chained, redact_url, split_protocol

logger = logging.getLogger(__name__)

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


def probe_create_only(store: Store) -> None:
    """Make sure that `store` lets a name be created once only, by trying it; leaves nothing behind.

    A store that is merely racy cannot be told by this, as the two tries come one after the other.

    Raises:
        OutputError: The second create went through: two runs could overwrite each other's work.
    """
    nonce = uuid.uuid4().hex
    name = f".mixer/probe/{nonce}"
    first, second = f"first {nonce}".encode(), f"second {nonce}".encode()
    created = store.create(name, first)
    try:
        created_again = store.create(name, second)
        found = store.get(name)
    finally:
        store.delete(name)
    if created and not created_again and found == first:
        logger.debug("event=probe store=%s create_only=true", store.url)
        return
    raise OutputError(
        f"output {store.url}: expected the store to refuse a second create of {name}, found that it"
        f" {'accepted it' if created_again else 'does not keep what was created'}; without create-only writes (on S3:"
        " If-None-Match on PutObject) two runs at once would harm each other; choose a store that has them"
    )
