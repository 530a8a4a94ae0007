"""`mixer where`: both ways, as text and as values, and what it says of what is not there."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixer import building
from mixer.cli.where_view import where_lines
from mixer.config import MixConfig, config_from
from mixer.core.order import full_order
from mixer.locating import where
from mixer.preparation.tokens import Sizes
from tests.cli.conftest import Mixer
from tests.mixes import mix_config


@pytest.fixture
def repeated(tmp_path: Path) -> str:
    """A run of two passes over `books`, with half of its shards."""
    config = mix_config(tmp_path, on_exhausted="repeat", batches=24, batches_per_row_group=2)
    with building.start(config) as run:
        run.write(4)
    return config.output


def test_a_place_is_told_its_shard_and_its_file(mixer: Mixer, repeated: str, tmp_path: Path) -> None:
    answer = mixer("where", repeated, "--batch", "11", "--slot", "1")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == [
        "Batch    11, slot 1: row 45 of the mix",
        f"Shard    {repeated}/data/shard-00000003.parquet",
        "         row 9 of it: row 1 of row group 1",
        "Dataset  web, row 23",
        f"File     {tmp_path}/inputs/web/part-1.parquet",
        "         row 3 of it: row 3 of row group 0",
        "Taken    in epoch 0, as item 23 of the dataset",
    ]


def test_what_is_not_written_yet_is_marked(mixer: Mixer, repeated: str) -> None:
    answer = mixer("where", repeated, "--batch", "12", "--slot", "0")
    assert answer.code == 0
    assert f"Shard    {repeated}/data/shard-00000004.parquet, which is not written yet" in answer.out.splitlines()


def test_a_row_that_is_taken_twice_has_two_places(mixer: Mixer, repeated: str, tmp_path: Path) -> None:
    answer = mixer("where", repeated, "--dataset", "books", "--row", "3")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == [
        "Dataset  books, row 3",
        f"File     {tmp_path}/inputs/books/part-0.parquet",
        "         row 3 of it: row 3 of row group 0",
        "",
        "2 times in the mix:",
        "batch  slot  epoch  shard  row of it  row group  row of it  written",
        "    5     3      0      1         11          1          3  yes",
        "   23     3      1      7         11          1          3  not yet",
    ]
    one = mixer("where", repeated, "--dataset", "books", "--row", "3", "--epoch", "1")
    assert one.out.splitlines()[0] == "Batch    23, slot 3: row 95 of the mix"


def prepared(output: str, name: str) -> str:
    """Return where the last prepared copy of a dataset of a run is."""
    config = building.existing(output)[1].config
    return [stage.where for stage in building.prepare(config).stages if stage.dataset == name][-1]


def made_config(folder: Path) -> MixConfig:
    """Return a config of windows, batches and rows in random order, each with its inputs made."""
    datasets: dict[str, Any] = {}
    for name, rows in (("windows", 40), ("batches", 40), ("full", 8)):
        path = folder / f"{name}.parquet"
        ids = pa.array([[row] for row in range(rows)], pa.list_(pa.int32()))
        pq.write_table(pa.table({"input_ids": ids}), path)
        datasets[name] = {"path": str(path), "weight": 1}
    datasets["windows"]["window"] = {"text": "input_ids", "context_length": 7, "stride": 4, "vocabulary": 40}
    datasets["batches"] |= {"batches": {"by": "input_ids", "size": 2}, "columns": {"input_ids": "rows"}}
    datasets["full"]["shuffle"] = "full"
    return config_from({
        "output": str(folder / "out"),
        "batch_size": 3,
        "batches": 20,
        "batches_per_shard": 5,
        "on_exhausted": "repeat",
        "missing": "null",
        "datasets": datasets,
    })  # fmt: skip


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run of what is prepared, with streams in small files."""
    monkeypatch.setattr("mixer.preparation.tokens.SIZES", Sizes(row_group_ids=7, part_row_groups=2))
    return building.build(made_config(tmp_path)).output


def test_a_window_is_told_its_ids_and_all_files_they_lie_in(mixer: Mixer, made: str) -> None:
    copy = f"{prepared(made, 'windows')}/data"
    lines = mixer("where", made, "--dataset", "windows", "--row", "2", "--epoch", "1").out.splitlines()
    assert lines[3:] == [
        "Dataset  windows, window 2: ids 8 to 15 of the stream",
        f"Copy     {copy}/part-00000000.parquet",
        "         rows 8 to 13 of it: from row 1 of row group 1 on",
        f"         {copy}/part-00000001.parquet",
        "         rows 0 to 1 of it",
        "Taken    in epoch 1, as item 11 of the dataset",
    ]
    lines = mixer("where", made, "--dataset", "windows", "--row", "2").out.splitlines()
    assert lines[0] == "Dataset  windows, window 2: ids 8 to 15 of the stream"
    assert "row group" in lines[-3]


def test_a_batch_of_equally_long_rows_is_told_its_number_and_its_row_in_the_copy(mixer: Mixer, made: str) -> None:
    lines = mixer("where", made, "--batch", "6", "--slot", "1").out.splitlines()
    assert lines[3:] == [
        "Dataset  batches, batch 6 of equally long rows",
        f"Copy     {prepared(made, 'batches')}/data/part-00000000.parquet",
        "         row 6 of it: row 6 of row group 0",
        "Taken    in epoch 0, as item 6 of the dataset",
    ]


