"""`mixer doctor`: a line for each check, an exit code for all of them, and no secret in any."""

from __future__ import annotations

from pathlib import Path

import pytest

from mixer.cli import doctor_view
from tests.cli.conftest import Mixer
from tests.mixes import config_file
from tests.s3_server import ACCESS_KEY_ID, SECRET_ACCESS_KEY


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Prefect server, and a home of its own."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))


def test_with_nothing_given_it_looks_at_versions_machine_and_prefect(mixer: Mixer) -> None:
    looked = mixer("doctor", "--json")
    assert (looked.code, looked.err) == (0, "")
    assert {check["area"] for check in looked.json["checks"]} == {"versions", "machine", "prefect"}
    assert (looked.json["ok"], looked.json["output"]) == (True, None)
    shown = mixer("doctor")
    lines = shown.out.splitlines()
    assert len(lines) >= len(looked.json["checks"]) + 2
    assert lines[0].split()[:3] == ["ok", "versions", "python"]
    assert lines[-1].startswith("Result: nothing failed")


def test_a_config_that_can_be_run_is_well_and_nothing_is_left_behind(mixer: Mixer, tmp_path: Path) -> None:
    config = config_file(tmp_path)
    looked = mixer("doctor", config, "--json")
    assert looked.code == 0
    assert {check["area"] for check in looked.json["checks"]} == {"versions", "machine", "prefect", "inputs", "output"}
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []
    assert mixer("run", config, "--no-prefect", "--quiet").code == 0
    assert mixer("doctor", str(tmp_path / "out")).code == 0
    assert mixer("verify", str(tmp_path / "out"), "--json").json["orphans"] == []


def test_what_fails_is_an_exit_code_of_1_and_said_on_both_streams(mixer: Mixer, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("x")
    looked = mixer("doctor", str(tmp_path / "mine"))
    assert looked.code == 1
    assert "FAILED   output    run" in looked.out
    assert "-> choose another output, or empty this one" in looked.out
    assert looked.err.startswith("mixer: 1 check failed, ")
    assert "the first: output, run: other objects lie here" in looked.err
    value = mixer("doctor", str(tmp_path / "mine"), "--json").json
    assert (value["ok"], value["counts"]["failed"], value["error"]["exit_code"]) == (False, 1, 1)


def test_a_config_that_is_none_is_bad_usage(mixer: Mixer, tmp_path: Path) -> None:
    assert mixer("doctor", str(tmp_path / "nothing.yaml")).code == 2
    (tmp_path / "bad.yaml").write_text("output: 1")
    assert mixer("doctor", str(tmp_path / "bad.yaml")).code == 2


@pytest.mark.s3
def test_no_key_is_shown_whatever_it_is_good_for(
    mixer: Mixer, tmp_path: Path, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", f"http://me:{SECRET_ACCESS_KEY}@127.0.0.1:9/api")
    well = mixer("doctor", s3_url, "--debug")
    assert "ok       output    create at once" in well.out
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrongwrongwrong")
    refused = mixer("doctor", s3_url, "--debug", "--json")
    assert refused.code == 1
    for answer in (well, refused):
        for secret in (ACCESS_KEY_ID, SECRET_ACCESS_KEY, "wrongwrongwrong"):
            assert secret not in answer.out + answer.err


def test_long_lines_are_folded_and_whole() -> None:
    check = {"area": "output", "name": "run", "state": "failed", "found": "word " * 30, "advice": "do " * 30}
    value = {"checks": [check], "counts": {"ok": 0, "warning": 0, "failed": 1}}
    lines = list(doctor_view.checkup_lines(value, 80))
    assert max(map(len, lines)) <= 80
    assert " ".join(lines).count("word") == 30
    assert " ".join(lines).count("do") == 30


def test_names_cannot_steer_the_terminal() -> None:
    check = {"area": "inputs", "name": "a\x1b[2J", "state": "ok", "found": "b\x1b[2J", "advice": "c\x1b"}
    value = {"checks": [check], "counts": {"ok": 1, "warning": 0, "failed": 0}}
    assert "\x1b" not in "".join(doctor_view.checkup_lines(value, None))
