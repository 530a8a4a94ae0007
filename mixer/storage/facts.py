"""What can be told of a store beside its objects, for those who look for the cause of a trouble; never a secret."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

from mixer.errors import StoreError
from mixer.storage.base import Store
from mixer.storage.filesystems import filesystem_for
from mixer.storage.remote import RemoteStore
from mixer.storage.retry import RetryPolicy, call_with_retries, understood
from mixer.storage.urls import PROBE_FOLDER

IMPATIENT = RetryPolicy(attempts=2, total_s=12.0)
"""For whoever waits for the answer; a run has more patience."""
_READ_TIMEOUT_S = 10.0
_S3_SOURCES = {
    "env": "the environment (AWS_ACCESS_KEY_ID)",
    "shared-credentials-file": "the file of AWS_SHARED_CREDENTIALS_FILE, or ~/.aws/credentials",
    "config-file": "the file of AWS_CONFIG_FILE, or ~/.aws/config",
    "iam-role": "the role of this machine",
    "container-role": "the role of this container",
    "sso": "a login by SSO",
    "assume-role": "an assumed role",
    "assume-role-with-web-identity": "a role assumed by a web identity",
    "custom-process": "a process that the profile names",
}
_VARIABLES = {
    "gs": ("FSSPEC_GS_TOKEN", "FSSPEC_GCS_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST"),
    "az": (
        "AZURE_STORAGE_CONNECTION_STRING",
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_CLIENT_SECRET",
    ),
}
_LOGINS = {"gs": "gcloud's login, or the role of this machine", "az": "what DefaultAzureCredential finds"}


def impatient(store: Store) -> Store:
    """Return `store`, but one that gives up soon if it is reached over a network."""
    if isinstance(store, RemoteStore):
        return replace(store, policy=IMPATIENT, read_timeout_s=_READ_TIMEOUT_S)
    return store


def credentials_source(store: Store) -> str | None:
    """Return where the credentials for `store` come from, in words; None if none are found, empty if none are needed.

    Raises:
        StoreError: They cannot be had.
    """
    if not isinstance(store, RemoteStore):
        return ""
    if store.PROTOCOL != "s3":
        named = [name for name in _VARIABLES[store.PROTOCOL] if os.environ.get(name)]
        return f"the environment ({', '.join(named)})" if named else _LOGINS[store.PROTOCOL]
    filesystem = filesystem_for("s3", read_timeout_s=store.read_timeout_s)
    if filesystem.key:
        return "the environment (FSSPEC_S3_KEY)"
    if filesystem.anon:
        return "none: requests are anonymous (FSSPEC_S3_ANON)"
    return call_with_retries(partial(_s3_source, filesystem), what="find credentials for S3", policy=IMPATIENT)


def _s3_source(filesystem: Any) -> str | None:
    from fsspec.asyn import sync  # noqa: PLC0415 -- loaded by now; at the top it would make every import slow

    understood(filesystem.connect)
    found = sync(filesystem.loop, filesystem.session.get_credentials)
    return None if found is None else _S3_SOURCES.get(found.method, found.method)


def endpoint(store: Store) -> str:
    """Return the address of the server that `store` talks to; empty if there is none, or its own is meant."""
    if not isinstance(store, RemoteStore) or store.PROTOCOL != "s3":
        return ""
    filesystem = filesystem_for("s3", read_timeout_s=store.read_timeout_s)
    filesystem.connect()
    return str(filesystem.s3.meta.endpoint_url)


def server_time(store: Store) -> datetime | None:
    """Return what the clock of the server behind `store` says now, to the second; None if it does not tell.

    Also a server that refuses a request tells, were it for the very reason that the clocks differ.
    """
    if not isinstance(store, RemoteStore) or store.PROTOCOL != "s3":
        return None
    filesystem = filesystem_for("s3", read_timeout_s=store.read_timeout_s)
    fields = {"Bucket": store.bucket, "Prefix": store.prefix + PROBE_FOLDER, "MaxKeys": 1}
    call = partial(understood, partial(filesystem.call_s3, "list_objects_v2", **fields))
    try:
        answer = call_with_retries(call, what=f"list {store.url}", policy=IMPATIENT)
    except (StoreError, FileNotFoundError) as error:
        answers = [getattr(link, "response", None) for link in _causes(error)]
        answer = next((answer for answer in answers if isinstance(answer, dict)), {})
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    if not isinstance(date, str):
        return None
    try:
        return parsedate_to_datetime(date).astimezone(UTC)
    except ValueError:
        return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__
