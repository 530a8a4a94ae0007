"""What `mixer run --extend` and `mixer plan` say of runs that get longer."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Mixer
from tests.mixes import config_file


def test_a_longer_run_is_refused_until_it_is_asked_for(mixer: Mixer, tmp_path: Path) -> None:
    assert mixer("run", config_file(tmp_path, batches=10), "--no-prefect", "--quiet").code == 0
    config = config_file(tmp_path, batches=17)
    refused = mixer("run", config, "--no-prefect", "--quiet")
    assert refused.code == 3
    assert "batches: the run has 10, the config has 17" in refused.err
    assert "`mixer run --extend`" in refused.err
    planned = mixer("plan", config)
    assert planned.code == 0
    assert f"longer: 4 of 7 shards are there, `mixer run {config} --extend` makes the others" in planned.out
    assert mixer("plan", config, "--json").json["action"] == "extend"
    done = mixer("run", config, "--no-prefect", "--quiet", "--extend")
    assert done.code == 0, done.err
    assert "extended once, finished" in done.out
    assert "Shards       7 of 7 committed" in done.out
    assert mixer("status", str(tmp_path / "out"), "--json").json["extensions"] == 1
    assert mixer("verify", str(tmp_path / "out")).code == 0
    again = mixer("run", config, "--no-prefect", "--quiet", "--extend")
    assert (again.code, again.out) == (0, done.out)


def test_a_shorter_run_is_refused_though_it_is_asked_for(mixer: Mixer, tmp_path: Path) -> None:
    assert mixer("run", config_file(tmp_path), "--no-prefect", "--quiet").code == 0
    refused = mixer("run", config_file(tmp_path, batches=11), "--no-prefect", "--quiet", "--extend", "--json")
    assert (refused.code, refused.json["error"]["type"]) == (3, "ChangedError")
    assert "it can only get longer" in refused.json["error"]["message"]


def test_more_than_the_data_has_is_not_enough_data(mixer: Mixer, tmp_path: Path) -> None:
    assert mixer("run", config_file(tmp_path), "--no-prefect", "--quiet").code == 0
    refused = mixer("run", config_file(tmp_path, batches=100), "--no-prefect", "--quiet", "--extend")
    assert refused.code == 5
    assert "what is added to them now needs another output" in refused.err
