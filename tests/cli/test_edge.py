from __future__ import annotations

import json

import pytest
import typer

from mixer.cli import edge
from mixer.cli.console import Reply
from mixer.errors import FencedError, MixerError
from tests.cli.conftest import Mixer


def answering(error: BaseException) -> typer.Typer:
    """Return an app with one command, which raises `error`."""
    broken = typer.Typer()

    @broken.command()
    def only(json: bool = typer.Option(False), debug: bool = typer.Option(False)) -> Reply:
        raise error

    return broken


def run(error: BaseException, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = edge.run_app(answering(error), arguments)
    said = capsys.readouterr()
    return code, said.out, said.err


def test_an_error_of_ours_is_one_line_and_its_exit_code(mixer: Mixer, capsys: pytest.CaptureFixture[str]) -> None:
    error = FencedError("another start took over")
    error.add_note("See `mixer status`.")
    assert run(error, capsys) == (6, "", "mixer: another start took over\nSee `mixer status`.\n")


def test_an_unexpected_error_is_said_to_be_a_bug_without_a_traceback(
    mixer: Mixer, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(KeyError("weights"), capsys)
    assert (code, out) == (1, "")
    assert err == (
        "mixer: this is a bug in mixer: KeyError: 'weights'\n"
        "Please report it with the traceback; the same command with --debug shows it.\n"
    )


def test_a_process_that_may_have_no_more_threads_is_no_bug(mixer: Mixer, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(RuntimeError("can't start new thread"), capsys)
    assert code == 1
    assert err.startswith("mixer: can't start new thread: this process may have no more of them; raise its limits")
    assert "bug" not in err
    assert "bug" in run(RuntimeError("else"), capsys)[2]


@pytest.mark.parametrize("error", [KeyError("weights"), MixerError("weights")])
def test_debug_shows_the_traceback(mixer: Mixer, capsys: pytest.CaptureFixture[str], error: Exception) -> None:
    code, _, err = run(error, capsys, "--debug")
    assert code == 1
    assert "Traceback (most recent call last)" in err
    assert "in only" in err
    assert "--debug" not in err


@pytest.mark.parametrize("flags", [("--json",), ("--json", "--debug")], ids=" ".join)
@pytest.mark.parametrize(
    ("error", "code"),
    [(MixerError("no"), 1), (FencedError("no"), 6), (KeyError("no"), 1), (KeyboardInterrupt(), 130)],
    ids=lambda value: type(value).__name__,
)
def test_with_json_every_failure_is_one_object(
    mixer: Mixer, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, flags: tuple[str, ...]
) -> None:
    found, out, err = run(error, capsys, *flags)
    assert found == code
    value = json.loads(out)
    assert list(value) == ["error"]
    assert value["error"]["type"] == type(error).__name__
    assert value["error"]["exit_code"] == code
    assert value["error"]["message"]
    assert err


def test_secrets_are_shown_neither_in_messages_nor_in_tracebacks(
    mixer: Mixer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2hunter2")
    text = "refused s3://me:pass@bucket/key with hunter2hunter2"
    for error in (MixerError(text), ValueError(text)):
        _, out, err = run(error, capsys, "--json", "--debug")
        assert "hunter2" not in out + err
        assert "me:pass" not in out + err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["plan"], "Missing argument 'CONFIG'"),
        (["plan", "a", "b"], "unexpected extra argument"),
        (["run", "--fast", "mix.yaml"], "No such option: --fast"),
        (["head", "out", "-n", "0"], "greater than or equal to 1"),
        (["head", "out", "--batch", "-1"], "greater than or equal to 0"),
        (["head", "out", "-n", "many"], "integer"),
        (["plon", "mix.yaml"], "Did you mean 'plan'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_usage_exits_with_2_and_shows_where_help_is(mixer: Mixer, arguments: list[str], expected: str) -> None:
    answer = mixer(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert expected in answer.err
    assert "--help" in answer.err
    with_json = mixer(*arguments, "--json")
    assert (with_json.code, with_json.json["error"]["type"]) == (2, "UsageError")
    assert expected in with_json.json["error"]["message"]


def test_json_behind_two_dashes_is_a_name(mixer: Mixer) -> None:
    answer = mixer("plan", "--", "--json")
    assert (answer.code, answer.out) == (2, "")
    assert "--json: no such file" in answer.err


@pytest.mark.parametrize("command", ["init", "plan", "run", "status", "verify", "head", "where"])
def test_every_command_helps_with_an_example(mixer: Mixer, command: str) -> None:
    answer = mixer(command, "--help")
    assert answer.code == 0
    assert f"Example:\n    mixer {command} " in answer.out
    assert "--json" in answer.out
    assert "--debug" in answer.out


def test_without_a_command_there_is_help(mixer: Mixer) -> None:
    answer = mixer()
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("Usage: mixer")
    assert "mixer init mix.yaml --from DATA" in answer.err
    assert answer.err.count("Usage:") == 1


def test_the_version_is_told(mixer: Mixer) -> None:
    assert mixer("--version").out.startswith("mixer 0.")
