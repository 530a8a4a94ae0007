"""Names and addresses: what may be one, and how one is shown to people without giving secrets away."""

from __future__ import annotations

import os
import re
import uuid

from mixer.errors import StoreError

NAME_BYTES_MAX = 1024
"""Longest name of an object in bytes, its store's own prefix included: S3's limit for a key."""
TEMPORARY_FOLDER = ".mixer/tmp/"
"""Where a store on a disk keeps what is not whole yet; no object may be named so, on any store."""
PROBE_FOLDER = ".mixer/probe/"
"""Where a store is tried; what a killed process left there no run needs."""

_DRAWN = re.compile(r"[0-9a-f]{32}")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_SCHEME_CHAINED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*::")
# A secret that was pasted into an address may hold a slash; a port is no secret.
_LOGIN = r"[^/\s@:]*:(?!\d{1,5}(?:[/?#\s]|$))[^\s@\"'<>]*@"
# Azure writes `container@account...`, which is no secret.
_USER = r"[^/\s\"'<>?#]*@(?![A-Za-z0-9]+\.(?:blob|dfs)\.core\.)"
_USER_IN_URL = re.compile(rf"(?<=://)(?:{_LOGIN}|{_USER})")
_QUERY_IN_URL = re.compile(r"(://[^\s\"'<>?#]*)[?#][^\s\"'<>]*")
_SIGNED = re.compile(
    r"((?:Credential|Signature|Security-Token|SecretAccessKey|AccountKey|\bsig)=)[^\s,;&\"'<>]+", re.IGNORECASE
)
_HEADERS = re.compile(r"((?:Bearer|SharedKey(?:Lite)?) +)[^\s,;\"'<>]+", re.IGNORECASE)
_AZURE_PLACE = re.compile(r"(?:([^@/]*)@)?([A-Za-z0-9]+)\.(?:blob|dfs)\.core\.windows\.net", re.IGNORECASE)
_SECRET_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_CLIENT_CERTIFICATE_PASSWORD",
    "AZURE_CLIENT_SECRET",
    "AZURE_PASSWORD",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_STORAGE_CONNECTION_STRING",
    "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "CLOUDSDK_AUTH_ACCESS_TOKEN",
    "FSSPEC_ABFS_ACCOUNT_KEY",
    "FSSPEC_ABFS_CONNECTION_STRING",
    "FSSPEC_ABFS_SAS_TOKEN",
    "FSSPEC_GCS_TOKEN",
    "FSSPEC_GS_TOKEN",
    "FSSPEC_S3_KEY",
    "FSSPEC_S3_SECRET",
    "FSSPEC_S3_TOKEN",
)
# MinIO takes no secret of fewer characters, AWS and Azure make far longer ones; a shorter one, such as the `test` of
# many a local server, stands in words and paths by chance.
_SHORTEST_ANYWHERE = 8
# What a short secret must not be next to: then it is a part of a word, a file's name or a path.
_NOT_BEFORE, _NOT_AFTER = r"(?<![\w./\\-])", r"(?![\w/\\-]|\.\w)"
# gcsfs takes these words where a token may stand.
_NO_SECRETS = frozenset({"", "anon", "browser", "cache", "cloud", "google_default"})


def split_protocol(url: str) -> tuple[str, str]:
    """Return `url`'s protocol in small letters, and the rest; a path without a protocol is a ``file``.

    >>> split_protocol("s3://bucket/corpus"), split_protocol("out/mix"), split_protocol("file:///data/mix")
    (('s3', 'bucket/corpus'), ('file', 'out/mix'), ('file', '/data/mix'))
    """
    if match := _SCHEME.fullmatch(url):
        return match[1].lower(), match[2]
    return "file", url


def is_chained(url: str) -> bool:
    """Return whether `url` asks for one file system on top of another, as ``simplecache::s3://...`` does.

    >>> is_chained("simplecache::s3://bucket/a"), is_chained("s3://bucket/a::b")
    (True, False)
    """
    return _SCHEME_CHAINED.match(url) is not None


def redact(text: str) -> str:
    """Return `text` without what may be secret in it: users and queries of URLs, signatures, keys from the environment.

    A key of fewer than 8 characters is left where it is only a part of a word or a path.

    >>> redact("cannot reach http://me:hunter2@host:9000/bucket/key?X-Amz-Signature=abc now")
    'cannot reach http://host:9000/bucket/key now'
    """
    shown = _QUERY_IN_URL.sub(r"\1", _USER_IN_URL.sub("", text))
    shown = _HEADERS.sub(r"\1***", _SIGNED.sub(r"\1***", shown))
    for variable in _SECRET_VARIABLES:
        if value := os.environ.get(variable):
            for secret in _secrets_in(value):
                shown = _masked(shown, secret)
    return shown


