"""Credentials reach the servers they are for, and nothing else: no output, log, object, message or traceback."""

from __future__ import annotations

import logging
import math
import re
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import aiobotocore.httpsession
import pytest
from botocore.exceptions import EndpointConnectionError

from mixer import building
from mixer.config import load_config
from mixer.errors import MixerError
from mixer.storage import open_store
from mixer.storage.retry import RetryPolicy
from tests.cli.conftest import Mixer
from tests.fault_proxy import Fault, FaultProxy
from tests.mixes import config_file, make_inputs
from tests.s3_server import ACCESS_KEY_ID, SECRET_ACCESS_KEY

pytestmark = pytest.mark.s3

SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIAHUNTERTWO7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalr/hunter2+secret/EXAMPLEKEY",
    "AWS_SESSION_TOKEN": "FwoGZXIvYXdz/hunter2+token==",
}
ENDPOINT_SECRET = "endpointhunter2"  # noqa: S105 -- made up
ALL = (ACCESS_KEY_ID, SECRET_ACCESS_KEY, *SECRETS.values(), ENDPOINT_SECRET, "hunter2")


SIGNED = (
    "http://127.0.0.1:9/test/out/.mixer/run.json?X-Amz-Credential=hunter2%2Fus-east-1%2Fs3"
    "&X-Amz-Security-Token=hunter2%2Btoken&X-Amz-Signature=5160ed5160ed"
)
SIGNATURE = re.compile(r"Signature=\w")


def leaks(text: str) -> list[str]:
    """Return the secrets that stand in `text`, and what shows that a signature does."""
    return [*(secret for secret in ALL if secret in text), *SIGNATURE.findall(text)]


@dataclass(frozen=True, slots=True)
class Scene:
    """A mix in S3, and all that commands and libraries say of it."""

    mixer: Mixer
    config: str
    s3_url: str
    caplog: pytest.LogCaptureFixture

    def everything_said(self, config: str | None = None, output: str | None = None) -> str:
        """Return what all commands say, as text and as JSON, with all their logs and tracebacks."""
        called = commands(config or self.config, output or f"{self.s3_url}/out")
        answers = [self.mixer(*command, *json, "--debug") for command in called for json in ([], ["--json"])]
        said = [answer.out + answer.err for answer in answers]
        return "\n".join([*said, *(record.getMessage() for record in self.caplog.records)])


