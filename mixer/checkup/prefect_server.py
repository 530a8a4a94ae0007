"""Whether `mixer run` finds the Prefect server that it will use."""

from __future__ import annotations

import base64
import http.client
import importlib.metadata
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from mixer.checkup.base import Check, Checks
from mixer.checkup.prefect_settings import prefect_home, prefect_setting
from mixer.storage.urls import redact_url

TIMEOUT_S = 5.0
"""How long the server may take for an answer."""
_ANSWER_BYTES_MAX = 1000
_NO_PREFECT = "or do without: mixer run --no-prefect"
_FALSE = {"0", "false", "f", "no", "n", "off"}

_checks = Checks("prefect")


def prefect_checks() -> Iterator[Check]:
    """Yield a check for the server that is set up, or for the home of the one that is started with each run."""
    found = prefect_setting("PREFECT_API_URL")
    if found is None:
        yield from _embedded()
        return
    url, where = found
    url = url.rstrip("/")
    yield _checks.ok("address", f"{redact_url(url)}, by {where}")
    try:
        _get(f"{url}/health")
    except urllib.error.HTTPError as error:
        yield _checks.failed("server", f"answers {error.code} {error.reason}", _advice(error.code))
        return
    except (OSError, ValueError, http.client.HTTPException) as error:
        advice = f"start it (prefect server start), correct PREFECT_API_URL (it ends in /api), {_NO_PREFECT}"
        yield _checks.failed("server", f"no answer: {error}", advice)
        return
    yield _version(url)


def _advice(status: int) -> str:
    if status in {401, 403}:
        return f"set PREFECT_API_AUTH_STRING or PREFECT_API_KEY, {_NO_PREFECT}"
    return f"correct PREFECT_API_URL (it ends in /api), or look into the server's log, {_NO_PREFECT}"


def _version(url: str) -> Check:
    """Return the check of the version of a server that is well."""
    client = importlib.metadata.version("prefect")
    try:
        server = json.loads(_get(f"{url}/admin/version"))
    except urllib.error.HTTPError as error:
        # Prefect Cloud has no version to tell.
        if error.code == http.HTTPStatus.NOT_FOUND:
            return _checks.ok("server", "answers, and has no version to tell")
        found = f"answers, but does not tell its version: {error.code} {error.reason}"
        return _checks.warning("server", found, _advice(error.code))
    except (OSError, ValueError, http.client.HTTPException) as error:
        return _checks.warning("server", f"answers, but does not tell its version: {error}", f"expected {client}")
    if not isinstance(server, str):
        return _checks.warning("server", "answers, but not as Prefect does", "correct PREFECT_API_URL")
    if server != client:
        advice = "let both have the same version; what is older may not understand the other"
        return _checks.warning("server", f"answers, version {server}, and the client here has {client}", advice)
    return _checks.ok("server", f"answers, version {server}")


def _get(url: str) -> bytes:
    """Return the beginning of what a server answers with."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in {"http", "https"}:
        raise ValueError("expected an address that begins with http:// or https://")
    login, _, place = parts.netloc.rpartition("@")
    headers = {}
    if login:
        # What does not belong there for `urllib` does for Prefect; and no error shall quote it.
        headers["Authorization"] = _basic(urllib.parse.unquote(login))
        url = parts._replace(netloc=place).geturl()
    elif key := prefect_setting("PREFECT_API_KEY"):
        headers["Authorization"] = f"Bearer {key[0]}"
    elif auth := prefect_setting("PREFECT_API_AUTH_STRING"):
        headers["Authorization"] = _basic(auth[0])
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 -- looked at above
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310 -- looked at above
        data: bytes = response.read(_ANSWER_BYTES_MAX)
        return data


def _basic(login: str) -> str:
    return f"Basic {base64.b64encode(login.encode()).decode()}"


def _embedded() -> Iterator[Check]:
    """Yield the check of a machine on which no server is set up."""
    allowed = prefect_setting("PREFECT_SERVER_EPHEMERAL_ENABLED")
    if allowed is not None and allowed[0].lower() in _FALSE:
        found = f"PREFECT_API_URL is not set, and {allowed[1]} forbids a server of mixer's own"
        yield _checks.failed("server", found, f"set PREFECT_API_URL, {_NO_PREFECT}")
        return
    home = prefect_home()
    database = home / "prefect.db"
    if database.is_file():
        size = f"its database has {database.stat().st_size / (1 << 20):,.1f} MiB"
    else:
        size = "its database is made at the first run, which takes up to a minute or two"
    found = f"PREFECT_API_URL is not set: each run starts a server of its own in {home}; {size}"
    if os.access(_nearest(home), os.W_OK):
        yield _checks.ok("server", found)
    else:
        yield _checks.failed("server", f"{found}; the folder is not writable", f"set PREFECT_HOME, {_NO_PREFECT}")


def _nearest(folder: Path) -> Path:
    """Return `folder`, or what is there of it."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder
