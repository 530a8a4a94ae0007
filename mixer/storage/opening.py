"""From the address of an output to its store."""

from __future__ import annotations

import importlib.util
import re

from mixer.errors import OutputError, StoreError
from mixer.storage.base import Store
from mixer.storage.local import LocalStore
from mixer.storage.urls import NAME_BYTES_MAX, check_name, is_chained, redact_url, split_azure, split_protocol

_SUPPORTED = "a path on a local disk, file:///folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"
_SLASH_MISSING = re.compile(r"(file|s3a?|gc?s|abfss?|az|https?|memory):")
_CONTAINER = re.compile(r"[a-z0-9$][a-z0-9-]*")
_PREFIX_BYTES_MAX = NAME_BYTES_MAX // 2


def open_store(url: str) -> Store:
    """Return the store at `url`: a path, ``file://``, ``s3://``, ``gs://`` or ``az://``.

    Nothing is read, made or connected yet. ``s3a://``, ``gcs://``, ``abfs://`` and ``abfss://`` are other words for
    the last three; ``abfss://container@account.dfs.core.windows.net/prefix`` names an account of Azure as well.

    Raises:
        OutputError: `url` is no text, is no address of a store that mixer can write to, or holds a user, password or
            query; or the package that its store needs is not installed.

    >>> open_store("s3://bucket/corpus/v1").url, open_store("gcs://bucket/corpus").url
    ('s3://bucket/corpus/v1', 'gs://bucket/corpus')
    """
    if not isinstance(url, str):
        raise OutputError(f"output: expected a path or an address as text, found {type(url).__name__}")
    protocol, rest = split_protocol(url)
    if not rest or not rest.isprintable() or is_chained(url):
        raise OutputError(f"output {redact_url(url)!r}: expected {_SUPPORTED}")
    if protocol == "file":
        if _SLASH_MISSING.match(rest) or (url != rest and not rest.startswith("/")):
            raise OutputError(f"output {redact_url(url)!r}: expected {_SUPPORTED}; mind the number of slashes")
        return LocalStore(rest)
    if protocol in {"s3", "s3a"}:
        return _open_s3(url, rest)
    if protocol in {"gs", "gcs"}:
        return _open_gcs(url, rest)
    if protocol in {"az", "abfs", "abfss"}:
        return _open_azure(url, rest)
    if protocol == "memory":
        raise OutputError("output memory://: for tests, pass a mixer.testing.MemoryStore instead of an address")
    raise OutputError(f"output {redact_url(url)!r}: {protocol}:// is not supported for outputs; expected {_SUPPORTED}")


def _open_s3(url: str, rest: str) -> Store:
    from mixer.storage.s3 import S3Store  # noqa: PLC0415 - not needed for a local disk

    bucket, _, prefix = rest.partition("/")
    _refuse_secrets(url, "@" in bucket, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")
    if not bucket or ":" in bucket:
        raise OutputError(
            f"output {redact_url(url)!r}: expected s3://bucket/prefix (for an access point, its alias as bucket)"
        )
    return S3Store(bucket, _checked_prefix(url, prefix))


def _open_gcs(url: str, rest: str) -> Store:
    from mixer.storage.gcs import GCSStore  # noqa: PLC0415 - not needed for a local disk

    bucket, _, prefix = rest.partition("/")
    _refuse_secrets(url, "@" in bucket, "GOOGLE_APPLICATION_CREDENTIALS, or gcloud auth application-default login")
    if not bucket or ":" in bucket:
        raise OutputError(f"output {redact_url(url)!r}: expected gs://bucket/prefix")
    _refuse_unless_installed(url, "gcsfs", "gcs")
    return GCSStore(bucket, _checked_prefix(url, prefix))


def _open_azure(url: str, rest: str) -> Store:
    from mixer.storage.azure import AzureStore  # noqa: PLC0415 - not needed for a local disk

    container, account, prefix = split_azure(rest)
    has_user = "@" in container or ":" in container
    _refuse_secrets(url, has_user, "AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and a key or login")
    if not _CONTAINER.fullmatch(container):
        raise OutputError(
            f"output {redact_url(url)!r}: expected az://container/prefix or"
            " abfss://container@account.dfs.core.windows.net/prefix"
        )
    _refuse_unless_installed(url, "adlfs", "azure")
    return AzureStore(container, _checked_prefix(url, prefix), account=account)


def _refuse_secrets(url: str, has_user: bool, instead: str) -> None:  # noqa: FBT001 - the calls are clear
    if has_user or "?" in url or "#" in url:
        raise OutputError(
            f"output {redact_url(url)!r}: expected no user, password, query or fragment in the address; credentials"
            f" come from the environment ({instead})"
        )


def _refuse_unless_installed(url: str, package: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise OutputError(
            f"output {redact_url(url)!r}: the package {package} is not installed; install it with: pip install"
            f" 'mixer[{extra}]'"
        )


def _checked_prefix(url: str, prefix: str) -> str:
    """Return `prefix` with its closing ``/``, or empty."""
    prefix = prefix.strip("/")
    if not prefix:
        return ""
    if len(prefix.encode()) > _PREFIX_BYTES_MAX:
        raise OutputError(f"output {redact_url(url)!r}: expected a prefix of at most {_PREFIX_BYTES_MAX} bytes")
    try:
        check_name(prefix)
    except StoreError as error:
        raise OutputError(f"output {redact_url(url)!r}: {error}") from error
    return prefix + "/"
