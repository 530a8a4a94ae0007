"""One fsspec file system a protocol and process, with the settings that keep it honest.

No listing cache (a cached listing hides objects that are there, and gives sizes that no longer hold), no
read-ahead (it moves several times the file), no retries below ours, and an instance that is not shared with
other users of fsspec in this process, because their settings would be ours.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from mixer.errors import InputError, StoreError

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 60.0
POOL_CONNECTIONS = 32

_KINDS = {
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "az"),
}
_VARIABLES = {
    "s3": ("AWS_", "FSSPEC_S3"),
    "gs": ("CLOUDSDK_", "FSSPEC_G", "GCSFS_", "GOOGLE_", "STORAGE_EMULATOR_HOST"),
    "az": ("AZURE_", "FSSPEC_A"),
}
"""What the names of the variables begin with that decide on endpoint and credentials."""
_filesystems: dict[tuple[Any, ...], Any] = {}


def filesystem_for(protocol: str, *, read_timeout_s: float = READ_TIMEOUT_S, account: str = "") -> Any:
    """Return this process's file system for `protocol`, such as ``s3``; the same one for equal settings.

    A forked child gets one of its own, as s3fs demands. The environment decides endpoint and credentials; a
    changed environment gives another instance. `read_timeout_s` bounds the silence of an object store's server.
    `account` is the one of Azure that an address names; empty if it names none.

    Raises:
        InputError: Nothing that is installed speaks `protocol`.
        StoreError: What the environment says of the account or of the endpoint does not do.
    """
    kind = _KINDS.get(protocol, protocol)
    key: tuple[Any, ...] = (os.getpid(), kind)
    if kind in _VARIABLES:
        settings = tuple(sorted(v for v in os.environ.items() if v[0].startswith(_VARIABLES[kind])))
        key = (os.getpid(), kind, read_timeout_s, account, settings)
    found = _filesystems.get(key)
    if found is None:
        made = _make(kind, protocol, read_timeout_s, account)
        # Two threads may both get here; nothing is connected yet, and the one that is not kept costs nothing.
        found = _filesystems.setdefault(key, made)
    return found


def _make(kind: str, protocol: str, read_timeout_s: float, account: str) -> Any:
    if kind == "s3":
        return _s3(read_timeout_s)
    if kind not in _VARIABLES:
        return _other(protocol)
    package, extra = {"gs": ("gcsfs", "gcs"), "az": ("adlfs", "azure")}[kind]
    if importlib.util.find_spec(package) is None:
        raise InputError(
            f"{protocol}://: the package {package} is not installed; install it with: pip install 'mixer[{extra}]'"
        )
    if kind == "gs":
        from mixer.storage.gcs_filesystem import make_gcs_filesystem  # noqa: PLC0415 - a second that others need not pay

        return make_gcs_filesystem(CONNECT_TIMEOUT_S, read_timeout_s)
    from mixer.storage.azure_filesystem import make_azure_filesystem  # noqa: PLC0415 - as above

    return make_azure_filesystem(CONNECT_TIMEOUT_S, read_timeout_s, account)


def _s3(read_timeout_s: float) -> Any:
    _refuse_logins()
    from s3fs import S3FileSystem  # noqa: PLC0415 - two thirds of a second that a run on a local disk need not pay

    filesystem = S3FileSystem(
        skip_instance_cache=True,
        use_listings_cache=False,
        default_cache_type="none",
        default_fill_cache=False,
        # With more, whole objects are read in pieces that are neither retried nor pinned to one version.
        max_concurrency=1,
        config_kwargs={
            # `max_attempts: 1` would still send two.
            "retries": {"total_max_attempts": 1, "mode": "standard"},
            "connect_timeout": CONNECT_TIMEOUT_S,
            "read_timeout": read_timeout_s,
            "max_pool_connections": POOL_CONNECTIONS,
        },
    )
    filesystem.retries = 1
    return filesystem


def _refuse_logins() -> None:
    """Refuse a login in an endpoint's address: no request could be made with both that and a signature."""
    for variable in sorted(os.environ):
        if variable.startswith(("AWS_ENDPOINT_URL", "FSSPEC_S3_ENDPOINT_URL")) and "@" in os.environ[variable]:
            raise StoreError(
                f"S3: expected no login in {variable}; take it out of the address, credentials come from"
                " AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            )


def _other(protocol: str) -> Any:
    import fsspec  # noqa: PLC0415 - a fifth of a second that a run on a local disk need not pay

    try:
        return fsspec.filesystem(protocol, skip_instance_cache=True, use_listings_cache=False)
    except ImportError as error:
        raise InputError(f"{protocol}://: the package that reads it is not installed; {error}") from error
    except ValueError as error:
        raise InputError(f"{protocol}://: expected a protocol that fsspec knows; {error}") from error
