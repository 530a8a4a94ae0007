"""What people get wrong, and what they are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from mixer import building
from tests.cli.conftest import Mixer
from tests.mixes import WEIGHTS, config_file, config_values, mix_config
from tests.s3_server import SECRET_ACCESS_KEY

Damage = Callable[[Path], None]


def weights(**changes: Any) -> Callable[[Path], dict[str, Any]]:
    def change(folder: Path) -> dict[str, Any]:
        datasets = config_values(folder)["datasets"]
        for name, weight in changes.items():
            datasets[name]["weight"] = weight
        return {"datasets": datasets}

    return change


def path(name: str, where: str) -> Callable[[Path], dict[str, Any]]:
    def change(folder: Path) -> dict[str, Any]:
        datasets = config_values(folder)["datasets"]
        datasets[name]["path"] = str(folder / where)
        return {"datasets": datasets}

    return change


@pytest.mark.parametrize(
    ("change", "code", "essentials"),
    [
        (weights(web=0), 2, ["datasets.web.weight", "positive", "0"]),
        (weights(web=1.5), 2, ["datasets.web.weight", "1.5"]),
        (weights(web=True), 2, ["datasets.web.weight", "true"]),
        (weights(web="3"), 2, ["datasets.web.weight", "3"]),
        (weights(web=0, code=-1), 2, ["datasets.web.weight", "datasets.code.weight"]),
        (lambda _: {"batchsize": 4}, 2, ["batchsize", "batch_size"]),
        (lambda _: {"batches": 1000}, 5, ["'books' runs out first", "largest number that fits is 18"]),
        (lambda _: {"batch_size": 1000, "batches": 1}, 5, ["'web' runs out first"]),
        (lambda _: {"batch_size": 1000, "batches": None, "on_exhausted": "stop"}, 5, ["not one batch of 1000"]),
        (path("code", "nowhere"), 2, ["'code'", "nowhere", "check the path"]),
        (path("code", "nowhere/*.parquet"), 2, ["'code'", "nowhere/*.parquet"]),
        (path("code", "empty"), 2, ["'code'", "empty", "expected a file, a folder"]),
        (path("code", "text.parquet"), 2, ["'code'", "text.parquet", "Parquet"]),
        (path("code", "cut.parquet"), 2, ["'code'", "cut.parquet", "Parquet"]),
        (path("code", "zero.parquet"), 2, ["'code'", "zero.parquet"]),
        (path("code", "other.parquet"), 2, ["column", "'text'", "'code'", "other.parquet"]),
    ],
    ids=[
        "weight 0",
        "weight 1.5",
        "weight true",
        "weight as text",
        "two bad weights",
        "unknown key",
        "more batches than the data",
        "batch larger than the data",
        "batch larger than the data, stop",
        "missing file",
        "pattern without a match",
        "empty folder",
        "not Parquet",
        "truncated Parquet",
        "empty file",
        "other columns",
    ],
)
def test_a_config_that_cannot_be_run_is_refused_by_plan_and_by_run_alike(
    mixer: Mixer, tmp_path: Path, change: Callable[[Path], dict[str, Any]], code: int, essentials: list[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.parquet").write_text("this is text " * 100)
    (tmp_path / "zero.parquet").write_bytes(b"")
    pq.write_table(pa.table({"other": [1, 2, 3]}), tmp_path / "other.parquet")
    config = config_file(tmp_path, **change(tmp_path))
    whole = (tmp_path / "inputs/code/part-0.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])

    planned = mixer("plan", config)
    run = mixer("run", config, "--no-prefect")
    with_json = mixer("run", config, "--no-prefect", "--json")

    assert (planned.code, run.code, with_json.code) == (code, code, code)
    assert (planned.out, run.out) == ("", "")
    assert planned.err == run.err == with_json.err
    for essential in essentials:
        assert essential in run.err
    assert "Traceback" not in run.err
    assert with_json.json["error"]["exit_code"] == code
    assert f"mixer: {with_json.json['error']['message']}\n" == run.err
    assert not (tmp_path / "out").exists()


def test_a_dataset_that_stands_twice_in_the_yaml_is_refused_with_its_line(mixer: Mixer, tmp_path: Path) -> None:
    config = Path(config_file(tmp_path))
    text = config.read_text()
    config.write_text(text + yaml.safe_dump({"web": {"path": "x", "weight": 1}}).replace("web", "  web", 1))
    config.write_text(text + "  web: {path: x, weight: 1}\n")
    answer = mixer("plan", str(config))
    assert (answer.code, answer.out) == (2, "")
    assert "datasets.web" in answer.err
    assert f"mix.yaml:{len(text.splitlines()) + 1}:" in answer.err


def test_a_config_that_is_not_there_says_how_to_get_one(mixer: Mixer, tmp_path: Path) -> None:
    answer = mixer("plan", str(tmp_path / "none.yaml"))
    assert answer.code == 2
    assert "none.yaml: no such file; `mixer init`" in answer.err


@pytest.mark.parametrize("text", ["", "just text", "[1, 2", "output: [", "\x00"], ids=repr)
def test_a_config_that_is_no_mapping_is_refused(mixer: Mixer, tmp_path: Path, text: str) -> None:
    (tmp_path / "mix.yaml").write_text(text)
    answer = mixer("plan", str(tmp_path / "mix.yaml"))
    assert (answer.code, answer.out) == (2, "")
    assert "mix.yaml" in answer.err
    assert "a bug in mixer" not in answer.err


def test_an_output_with_foreign_files_is_refused_but_planned(mixer: Mixer, tmp_path: Path) -> None:
    config = config_file(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.txt").write_text("mine")
    planned = mixer("plan", config)
    run = mixer("run", config, "--no-prefect")
    assert (planned.code, run.code) == (2, 2)
    assert "48 in 12 batches" in planned.out
    assert planned.err == run.err
    assert "thesis.txt" in run.err
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["thesis.txt"]
    value = mixer("plan", config, "--json").json
    assert (value["action"], value["error"]["exit_code"], value["rows"]) == ("refuse", 2, 48)


@pytest.mark.parametrize("output", ["a file/out", "/proc/out", "/proc/self/out"])
def test_an_output_that_cannot_be_written_is_refused(mixer: Mixer, tmp_path: Path, output: str) -> None:
    (tmp_path / "a file").write_text("not a folder")
    output = str(tmp_path / output)
    answer = mixer("run", config_file(tmp_path, output=output), "--no-prefect")
    assert (answer.code, answer.out) == (1, "")
    assert output in answer.err
    assert "a bug in mixer" not in answer.err


@pytest.mark.parametrize("command", ["status", "verify", "head"])
@pytest.mark.parametrize("where", ["nothing", "empty", "foreign"])
def test_an_output_that_is_no_run_is_said_to_be_none(mixer: Mixer, tmp_path: Path, command: str, where: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/thesis.txt").write_text("mine")
    answer = mixer(command, str(tmp_path / where))
    assert (answer.code, answer.out) == (2, "")
    assert "no run of mixer here" in answer.err
    assert not (tmp_path / "nothing").exists()


def test_another_definition_at_the_output_exits_with_3_and_says_what_differs(mixer: Mixer, tmp_path: Path) -> None:
    building.build(mix_config(tmp_path))
    datasets = {**config_values(tmp_path)["datasets"]}
    datasets["web"]["weight"] = 4
    config = config_file(tmp_path, datasets=datasets)
    for arguments in (["plan", config], ["run", config, "--no-prefect"]):
        answer = mixer(*arguments)
        assert answer.code == 3
        assert f"datasets.web.weight: the run has {WEIGHTS['web']}, the config has 4" in answer.err


def test_an_input_that_changed_exits_with_3_and_names_it(mixer: Mixer, tmp_path: Path) -> None:
    with building.start(mix_config(tmp_path)) as run:
        run.write(1)
    part = tmp_path / "inputs/web/part-1.parquet"
    part.write_bytes(part.read_bytes() + b" ")
    for arguments in (["plan", config_file(tmp_path)], ["run", config_file(tmp_path), "--no-prefect"]):
        answer = mixer(*arguments)
        assert answer.code == 3
        assert str(part) in answer.err


def test_a_damaged_shard_makes_verify_exit_with_4_and_name_it(mixer: Mixer, tmp_path: Path) -> None:
    building.build(mix_config(tmp_path))
    shard = tmp_path / "out/data/shard-00000001.parquet"
    data = bytearray(shard.read_bytes())
    data[100] ^= 1
    shard.write_bytes(data)
    answer = mixer("verify", str(tmp_path / "out"), "--quiet")
    assert answer.code == 4
    assert answer.out.startswith(f"{shard}: expected sha256")
    assert answer.err == f"mixer: {tmp_path / 'out'}: 1 problem found\n"
    value = mixer("verify", str(tmp_path / "out"), "--json").json
    assert (value["ok"], value["error"]["exit_code"], len(value["problems"])) == (False, 4, 1)


def test_a_damaged_log_makes_status_and_run_exit_with_4(mixer: Mixer, tmp_path: Path) -> None:
    config = config_file(tmp_path)
    building.build(mix_config(tmp_path))
    slot = tmp_path / "out/.mixer/log/000000000005.json"
    slot.write_bytes(slot.read_bytes()[:-2])
    for arguments in (["status", str(tmp_path / "out")], ["run", config, "--no-prefect"], ["plan", config]):
        answer = mixer(*arguments)
        assert (answer.code, answer.out) == (4, "")
        assert "000000000005.json" in answer.err


@pytest.mark.s3
@pytest.mark.parametrize("variable", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_wrong_credentials_are_told_at_once_and_not_shown(
    mixer: Mixer, tmp_path: Path, s3_url: str, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    config = config_file(tmp_path, output=s3_url)
    monkeypatch.setenv(variable, "wrongwrongwrong")
    for arguments in (["plan", config], ["run", config, "--no-prefect"], ["status", s3_url]):
        answer = mixer(*arguments, "--debug")
        assert answer.code == 1
        assert s3_url in answer.err
        assert f"check {variable}" in answer.err
        assert "a bug in mixer" not in answer.err
        assert SECRET_ACCESS_KEY not in answer.err
        assert "wrongwrong" not in answer.err