@pytest.fixture
def scene(
    mixer: Mixer, tmp_path: Path, s3_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Scene:
    caplog.set_level(logging.DEBUG, logger="mixer")
    # The doctor looks at Prefect as well.
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    return Scene(mixer, s3_config(tmp_path, s3_url), s3_url, caplog)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let stores try again at once, and once only: what would be waited after that is longer than they may take."""
    monkeypatch.setattr(RetryPolicy, "wait_s", lambda _self, failures: 0.0 if failures == 1 else math.inf)


def s3_config(folder: Path, s3_url: str) -> str:
    """Write a config of a mix whose inputs and output lie in S3; return where."""
    make_inputs(folder / "inputs")
    store = open_store(s3_url)
    for file in (folder / "inputs").rglob("*.parquet"):
        store.put(f"in/{file.relative_to(folder / 'inputs').as_posix()}", file.read_bytes())
    datasets = {name: {"path": f"{s3_url}/in/{name}/", "weight": 1} for name in ("web", "code", "books")}
    return config_file(folder, output=f"{s3_url}/out", datasets=datasets, batches=8)


def commands(config: str, output: str) -> list[list[str]]:
    return [
        ["plan", config],
        ["run", config, "--no-prefect"],
        ["status", output],
        ["verify", output],
        ["head", output],
        ["where", output, "--batch", "0", "--slot", "0"],
        ["gc", output],
        ["gc", output, "--delete"],
        ["doctor", config],
        ["init", str(Path(config).with_name("new.yaml")), "--force", "--from", f"{output.removesuffix('/out')}/in"],
    ]


def test_a_run_leaves_no_credentials_anywhere(scene: Scene) -> None:
    text = scene.everything_said()
    assert "committed shard" in text
    assert leaks(text) == []
    store = open_store(f"{scene.s3_url}/out")
    objects = {info.name: store.get(info.name) or b"" for info in store.list("")}
    assert len(objects) > 8
    for name, data in objects.items():
        assert leaks(name + data.decode("latin-1")) == [], name


def test_a_leak_would_be_seen(scene: Scene) -> None:
    logging.getLogger("mixer.log").warning("signed with %s", SECRET_ACCESS_KEY)
    assert leaks(scene.everything_said()) == [SECRET_ACCESS_KEY]


@pytest.mark.parametrize("variable", SECRETS)
def test_credentials_that_are_refused_are_not_shown(
    scene: Scene, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, SECRETS[variable])
    text = scene.everything_said()
    assert "Traceback" in text
    assert leaks(text) == []
    assert leaks(whole_traceback(scene.config)) == []


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("fault", ["500", "unreachable", "no bucket", "login in the endpoint"])
def test_whatever_fails_shows_no_credentials(
    scene: Scene, tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch, fault_proxy: FaultProxy
) -> None:
    config, output = scene.config, f"{scene.s3_url}/out"
    match fault:
        case "500":
            fault_proxy.reset(lambda _request: Fault.STATUS_500)
        case "unreachable":
            monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        case "no bucket":
            output = "s3://no-such-bucket/out"
            config = config_file(tmp_path, output=output)
        case _:
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://me:{ENDPOINT_SECRET}@127.0.0.1:9")
    text = scene.everything_said(config, output)
    assert "Traceback" in text
    assert leaks(text) == []
    assert leaks(whole_traceback(config)) == []


def whole_traceback(config: str) -> str:
    """Return all that Python would show of a failure to a user of the library, causes included."""
    try:
        building.build(load_config(config))
    except MixerError as error:
        return "".join(traceback.format_exception(error)) + repr(error)
    raise AssertionError("expected a failure")


class Telltale(BaseHTTPRequestHandler):
    """A server that refuses everything, with all that it knows of who asks in its words."""

    status = 403
    protocol_version = "HTTP/1.1"

    def _tell(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        told = (
            f"{self.headers['Authorization']} from {ACCESS_KEY_ID}, who signs with {SECRET_ACCESS_KEY}, does not fit "
            f"token {SECRETS['AWS_SESSION_TOKEN']} of {SIGNED}"
        )
        told = told.replace("&", "&amp;")
        body = f"<?xml version='1.0'?><Error><Code>Tells{self.status}</Code><Message>{told}</Message></Error>".encode()
        # A reply to HEAD has no words; this one leads to a request whose reply has some.
        self.send_response(404 if self.command == "HEAD" else self.status, "told")
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _tell  # noqa: N815 -- the names that the base class asks for

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name in the base class
        """Say nothing."""


@contextmanager
def telltale(status: int) -> Iterator[str]:
    """Serve as a `Telltale` that answers with `status`; yield the endpoint."""
    handler = type("Handler", (Telltale,), {"status": status})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads, server.block_on_close = True, False
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


async def quote_the_request(_session: object, _request: object) -> None:
    """Fail as aiobotocore does where it cannot connect: with all of the URL."""
    raise EndpointConnectionError(endpoint_url=SIGNED, error="hunter2")


@pytest.fixture(params=["403", "503", "library"])
def telling(
    request: pytest.FixtureRequest, scene: Scene, monkeypatch: pytest.MonkeyPatch, hasty: None
) -> Iterator[None]:
    """Have whatever is asked of S3 fail with an error in which secrets stand."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", SECRETS["AWS_SESSION_TOKEN"])
    if request.param == "library":
        monkeypatch.setattr(aiobotocore.httpsession.AIOHTTPSession, "send", quote_the_request)
        yield
        return
    with telltale(int(request.param)) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        yield


@pytest.mark.usefixtures("telling")
def test_errors_that_hold_secrets_are_shown_without_them(scene: Scene) -> None:
    text = scene.everything_said()
    assert "Traceback" in text
    assert leaks(text) == []
    assert leaks(whole_traceback(scene.config)) == []


REDACTING = ("mixer.storage.urls", "mixer.storage.retry", "mixer.checkup.base")
"""Where `redact` is looked up."""


@pytest.mark.usefixtures("telling")
def test_without_redaction_they_would_be_seen(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other tests here can fail: every command shows what the error holds if nobody takes it out."""
    for module in REDACTING:
        monkeypatch.setattr(f"{module}.redact", lambda text: text)
    for command in commands(scene.config, f"{scene.s3_url}/out"):
        answer = scene.mixer(*command)
        assert leaks(answer.out + answer.err), command
    assert leaks(whole_traceback(scene.config))
