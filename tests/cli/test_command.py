"""The installed command in processes of its own: streams, exit codes, signals, what it loads."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from mixer import building
from mixer.core.plan import shard_path
from tests.e2e.runs import result, unbroken
from tests.mixes import config_file, mix_config

MIXER = str(Path(sys.executable).with_name("mixer"))
HEAVY = {"numpy", "pyarrow", "pydantic", "yaml", "rich", "fsspec", "s3fs", "prefect", "flows"}
SLOW_RUN = str(Path(__file__).with_name("slow_run.py"))
MANY_SHARDS = {"batches": 18, "batches_per_shard": 1, "batch_size": 4}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MIXER, *arguments], capture_output=True, text=True, timeout=180, env={**os.environ, **environment}, check=False
    )


def started(*arguments: str) -> subprocess.Popen[str]:
    """Start Python, to be sent signals."""
    return subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_help_loads_no_more_than_it_needs() -> None:
    script = (
        "import sys\nfrom mixer.cli import main\ntry:\n    main()\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    )
    shown = subprocess.run([sys.executable, "-c", script, "--help"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("Usage: mixer")
    loaded = {name.split(".")[0] for name in shown.stderr.split()}
    assert "typer" in loaded
    assert loaded & HEAVY == set()


def test_results_go_to_stdout_and_progress_to_stderr(tmp_path: Path) -> None:
    done = run("run", config_file(tmp_path), "--no-prefect")
    assert done.returncode == 0
    assert done.stdout.startswith("Output ")
    assert done.stderr.startswith("shard 4 of 4, ")
    again = run("run", config_file(tmp_path), "--no-prefect", "--json")
    assert (again.returncode, again.stderr) == (0, "")
    assert json.loads(again.stdout)["finished"] is True


def test_text_that_the_locale_cannot_spell_ends_no_command(tmp_path: Path) -> None:
    config = Path(config_file(tmp_path))
    config.write_text(config.read_text().replace("books:", "книги:"), encoding="utf-8")
    shown = run("plan", str(config), PYTHONIOENCODING="ascii")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert r"\u043a\u043d\u0438\u0433\u0438" in shown.stdout
    values = yaml.safe_load(config.read_text(encoding="utf-8"))
    assert list(values["datasets"]) == ["web", "code", "книги"]


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_reader_who_leaves_ends_no_run_and_makes_no_noise(tmp_path: Path, stream: str, unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: writing}
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = [MIXER, "run", config_file(tmp_path), "--no-prefect"]
    process = subprocess.Popen(command, text=True, env=environment, **streams)
    os.close(writing)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0
    assert building.status(str(tmp_path / "out")).finished
    assert (out or "").startswith("Output" if stream == "stderr" else "")
    assert [line for line in (err or "").splitlines() if not line.startswith("shard ")] == []


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_stream_that_is_closed_ends_no_run(tmp_path: Path, number: int) -> None:
    script = f'exec "$@" {number}{"<" if number == 0 else ">"}&-'
    command = ["sh", "-c", script, "sh", MIXER, "run", config_file(tmp_path), "--no-prefect"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("" if number == 1 else "Output")
    assert [line for line in done.stderr.splitlines() if not line.startswith("shard ")] == []
    assert building.status(str(tmp_path / "out")).finished


def test_what_is_said_by_number_goes_into_no_file_if_stderr_is_closed(tmp_path: Path) -> None:
    script = (
        "import os, sys\nfrom mixer.cli import main\ntry:\n    main()\nexcept SystemExit:\n"
        "    file = open(sys.argv[1], 'w')\n    os.write(2, b'spoilt')"
    )
    path = tmp_path / "mine.txt"
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", script, str(path)]
    subprocess.run(command, stdout=subprocess.DEVNULL, timeout=180, check=True)
    assert path.read_text() == ""


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(
    "arguments", [["run", "--no-prefect", "--quiet"], ["run", "--no-prefect", "--quiet", "--json"], ["run", "--help"]]
)
def test_a_stdout_that_is_full_is_told_in_one_line(tmp_path: Path, arguments: list[str], unbuffered: str) -> None:
    config = config_file(tmp_path)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        command = [MIXER, *arguments, config]
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=180, check=False, env=environment
        )
    [line] = done.stderr.splitlines()
    assert line.startswith("mixer: the result cannot be written to stdout: No space left on device; ")
    assert done.returncode == 1
    assert "--help" in arguments or building.status(str(tmp_path / "out")).finished


def test_a_stderr_that_is_full_ends_no_run(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [MIXER, "run", config_file(tmp_path), "--no-prefect"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, text=True, timeout=180, check=False)
    assert (done.returncode, done.stdout[:6]) == (0, "Output")


INTERRUPTED_AT = """
import sys
wanted = sys.argv.pop(1)
class CtrlC:
    def find_spec(self, name, path, target=None):
        if name == wanted:
            sys.meta_path.remove(self)
            raise KeyboardInterrupt
