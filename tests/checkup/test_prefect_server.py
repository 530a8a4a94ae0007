"""What is said of the Prefect server, by what answers at its address."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path

import pytest

from mixer.checkup import prefect_server
from mixer.checkup.base import Check
from mixer.checkup.prefect_server import prefect_checks

CLIENT = version("prefect")
Answer = Callable[[BaseHTTPRequestHandler], tuple[int, bytes]]


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine where nobody has set anything up."""
    for name in ("API_URL", "API_KEY", "API_AUTH_STRING", "PROFILE", "PROFILES_PATH", "SERVER_EPHEMERAL_ENABLED"):
        monkeypatch.delenv(f"PREFECT_{name}", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    # A busy machine may keep a thread of this process from answering for longer than a user wants to wait.
    monkeypatch.setattr(prefect_server, "TIMEOUT_S", 60.0)
    monkeypatch.chdir(tmp_path)


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Start a server that answers so; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answer(self)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the standard library's name
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/api"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def prefect(server_version: str) -> Answer:
    """Return how a Prefect server of a version answers."""
    answers = {"/api/health": b"true", "/api/admin/version": json.dumps(server_version).encode()}
    return lambda request: (200, answers[request.path]) if request.path in answers else (404, b"")


def last() -> Check:
    return list(prefect_checks())[-1]


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_server_of_the_same_version_is_well(monkeypatch: pytest.MonkeyPatch, slash: str) -> None:
    with answering(prefect(CLIENT)) as url:
        monkeypatch.setenv("PREFECT_API_URL", url + slash)
        address, server = prefect_checks()
    assert (address.state, address.found) == ("ok", f"{url}, by the environment")
    assert (server.state, server.found) == ("ok", f"answers, version {CLIENT}")


@pytest.mark.parametrize(
    ("answer", "state", "said"),
    [
        (prefect("2.20.9"), "warning", f"answers, version 2.20.9, and the client here has {CLIENT}"),
        (lambda request: (404, b""), "failed", "answers 404 Not Found"),
        (lambda request: (401, b""), "failed", "answers 401 Unauthorized"),
        (lambda request: (200, b"<html>"), "warning", "answers, but does not tell its version"),
        (lambda request: (200, b"[1]"), "warning", "answers, but not as Prefect does"),
    ],
)
def test_another_answer_is_told(monkeypatch: pytest.MonkeyPatch, answer: Answer, state: str, said: str) -> None:
    with answering(answer) as url:
        monkeypatch.setenv("PREFECT_API_URL", url)
        check = last()
    assert (check.state, check.advice != "") == (state, True)
    assert check.found.startswith(said)


@pytest.mark.parametrize(("status", "state"), [(404, "ok"), (401, "warning"), (500, "warning")])
def test_a_server_that_is_well_and_does_not_tell_its_version(
    monkeypatch: pytest.MonkeyPatch, status: int, state: str
) -> None:
    with answering(lambda request: (200, b"true") if request.path == "/api/health" else (status, b"")) as url:
        monkeypatch.setenv("PREFECT_API_URL", url)
        check = last()
    assert (check.state, check.found.startswith("answers, ")) == (state, True)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/api", "http://u:hunter2@127.0.0.1:9/api", "ftp://host", "nonsense", "http://[::1/api"]
)
def test_no_answer_fails_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("PREFECT_API_URL", url)
    checks = list(prefect_checks())
    assert checks[-1].state == "failed"
    assert "mixer run --no-prefect" in checks[-1].advice
    assert "hunter2" not in "".join(check.found for check in checks)


def test_a_server_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefect_server, "TIMEOUT_S", 0.05)
    leave = threading.Event()

    def hang(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        leave.wait(60)
        return 200, b"true"

    with answering(hang) as url:
        monkeypatch.setenv("PREFECT_API_URL", url)
        check = last()
        leave.set()
    assert (check.state, "timed out" in check.found) == ("failed", True)


@pytest.mark.parametrize("how", ["PREFECT_API_AUTH_STRING", "PREFECT_API_KEY", "in the address"])
def test_credentials_are_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    sent: list[str | None] = []

    def guarded(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        sent.append(request.headers.get("Authorization"))
        return prefect(CLIENT)(request)

    with answering(guarded) as url:
        if how != "in the address":
            monkeypatch.setenv(how, "me:hunter2")
        login = "me:hunter2@" if how == "in the address" else ""
        monkeypatch.setenv("PREFECT_API_URL", url.replace("//", f"//{login}"))
        checks = list(prefect_checks())
    basic = f"Basic {base64.b64encode(b'me:hunter2').decode()}"
    assert sent == ["Bearer me:hunter2" if how == "PREFECT_API_KEY" else basic] * 2
    assert [check.state for check in checks] == ["ok", "ok"]
    assert "hunter2" not in str(checks)


def test_without_a_server_the_home_of_mixers_own_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (check,) = prefect_checks()
    assert check.state == "ok"
    assert f"starts a server of its own in {tmp_path / 'home'}; its database is made at the first run" in check.found
    (tmp_path / "home").mkdir()
    (tmp_path / "home/prefect.db").write_bytes(bytes(3 << 19))
    (check,) = prefect_checks()
    assert check.found.endswith("its database has 1.5 MiB")
    monkeypatch.setenv("PREFECT_SERVER_EPHEMERAL_ENABLED", "false")
    (check,) = prefect_checks()
    assert (check.state, "forbids a server" in check.found) == ("failed", True)
