"""Credentials reach the servers they are for, and nothing else: no output, log, object, message or traceback."""

from __future__ import annotations

import logging
import traceback
from dataclasses import dataclass
from pathlib import Path

import pytest

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


def leaks(text: str) -> list[str]:
    """Return the secrets that stand in `text`."""
    return [secret for secret in ALL if secret in text]


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
def scene(mixer: Mixer, tmp_path: Path, s3_url: str, caplog: pytest.LogCaptureFixture) -> Scene:
    caplog.set_level(logging.DEBUG, logger="mixer")
    return Scene(mixer, s3_config(tmp_path, s3_url), s3_url, caplog)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let stores try again at once."""
    monkeypatch.setattr(RetryPolicy, "wait_s", lambda _self, _failures: 0.0)


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