def test_each_place_of_a_row_in_random_order_is_told_where_it_is_read(mixer: Mixer, made: str) -> None:
    answer = mixer("where", made, "--dataset", "full", "--row", "3")
    order = [list(full_order(8, epoch, "full")).index(3) for epoch in range(3)]
    at = [8 * epoch + position for epoch, position in enumerate(order) if 8 * epoch + position < 20]
    assert answer.out.splitlines() == [
        "Dataset  full, row 3",
        f"Copy     {prepared(made, 'full')}/data",
        "",
        f"{len(at)} times in the mix:",
        "batch  slot  epoch  shard  row of it  read from              row of it  written",
        *(
            f"{item:>5}     2  {epoch:>5}  {item // 5:>5}  {item % 5 * 3 + 2:>9}  part-00000000.parquet  {item:>9}  yes"
            for epoch, item in enumerate(at)
        ),
    ]


def test_a_row_that_is_never_taken_is_an_answer_and_no_failure(mixer: Mixer, repeated: str) -> None:
    answer = mixer("where", repeated, "--dataset", "web", "--row", "59")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("nowhere: it is beyond what the run takes: in epoch 0 row 59 of dataset 'web' would")
    value = mixer("where", repeated, "--dataset", "web", "--row", "59", "--json").json
    assert (value["places"], value["count"], f"nowhere: {value['why']}\n") == ([], 0, answer.out)


@pytest.mark.parametrize(
    ("asked", "arguments"),
    [
        ({"batch": 11, "slot": 1}, ["--batch", "11", "--slot", "1"]),
        ({"dataset": "books", "row": 3}, ["--dataset", "books", "--row", "3"]),
        ({"dataset": "books", "row": 3, "epoch": 1}, ["--dataset", "books", "--row", "3", "--epoch", "1"]),
    ],
)
def test_with_json_it_is_what_python_is_told(
    mixer: Mixer, repeated: str, asked: dict[str, Any], arguments: list[str]
) -> None:
    told = json.loads(json.dumps(asdict(where(repeated, **asked))))
    assert mixer("where", repeated, *arguments, "--json").json == told


def test_of_shards_of_another_run_the_output_is_told(mixer: Mixer, tmp_path: Path) -> None:
    first = building.build(mix_config(tmp_path, on_exhausted="repeat", batches=24)).output
    new = building.build(building.fork(first, 2, str(tmp_path / "new"), weights={"books": 1}, batches=6)).output
    assert f"Shard    {first}/data/shard-00000001.parquet" in mixer("where", new, "--batch", "3", "--slot", "0").out
    lines = mixer("where", new, "--dataset", "books", "--row", "3").out.splitlines()
    assert lines[-1] == f"shard 1: in {first}"
    shards = [place.shard for place in where(new, dataset="books", row=3).places]
    assert [line.split()[3] for line in lines if line.endswith("yes")] == [str(shard) for shard in shards]
    assert shards[0] == 1
    assert shards[-1] > 1


def test_many_places_are_counted_beyond_those_that_are_shown(mixer: Mixer, tmp_path: Path) -> None:
    config = mix_config(tmp_path, on_exhausted="repeat", batches=10**6)
    building.start(config).close()
    lines = mixer("where", config.output, "--dataset", "books", "--row", "0").out.splitlines()
    assert "55,556 times in the mix:" in lines
    assert lines[-1] == "and 55,536 more; `--epoch` asks for one of them"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--batch", "1"],
        ["--slot", "1"],
        ["--dataset", "web"],
        ["--row", "1"],
        ["--batch", "1", "--slot", "1", "--dataset", "web", "--row", "1"],
        ["--batch", "1", "--slot", "1", "--epoch", "0"],
    ],
)
def test_half_a_question_or_two_at_once_are_bad_usage(mixer: Mixer, repeated: str, arguments: list[str]) -> None:
    answer = mixer("where", repeated, *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert "expected --batch with --slot, or --dataset with --row" in answer.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--batch", "24", "--slot", "0"], "batch 24: the run has batches 0 to 23"),
        (["--batch", "0", "--slot", "4"], "slot 4: batch 0 has slots 0 to 3"),
        (["--dataset", "book", "--row", "4"], "the run has no dataset 'book'; did you mean 'books'?"),
        (["--batch", "-1", "--slot", "0"], "Invalid value for '--batch'"),
    ],
)
def test_what_is_not_there_ends_with_the_code_of_bad_input(
    mixer: Mixer, repeated: str, arguments: list[str], said: str
) -> None:
    answer = mixer("where", repeated, *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err


def test_hostile_names_steer_no_terminal_and_a_narrow_window_cuts_no_number(repeated: str) -> None:
    found = where(repeated, dataset="books", row=3)
    names = {"dataset": "b\x1b[2J", "file": "/a\x1b[1m.parquet", "output": "/o\x1b[0m"}
    places = [{**asdict(place), **names} for place in found.places]
    text = "\n".join(where_lines({**asdict(found), "places": places}, 40))
    one = "\n".join(where_lines({**asdict(found), "places": places[:1], "count": 1}, 40))
    assert "\x1b" not in text + one
    assert [line.split()[-1] for line in text.splitlines() if line.startswith("batch")] == ["5", "23"]