sys.meta_path.insert(0, CtrlC())
from mixer.cli import main
main()
"""


@pytest.mark.parametrize("module", ["typer", "mixer.cli.edge", "mixer.cli.running", "pyarrow", "yaml"])
def test_ctrl_c_while_modules_are_loaded_is_an_interruption(tmp_path: Path, module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED_AT, module, "run", config_file(tmp_path), "--no-prefect", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stderr) == (130, "mixer: interrupted\n")
    assert json.loads(done.stdout)["error"]["exit_code"] == 130


def on_a_terminal(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str, str]:
    """Run the command with a terminal as its stderr; return exit code, stdout and what the terminal got."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [MIXER, *arguments], stdout=subprocess.PIPE, stderr=theirs, text=True, env={**os.environ, **environment}
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        said += data
    os.close(ours)
    out, _ = process.communicate(timeout=180)
    return process.returncode, out, said.decode()


def test_on_a_terminal_there_is_a_bar_and_stdout_stays_json(tmp_path: Path) -> None:
    arguments = ["run", config_file(tmp_path), "--no-prefect", "--json"]
    code, out, said = on_a_terminal(arguments, {"TERM": "xterm", "COLUMNS": "120", "CI": ""})
    assert code == 0
    assert json.loads(out)["committed"] == 4
    assert "shard 4 of 4" in said
    assert "\x1b[?25h" in said


def test_on_a_terminal_of_a_ci_there_is_none(tmp_path: Path) -> None:
    arguments = ["run", config_file(tmp_path), "--no-prefect", "--json"]
    code, _, said = on_a_terminal(arguments, {"TERM": "xterm", "CI": "true"})
    assert code == 0
    assert "\x1b" not in said


@pytest.mark.crash
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_stops_at_a_shards_edge_and_the_same_command_goes_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    whole = building.build(mix_config(tmp_path, output=str(tmp_path / "whole"), **MANY_SHARDS))
    config = config_file(tmp_path, **MANY_SHARDS)
    process = started(SLOW_RUN, "run", config, "--no-prefect", "--json")
    while not list((tmp_path / "out/.mixer/log").glob("*2.json")):
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=180)

    assert process.returncode == 128 + number
    value = json.loads(out)
    assert value["error"]["type"] == "Stopped"
    assert value["error"]["exit_code"] == 128 + number
    assert "the same command goes on from there" in value["error"]["message"]
    assert f"{number.name}: stopping after the shard under way; once more stops at once" in err
    assert 2 <= value["committed"] < 18
    # What was under way was committed, and nothing was begun after it.
    assert len(list((tmp_path / "out/data").iterdir())) == value["committed"]

    again = run("run", config, "--no-prefect", "--json")
    assert again.returncode == 0
    assert json.loads(again.stdout)["head"] == whole.head


@pytest.mark.crash
@pytest.mark.parametrize(
    "numbers",
    [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM), (signal.SIGINT, signal.SIGINT)],
    ids=lambda numbers: "-".join(number.name for number in numbers),
)
def test_the_second_signal_stops_a_run_at_once_and_the_same_command_goes_on(
    tmp_path: Path, numbers: tuple[signal.Signals, signal.Signals], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = unbroken(mix_config(tmp_path, **MANY_SHARDS), tmp_path / "whole")
    config = config_file(tmp_path, **MANY_SHARDS)
    monkeypatch.setenv("MIXER_TEST_STUCK_AT", shard_path(3))
    process = started(SLOW_RUN, "run", config, "--no-prefect", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stderr.readline() == "stuck\n"
    process.send_signal(numbers[0])
    assert process.stderr.readline() == "\n"
    assert "once more stops at once" in process.stderr.readline()
    assert process.poll() is None
    process.send_signal(numbers[1])
    out, err = process.communicate(timeout=180)
    assert process.returncode == -numbers[1]
    assert (out, err) == ("", "")

    assert building.status(str(tmp_path / "out")).committed == 3
    again = run("run", config, "--no-prefect", "--json")
    assert json.loads(again.stdout)["head"] == expected.head
    assert result(str(tmp_path / "out")) == expected