def _masked(text: str, secret: str) -> str:
    if len(secret) >= _SHORTEST_ANYWHERE:
        return text.replace(secret, "***")
    return re.sub(_NOT_BEFORE + re.escape(secret) + _NOT_AFTER, "***", text)


def _secrets_in(value: str) -> list[str]:
    """Return the parts of a variable's value that must not be shown, the longest first."""
    # A connection string holds the key as one field of several, and a SAS token its signature.
    fields = (field.partition("=") for field in re.split(r"[;&?]", value))
    parts = {secret for name, _, secret in fields if name.lower() in {"accountkey", "sig", "sharedaccesssignature"}}
    return sorted(({value} | parts) - _NO_SECRETS, key=len, reverse=True)


def redact_url(url: str) -> str:
    """Return `url` without a user, a password, a query or a fragment; a local path stays as it is.

    >>> redact_url("s3://key:secret@bucket/corpus?versionId=7"), redact_url("/data/what?.parquet")
    ('s3://bucket/corpus', '/data/what?.parquet')
    """
    protocol, rest = split_protocol(url)
    if protocol == "file":
        return url
    location = _USER_IN_URL.sub("", f"{protocol}://{rest}")
    return re.split(r"[?#]", location, maxsplit=1)[0]


def split_azure(rest: str) -> tuple[str, str, str]:
    """Return container, account and name in what follows the protocol of an address; the account may be empty.

    >>> split_azure("box/a/b"), split_azure("box@acme.dfs.core.windows.net/a"), split_azure("box")
    (('box', '', 'a/b'), ('box', 'acme', 'a'), ('box', '', ''))
    >>> split_azure("acme.dfs.core.windows.net/box/a")
    ('box', 'acme', 'a')
    """
    place, _, name = rest.partition("/")
    match = _AZURE_PLACE.fullmatch(place)
    if match is None:
        return place, "", name
    container = match[1]
    if container is None:
        container, _, name = name.partition("/")
    return container, match[2], name


def check_name(name: str, *, inside: str = "") -> str:
    """Return `name` if an object may be called so; `inside` is the store's own prefix, for the length.

    Raises:
        StoreError: `name` is empty or too long, would leave the store, or no store could tell it from another.

    >>> check_name("data/shard-00000000.parquet")
    'data/shard-00000000.parquet'
    >>> check_name("data/../../etc/passwd")
    Traceback (most recent call last):
    mixer.errors.StoreError: object name 'data/../../etc/passwd': a part of it is '..', which would leave the store
    """
    shown = repr(name if len(name) <= 100 else name[:100] + "...")  # noqa: PLR2004 - so much is enough to know it by
    for part in name.split("/"):
        if part in {".", ".."}:
            raise StoreError(f"object name {shown}: a part of it is {part!r}, which would leave the store")
        if not part:
            raise StoreError(f"object name {shown}: expected non-empty parts joined by single '/', none at either end")
    if not name.isprintable() or "\\" in name:
        raise StoreError(f"object name {shown}: expected printable characters without '\\', found others")
    length = len((inside + name).encode())
    if length > NAME_BYTES_MAX:
        raise StoreError(
            f"object name {shown}: expected at most {NAME_BYTES_MAX} bytes with its prefix, found {length}"
        )
    if (name + "/").startswith(TEMPORARY_FOLDER):
        raise StoreError(f"object name {shown}: names in {TEMPORARY_FOLDER} are kept for unfinished objects")
    return name


def is_drawn(name: str) -> bool:
    """Return whether `name`, of a file in one of the folders above, is one that mixer draws; all else is others'.

    >>> is_drawn(draw_name()), is_drawn("notes.txt")
    (True, False)
    """
    return _DRAWN.fullmatch(name) is not None


def draw_name() -> str:
    """Return a name that nobody has, for a file in one of the folders above.

    >>> len(draw_name())
    32
    """
    return uuid.uuid4().hex


def check_prefix(prefix: str) -> str:
    """Return `prefix` if it is a folder's name with its closing ``/``, or empty.

    >>> check_prefix(".mixer/log/"), check_prefix("")
    ('.mixer/log/', '')
    >>> check_prefix("data")
    Traceback (most recent call last):
    mixer.errors.StoreError: prefix 'data': expected a folder's name that ends in '/', or nothing
    """
    if prefix and not prefix.endswith("/"):
        raise StoreError(f"prefix {prefix!r}: expected a folder's name that ends in '/', or nothing")
    if prefix and prefix != TEMPORARY_FOLDER:
        check_name(prefix[:-1])
    return prefix


def check_range(start: int, stop: int) -> None:
    """Refuse a range of bytes that begins below 0 or ends before it begins.

    >>> check_range(3, 2)
    Traceback (most recent call last):
    ValueError: expected 0 <= start <= stop, found start=3, stop=2
    """
    if not 0 <= start <= stop:
        raise ValueError(f"expected 0 <= start <= stop, found start={start}, stop={stop}")
