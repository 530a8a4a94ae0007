"""`mixer fork`: it writes a config that starts a fork as it is; what is said of a fork says where its shards lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from mixer.config import load_config
from tests.cli.conftest import Mixer
from tests.mixes import config_file


@pytest.fixture
def run(mixer: Mixer, tmp_path: Path) -> str:
    assert mixer("run", config_file(tmp_path), "--no-prefect", "--quiet").code == 0
    return str(tmp_path / "out")


def test_a_fork_in_three_commands(mixer: Mixer, tmp_path: Path, run: str) -> None:
    path, new = str(tmp_path / "fork.yaml"), str(tmp_path / "new")
    asked = ("fork", run, path, "--at", "2", "--output", new, "--weight", "web=3", "--weight", "code=1")
    written = mixer(*asked, "--batches", "5")
    assert written.code == 0, written.err
    assert written.out.splitlines() == [
        f"Takes shards 0 to 1 of {run}, which stay there; shard 2 is the first new one",
        "  phase 1: 6 batches, web 3, code 2, books 1",
        "  phase 2: 5 batches, web 3, code 1",
        f"Wrote {path}. Set in it what comes now, look at what comes of it: mixer plan {path}",
        f"Then start it: mixer run {path}",
    ]
    assert not Path(new).exists()
    planned = mixer("plan", path)
    assert planned.code == 0, planned.err
    assert f"Forked      the first 2 shards, 6 batches, are those in {run}" in planned.out
    assert mixer("plan", path, "--json").json["parent"]["shards"] == 2
    done = mixer("run", path, "--no-prefect", "--quiet")
    assert done.code == 0, done.err
    for said in (done, mixer("status", new)):
        assert f"Forked       the first 2 shards, 6 batches, lie in {run}" in said.out
        assert "Shards       4 of 4 committed" in said.out
    assert mixer("status", new, "--json").json["parent"]["output"] == run
    checked = mixer("verify", new, "--quiet")
    assert (checked.code, f"Read in     {run}\n" in checked.out) == (0, True)
    assert mixer("head", new, "-n", "1", "--json").json["rows"] == mixer("head", run, "-n", "1", "--json").json["rows"]


def test_a_config_that_is_there_stays_unless_it_may_be_replaced(mixer: Mixer, tmp_path: Path, run: str) -> None:
    path = tmp_path / "fork.yaml"
    path.write_text("mine")
    asked = ("fork", run, str(path), "--at", "1", "--output", str(tmp_path / "new"))
    assert mixer(*asked).code == 2
    assert path.read_text() == "mine"
    answer = mixer(*asked, "--force", "--json")
    assert (answer.code, answer.json["phases"][0]["batches"]) == (0, 3)
    assert load_config(str(path)).fork is not None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--at", "5"), "expected 1 to 4 shards"),
        (("--at", "0"), "at"),
        (("--at", "2", "--weight", "web"), "--weight 'web': expected a dataset and a positive whole number"),
        (("--at", "2", "--weight", "web=-1"), "--weight 'web=-1'"),
        (("--at", "2", "--weight", "web=0"), "phases[1].weights.web"),
        (("--at", "2", "--weight", "wiki=1"), "there is no such dataset; there are 'web', 'code', 'books'"),
    ],
)
def test_what_cannot_be_forked_is_answered(
    mixer: Mixer, tmp_path: Path, run: str, options: tuple[str, ...], said: str
) -> None:
    path = tmp_path / "fork.yaml"
    answer = mixer("fork", run, str(path), "--output", str(tmp_path / "new"), *options)
    assert answer.code == 2
    assert said in answer.err
    assert not path.exists()
