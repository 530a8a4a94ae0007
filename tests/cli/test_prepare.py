"""`mixer prepare`: what it makes, what it says of it, and how it is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from mixer import building
from mixer.cli import preparing, running
from mixer.cli.progress import Lines
from mixer.preparation.record import PREPARED_NAME
from mixer.storage import open_store
from tests.cli.conftest import Mixer
from tests.e2e.runs import objects
from tests.preparing import WEB_ROWS, config_of, lines, small_parts, values

SLOW = [sys.executable, "-m", "tests.cli.slow_prepare"]
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def _several_parts() -> Iterator[None]:
    with small_parts():
        yield


def config_file(folder: Path, **changes: object) -> str:
    path = folder / "mix.yaml"
    path.write_text(yaml.safe_dump(values(folder, **changes), sort_keys=False))
    return str(path)


def test_it_prepares_says_what_and_a_second_time_that_there_was_nothing_to_do(tmp_path: Path, mixer: Mixer) -> None:
    config = config_file(tmp_path)
    first = mixer("prepare", config, "--no-prefect")
    assert first.code == 0
    assert first.out.startswith("Prepared  1 copy, made now\nPlace     ")
    assert "web      rows     60" in first.out
    assert first.err.startswith("rows of web: part ")
    assert "last .mixer/prepared/" in first.err
    again = mixer("prepare", config, "--no-prefect")
    assert (again.code, again.err) == (0, "")
    assert again.out.startswith("Prepared  1 copy, which was there already\n")


def test_json_is_one_object_with_all_that_was_made(tmp_path: Path, mixer: Mixer) -> None:
    config = config_file(tmp_path)
    answer = mixer("prepare", config, "--no-prefect", "--json", "--quiet")
    assert (answer.code, answer.err) == (0, "")
    (stage,) = answer.json["stages"]
    assert (answer.json["made"], stage["new"], stage["dataset"], stage["stage"]) == (1, True, "web", "rows")
    assert (stage["rows"], stage["put_aside"], stage["quarantine"]) == (WEB_ROWS, 0, None)
    assert Path(stage["where"], PREPARED_NAME).exists()
    assert sum(path.stat().st_size for path in Path(stage["where"]).rglob("*.parquet")) == stage["bytes"]


def test_bad_lines_are_counted_and_what_was_put_aside_is_found(tmp_path: Path, mixer: Mixer) -> None:
    config = config_file(tmp_path)
    (tmp_path / "inputs/web.jsonl").write_text(lines(30) + "{broken\n" + lines(3))
    refused = mixer("prepare", config, "--no-prefect")
    assert refused.code == 2
    assert "web.jsonl" in refused.err
    assert "31" in refused.err
    text = Path(config).read_text()
    Path(config).write_text(text.replace("weight: 3", "weight: 3\n    on_bad_line: quarantine"))
    shown = mixer("prepare", config, "--no-prefect")
    assert shown.code == 0
    assert "web, rows: put aside in " in shown.out
    stage = mixer("prepare", config, "--no-prefect", "--json").json["stages"][0]
    assert (stage["rows"], stage["put_aside"]) == (33, 1)
    (put_aside,) = Path(stage["quarantine"]).iterdir()
    told = json.loads(put_aside.read_text())
    assert (told["line"], told["data"].strip()) == (31, "{broken")


def test_a_run_that_prepares_by_itself_says_how_many_lines_it_left_out(tmp_path: Path, mixer: Mixer) -> None:
    config = config_file(tmp_path)
    (tmp_path / "inputs/web.jsonl").write_text(lines(30) + "{broken\n" + lines(30))
    text = Path(config).read_text()
    Path(config).write_text(text.replace("weight: 3", "weight: 3\n    on_bad_line: skip"))
    done = mixer("run", config, "--no-prefect", "--quiet")
    assert done.code == 0
    assert "left out bad lines dataset=web broken=1 where=" in done.err


def test_where_all_is_parquet_nothing_is_done(tmp_path: Path, mixer: Mixer) -> None:
    found = values(tmp_path)
    config = config_file(tmp_path, datasets={"code": found["datasets"]["code"]})
    answer = mixer("prepare", config, "--no-prefect")
    assert (answer.code, answer.out.split(":")[0]) == (0, "Nothing is to be prepared")
    assert not (tmp_path / "out").exists()


def test_a_run_shows_parts_and_then_shards(tmp_path: Path, mixer: Mixer) -> None:
    answer = mixer("run", config_file(tmp_path), "--no-prefect")
    assert (answer.code, answer.out[:6]) == (0, "Output")
    assert answer.err.startswith("shard 4 of 4, ")


def test_a_plan_of_what_is_not_prepared_says_what_to_type(tmp_path: Path, mixer: Mixer) -> None:
    config = config_file(tmp_path)
    answer = mixer("plan", config, "--json")
    assert (answer.code, answer.json["error"]["type"]) == (2, "NotPreparedError")
    assert "`mixer prepare`" in answer.json["error"]["message"]
    mixer("prepare", config, "--no-prefect")
    assert mixer("plan", config, "--json").json["datasets"][0]["rows"] == WEB_ROWS


def test_the_last_part_is_named_where_it_lies_and_before_the_first_there_is_no_part(
    tmp_path: Path, mixer: Mixer, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = mixer("prepare", config_file(tmp_path, prepared=f"{tmp_path}/shared/"), "--no-prefect")
    assert Path(answer.err.splitlines()[-1].split(", last ")[1]).is_file()
    with Lines(seconds=0.01, unit="part"):
        while not (said := capsys.readouterr().err):
            pass
    assert said.splitlines()[0] == "no part yet"


def test_what_is_to_be_prepared_below_a_date_is_refused_before_any_flow_run_and_a_plan_says_what_to_do(
    tmp_path: Path, mixer: Mixer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_flow(name: str, *, debug: bool) -> None:
        raise AssertionError(f"asked for the flow {name}, debug={debug}")

    for module in (preparing, running):
        monkeypatch.setattr(module, "flow_of", no_flow)
    dated = config_file(tmp_path, output=f"{tmp_path}/{{date}}")
    for verb in ("prepare", "run"):
        refused = mixer(verb, dated)
        assert refused.code == 2
        assert "{date} stands for the date of a scheduled flow run" in refused.err
    told = mixer("plan", dated).err
    assert "a scheduled flow run does it by itself" in told
    assert "set `prepared`" in told
    assert "`mixer run`" not in told
    shared = config_file(tmp_path, output=f"{tmp_path}/{{date}}", prepared=str(tmp_path / "shared"))
    told = mixer("plan", shared).err
    assert "`mixer prepare` with this config does it, and so does a scheduled flow run" in told
    assert mixer("prepare", shared, "--no-prefect").code == 0
    assert "a scheduled flow run starts it" in " ".join(mixer("plan", shared).out.split())


def test_doctor_says_whether_all_is_prepared(tmp_path: Path, mixer: Mixer) -> None:
    config = config_file(tmp_path)
    assert "not prepared yet: 'web'" in mixer("doctor", config).out
    mixer("prepare", config, "--no-prefect")
    assert "prepared        all of it, in " in mixer("doctor", config).out


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda folder: (folder / "inputs/web.jsonl").unlink(), 2),
        (lambda folder: (folder / "inputs/web.jsonl").write_text(""), 2),
        (lambda folder: (folder / "out").write_text("a file"), 1),
    ],
    ids=["no input", "an empty input", "no folder"],
)
def test_exit_codes_are_those_of_other_commands(tmp_path: Path, mixer: Mixer, spoil: object, code: int) -> None:
    config = config_file(tmp_path)
    assert callable(spoil)
    spoil(tmp_path)
    answer = mixer("prepare", config, "--no-prefect", "--json")
    assert (answer.code, answer.json["error"]["exit_code"]) == (code, code)


@pytest.mark.crash
@pytest.mark.parametrize("verb", ["prepare", "run"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_stops_at_a_parts_edge_and_the_same_command_goes_on(
    tmp_path: Path, mixer: Mixer, verb: str, number: signal.Signals
) -> None:
    config = config_file(tmp_path)
    process = subprocess.Popen(
        [*SLOW, verb, config, "--no-prefect", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=dict(os.environ),
    )
    while process.poll() is None and not list((tmp_path / "out/.mixer/prepared").glob("*/log/00000000.json")):
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 128 + number
    told = json.loads(out)
    assert (told["error"]["type"], told["error"]["exit_code"]) == ("Stopped", 128 + number)
    assert "the same call goes on from there" in told["error"]["message"]
    # Of a run nobody knows before its first commit whether it is a part or a shard.
    assert f"{number.name}: stopping after the {'part' if verb == 'prepare' else 'part or shard'} under way" in err
    parts = len(list((tmp_path / "out").rglob("part-*.parquet")))
    assert len(list((tmp_path / "out").rglob("log/0000000?.json"))) == parts
    assert not list((tmp_path / "out").rglob(PREPARED_NAME))

    assert mixer(verb, config, "--no-prefect", "--quiet").code == 0
    alone = config_of(tmp_path, output=str(tmp_path / "alone"))
    building.prepare(alone)
    found = objects(open_store(str(tmp_path / "out")), ".mixer/prepared/")
    assert found == objects(open_store(alone.output), ".mixer/prepared/")
