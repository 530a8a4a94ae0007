from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mixer import building
from mixer.cli.starting import group
from mixer.config import load_config, parse_config
from mixer.storage.inputs import find_inputs
from tests.cli.conftest import Mixer
from tests.mixes import make_inputs


def write(path: Path, rows: int = 5) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": ["a"] * rows}), path)


def test_without_a_location_an_example_is_written_that_loads(mixer: Mixer, tmp_path: Path) -> None:
    config = tmp_path / "mix.yaml"
    answer = mixer("init", str(config))
    assert answer.code == 0
    assert f"mixer plan {config}" in answer.out
    assert list(load_config(config).datasets) == ["web", "code", "books"]


def test_a_file_that_is_there_is_only_replaced_by_force(mixer: Mixer, tmp_path: Path) -> None:
    config = tmp_path / "mix.yaml"
    config.write_text("mine")
    answer = mixer("init", str(config))
    assert (answer.code, answer.out) == (2, "")
    assert "--force" in answer.err
    assert config.read_text() == "mine"
    assert mixer("init", str(config), "--force").code == 0
    assert config.read_text() != "mine"


def test_a_place_that_cannot_be_written_is_said(mixer: Mixer, tmp_path: Path) -> None:
    answer = mixer("init", str(tmp_path / "none/mix.yaml"))
    assert answer.code == 2
    assert "none/mix.yaml: cannot be written" in answer.err


def test_what_lies_at_a_location_is_written_down_and_can_be_planned_and_run(mixer: Mixer, tmp_path: Path) -> None:
    make_inputs(tmp_path / "inputs")
    config = tmp_path / "mix.yaml"
    answer = mixer("init", str(config), "--from", str(tmp_path / "inputs"), "--json")
    assert answer.code == 0
    assert {d["name"]: (d["files"], d["rows"]) for d in answer.json["datasets"]} == {
        "books": (2, 12),
        "code": (2, 30),
        "web": (2, 60),
    }
    config.write_text(config.read_text().replace("output: mixed", f"output: {tmp_path / 'out'}"))
    planned = mixer("plan", str(config), "--json")
    assert planned.code == 0
    assert planned.json["end"]["first_exhausted"] == "books"
    assert mixer("run", str(config), "--no-prefect", "--quiet").code == 0


def test_a_location_without_data_is_refused_and_nothing_is_written(mixer: Mixer, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "hollow/a.parquet", rows=0)
    for location in ("none", "empty", "hollow"):
        answer = mixer("init", str(tmp_path / "mix.yaml"), "--from", str(tmp_path / location))
        assert answer.code == 2
        assert str(tmp_path / location) in answer.err
    assert not (tmp_path / "mix.yaml").exists()


def test_odd_names_are_quoted_so_that_they_load(mixer: Mixer, tmp_path: Path) -> None:
    for name in ("no", "a: b", "#x", "1e3", "中文", "it's", "{{x}}"):
        write(tmp_path / "in" / name / "a.parquet")
    answer = mixer("init", str(tmp_path / "mix.yaml"), "--from", str(tmp_path / "in"))
    assert answer.code == 0
    assert set(load_config(tmp_path / "mix.yaml").datasets) == {"no", "a: b", "#x", "1e3", "中文", "it's", "{{x}}"}


NAMES = st.text(st.sampled_from("ab-_. 019*[?é\\"), min_size=1, max_size=8)
PATHS = st.lists(st.tuples(st.sampled_from(["", "x/", "y/z/", "x-2/"]), NAMES), min_size=1, max_size=8, unique=True)


@given(paths=PATHS)
@example(paths=[("", "0.")])
@example(paths=[("x/", "a" * 230), ("", "a" * 230), ("", "b" * 240)])
@example(paths=[("", " ")])
def test_every_file_is_in_one_dataset_and_in_no_other(
    tmp_path_factory: pytest.TempPathFactory, paths: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("in")
    for below, name in paths:
        path = folder / f"{below}{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    listed = [str(folder / f"{below}{name}.parquet") for below, name in paths if not name.startswith((".", "_"))]
    if not listed:
        return
    found = [file.url for path in group(listed).values() for file in find_inputs(path).files]
    assert sorted(found) == sorted(listed)
    names = group(listed)
    text = "output: out\nbatch_size: 1\nbatches: 1\nbatches_per_shard: 1\ndatasets:\n"
    for name in names:
        text += f"  {name!r}: {{path: x, weight: 1}}\n"
    assert list(parse_config(text, "mix.yaml").datasets) == list(names)


def test_files_that_are_not_parquet_are_proposed_where_there_is_no_parquet(mixer: Mixer, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "web").mkdir(parents=True)
    (data / "README.md").write_text("# What this is")
    (data / "web/a.txt").write_text("one\ntwo\n")
    for number in range(2):
        (data / f"books-{number}.jsonl").write_text('{"text": "a"}\n' * 600)
    config = tmp_path / "mix.yaml"
    answer = mixer("init", str(config), "--from", str(data), "--json")
    assert answer.code == 0
    found = {dataset["name"]: (dataset["files"], dataset["rows"]) for dataset in answer.json["datasets"]}
    assert found == {"books": (2, None), "web": (1, None)}
    assert "# rows to be prepared in 2 files" in config.read_text()
    loaded = load_config(config)
    assert loaded.datasets["books"].path == f"{data}/books-*.jsonl"
    assert building.prepare(loaded.model_copy(update={"output": str(tmp_path / "out")})).stages[0].rows == 1200
    # Notes on Parquet are no data.
    pq.write_table(pa.table({"n": [1]}), data / "code.parquet")
    again = mixer("init", str(config), "--from", str(data), "--json", "--force")
    assert [dataset["name"] for dataset in again.json["datasets"]] == ["code"]
