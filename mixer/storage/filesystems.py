"""One fsspec file system a protocol and process, with the settings that keep it honest.

No listing cache (a cached listing hides objects that are there, and gives sizes that no longer hold), no
read-ahead (it moves several times the file), no retries below ours, and an instance that is not shared with
other users of fsspec in this process, because their settings would be ours.
"""

from __future__ import annotations

import os
from typing import Any

from mixer.errors import InputError

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 60.0
POOL_CONNECTIONS = 32

_S3_PROTOCOLS = frozenset({"s3", "s3a"})
_filesystems: dict[tuple[Any, ...], Any] = {}


def filesystem_for(protocol: str, *, read_timeout_s: float = READ_TIMEOUT_S) -> Any:
    """Return this process's file system for `protocol`, such as ``s3``; the same one for equal settings.

    A forked child gets one of its own, as s3fs demands. The environment decides endpoint and credentials; a
    changed environment gives another instance. `read_timeout_s` bounds the silence of an S3 server.

    Raises:
        InputError: Nothing that is installed speaks `protocol`.
    """
    key: tuple[Any, ...] = (os.getpid(), protocol)
    if protocol in _S3_PROTOCOLS:
        settings = tuple(sorted(v for v in os.environ.items() if v[0].startswith(("AWS_", "FSSPEC_S3"))))
        key = (os.getpid(), "s3", read_timeout_s, settings)
    found = _filesystems.get(key)
    if found is None:
        made = _s3(read_timeout_s) if protocol in _S3_PROTOCOLS else _other(protocol)
        # Two threads may both get here; nothing is connected yet, and the one that is not kept costs nothing.
        found = _filesystems.setdefault(key, made)
    return found


def _s3(read_timeout_s: float) -> Any:
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


def _other(protocol: str) -> Any:
    import fsspec  # noqa: PLC0415 - a fifth of a second that a run on a local disk need not pay

    try:
        return fsspec.filesystem(protocol, skip_instance_cache=True, use_listings_cache=False)
    except ImportError as error:
        raise InputError(f"{protocol}://: the package that reads it is not installed; {error}") from error
    except ValueError as error:
        raise InputError(f"{protocol}://: expected a protocol that fsspec knows; {error}") from error
