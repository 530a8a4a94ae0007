from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixer import building
from mixer.batcher import DataBatcher
from mixer.cli.plan_value import plan_value
from mixer.cli.plan_view import plan_lines
from mixer.config import json_schema
from mixer.previewing import preview
from mixer.sampling import Lengths
from tests.cli.conftest import Mixer
from tests.mixes import ROWS, WEIGHTS, config_file, config_values, mix_config


class Numbers:
    def get_iterator(self, name: str, offset: int = 0) -> Any:
        return iter(range(offset, 10**6))


def planned(folder: Path, **changes: Any) -> dict[str, Any]:
    return plan_value(preview(mix_config(folder, **changes)))


def text(value: dict[str, Any], width: int | None = None) -> str:
    return "\n".join(plan_lines(value, width, config="mix.yaml"))


def line(value: dict[str, Any], label: str) -> str:
    (found,) = [line for line in text(value).splitlines() if line.startswith(label)]
    return " ".join(found.split())


@pytest.mark.parametrize("batches", [1, 2, 5, 11, 12])
def test_the_rows_of_each_dataset_are_those_that_batches_take(tmp_path: Path, batches: int) -> None:
    batcher = DataBatcher(Numbers(), WEIGHTS, 4)
    for _ in range(batches):
        batcher.next_batch()
    value = planned(tmp_path, batches=batches)
    taken = {dataset["name"]: dataset["rows_taken"] for dataset in value["datasets"]}
    assert taken == batcher.state_dict()["offsets"]
    assert sum(taken.values()) == value["rows"] == 4 * batches
    for dataset in value["datasets"]:
        assert dataset["rows"] == ROWS[dataset["name"]]
        assert dataset["rows_left"] == dataset["rows"] - dataset["rows_taken"]
        exact = Fraction(4 * batches * WEIGHTS[dataset["name"]], 6)
        assert Fraction(dataset["rows_off_share"]) == dataset["rows_taken"] - exact
        assert Fraction(dataset["rows_off_share"]) < 1


def test_the_shape_is_that_of_the_files_that_building_writes(tmp_path: Path) -> None:
    changes = {"batches": 11, "batches_per_shard": 4, "batches_per_row_group": 3}
    value = planned(tmp_path, **changes)
    building.build(mix_config(tmp_path, **changes))
    files = [pq.ParquetFile(path).metadata for path in sorted((tmp_path / "out/data").iterdir())]
    assert value["shards"] == len(files)
    assert value["rows_per_shard"] == files[0].num_rows
    assert value["last_shard"] == {"rows": files[-1].num_rows, "batches": 3}
    assert value["row_groups"] == sum(file.num_row_groups for file in files)
    assert value["rows_per_row_group"] == files[0].row_group(0).num_rows
    assert [column["name"] for column in value["columns"]] == files[0].schema.to_arrow_schema().names


def test_json_says_all_that_the_text_says(mixer: Mixer, tmp_path: Path) -> None:
    config = config_file(tmp_path)
    value = mixer("plan", config, "--json").json
    assert value == json.loads(json.dumps(planned(tmp_path)))
    assert mixer("plan", config).out == "\n".join(plan_lines(value, None, config=config)) + "\n"


def test_the_text_is_exact(tmp_path: Path) -> None:
    lines = text(planned(tmp_path, batches=11)).splitlines()
    table = lines[3:8]
    sizes = [" ".join(line.split()[3:5]) for line in table[1:]]
    assert [" ".join(line.split()) for line in table] == [
        "dataset files rows size weight asked takes realised rows off left epochs last batch",
        f"web 2 60 {sizes[0]} 3 50 % 22 50 % 0 38 0.3667 -",
        f"code 2 30 {sizes[1]} 2 33.3333 % 15 34.0909 % +1/3 15 0.5 -",
        f"books 2 12 {sizes[2]} 1 16.6667 % 7 15.9091 % -1/3 5 0.5833 -",
        f"all 6 102 {sizes[3]} 6 100 % 44 100 % 0 58",
    ]


def test_what_run_would_do_is_said(tmp_path: Path) -> None:
    assert line(planned(tmp_path), "Run").endswith(", new: `mixer run mix.yaml` starts it")
    dated = planned(tmp_path, output=str(tmp_path / "{date}"))
    assert line(dated, "Run").endswith(", new: a scheduled flow run starts it, with its date")
    with building.start(mix_config(tmp_path)) as run:
        run.write(2)
    assert line(planned(tmp_path), "Run").endswith("2 of 4 shards committed: `mixer run mix.yaml` goes on with shard 2")
    building.build(mix_config(tmp_path))
    assert line(planned(tmp_path), "Run").endswith("finished: `mixer run mix.yaml` has nothing to do")
    assert line(planned(tmp_path, batches=13), "Run").endswith(
        "longer: 4 of 5 shards are there, `mixer run mix.yaml --extend` makes the others"
    )
    assert line(planned(tmp_path, batch_size=2), "Run").endswith(
        "refused: `mixer run mix.yaml` ends with the error below"
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"batches": 12}, "48 in 12 batches of 4, all that were asked; the data gives 18, then 'books' runs out"),
        (
            {"batches": 18},
            "72 in 18 batches of 4, all that were asked, and all that the data gives: 'books' would run out next",
        ),
        (
            {"batches": 50, "on_exhausted": "stop"},
            "72 in 18 batches of 4, as many of the 50 asked as the data gives: 'books' runs out first",
        ),
        (
            {"batches": None, "on_exhausted": "stop"},
            "72 in 18 batches of 4, as many as the data gives: 'books' runs out first",
        ),
        (
            {"batches": 1, "on_exhausted": "stop"},
            "4 in 1 batch of 4, all that were asked; the data gives 18, then 'books' runs out",
        ),
    ],
)
def test_why_the_run_ends_where_it_does_is_said(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    assert line(planned(tmp_path, **changes), "Rows") == f"Rows {expected}"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"batches": 12}, "4 of 12 rows (3 batches)"),
        ({"batches": 11}, "4 of 12 rows (3 batches), the last of 8 (2 batches)"),
        ({"batches": 2}, "1 of 8 rows (2 batches)"),
    ],
)
def test_shards_are_said_to_be_as_they_are(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    assert line(planned(tmp_path, **changes), "Shards") == f"Shards {expected}"


def test_types_that_change_and_files_that_are_ignored_are_listed(tmp_path: Path) -> None:
    config_values(tmp_path)
    narrow = pa.table({"text": ["a"] * 12, "n": pa.array(range(12), pa.int32())})
    for part in ("part-0.parquet", "part-1.parquet"):
        pq.write_table(narrow, tmp_path / "inputs/books" / part)
    for number in range(7):
        (tmp_path / f"inputs/code/notes-{number}.txt").write_text("")
    value = planned(tmp_path)
    assert value["type_changes"] == [
        {
            "dataset": "books",
            "file": str(tmp_path / "inputs/books/part-0.parquet"),
            "column": "n",
            "stored": "int32",
            "output": "int64",
            "how": "widened",
        }
    ]
    assert len(value["datasets"][1]["ignored"]) == 7
    said = text(value)
    assert "books: column 'n' is stored as int32 and written as int64" in said
    assert "Ignored for code: 7 names" in said
    assert "notes-4.txt\n  and 2 more" in said


def test_a_narrow_window_loses_no_number(tmp_path: Path) -> None:
    value = planned(tmp_path, batches=11)
    wide = set(text(value).split())
    for width in (20, 40, 60, 80):
        assert set(text(value, width).split()) >= wide


def everything(folder: Path) -> str:
    """Write a config over inputs with all that a plan has a remark on; return where it is."""
    config_values(folder)
    rows = {"text": ["a b c"] * 40, "n": range(40)}
    for name in ("other", "copy"):
        pq.write_table(pa.table(rows), folder / f"{name}.parquet")
    (folder / "inputs/web/notes.txt").write_text("")
    columns = {"text": "words", "n": {"name": "key", "cast": "int32"}}
    datasets = {
        "web": {"path": str(folder / "inputs/web")},
        "other": {"path": str(folder / "other.parquet"), "columns": columns},
        "again": {"path": [str(folder / "other.parquet"), str(folder / "copy.parquet")], "shuffle": "block"},
    }
    phases = [{"batches": 2, "weights": {"web": 2, "other": 1}}, {"weights": {"other": 1, "again": 3}}]
    changes = {"datasets": datasets, "phases": phases, "batches": None, "on_exhausted": "redistribute"}
    return config_file(folder, **changes, missing="null", batch_size=5, length_column="n")


def test_everything_that_a_plan_may_remark_fits_into_80_columns(mixer: Mixer, tmp_path: Path) -> None:
    value = mixer("plan", everything(tmp_path), "--measure", "--json").json
    said = text(value)
    for part in (
        "1: 2 batches, period 3",
        "Measured",
        "Tokens, by column 'n'",
        "Worth knowing",
        "web: 'words' (string), 'key' (int32) are null where files lack them",
        "other: column 'key' is stored as int64 and written as int32",
        "other: column 'text' is written as 'words'",
        "other: column 'n' is written as 'key'",
        "other.parquet in other, again",
        "copy.parquet (again)",
        "Ignored for web: 1 name",
    ):
        assert part in said
    for width in (60, 80):
        folded = list(plan_lines(value, width, config="mix.yaml"))
        # A path that is wider than the window is not cut.
        assert [line for line in folded if len(line) > width and " " in line.strip()] == []
        remarks = " ".join(said[said.index("Worth knowing") :].split())
        assert remarks in " ".join("\n".join(folded).split())
    tables = [line.split() for line in plan_lines(value, 80, config="mix.yaml") if line.startswith("dataset")]
    assert ["dataset", "files", "rows", "size", "weight"] in tables


def test_tokens_are_shown_beside_rows(mixer: Mixer, tmp_path: Path) -> None:
    value = mixer("plan", config_file(tmp_path, length_column="n"), "--json").json
    taken = {dataset["name"]: dataset["rows_taken"] for dataset in value["datasets"]}
    for dataset in value["datasets"]:
        tokens = dataset["tokens"]
        # Row number i of each dataset has i tokens.
        assert tokens["taken"] == sum(range(taken[dataset["name"]]))
        assert tokens["exact"] is True
    assert value["datasets"][0]["tokens"]["share_percent"] == "65.0943 %"  # 276 of 276 + 120 + 28
    assert mixer("plan", config_file(tmp_path), "--json").json["datasets"][0]["tokens"] is None


def test_what_is_estimated_is_marked(tmp_path: Path) -> None:
    seen = preview(mix_config(tmp_path))
    some = Lengths(np.array([3, 4]), rows=60)
    value = plan_value(seen, lengths={"web": some, "code": some, "books": None}, length_column="n")
    said = [" ".join(line.split()) for line in text(value).splitlines()]
    assert "Tokens, by column 'n' (~ is an estimate from the rows looked at); weights count rows all the same" in said
    assert "web ~3.5 ~84 - 50 % the first 2 rows" in said
    assert "books - - - 16.6667 % no such column" in said
    assert "all - 100 %" in said


def test_trainers_that_cannot_share_evenly_are_told_so(tmp_path: Path) -> None:
    value = planned(tmp_path, batch_size=6, batches=9)
    assert [(each["ranks"], each["batch_divides"], each["shards_divide"]) for each in value["ranks"]] == [
        (2, True, False),
        (4, False, False),
    ]
    lines = [" ".join(line.split()) for line in text(value).splitlines()]
    assert "2 3 yes 1 to 2 NO" in lines
    assert "4 1 to 2 NO 0 to 1 NO" in lines


def test_the_batch_at_which_a_dataset_ends_is_shown(tmp_path: Path) -> None:
    value = planned(tmp_path, batches=None, on_exhausted="redistribute")
    last = {dataset["name"]: dataset["last_batch"] for dataset in value["datasets"]}
    taken = {dataset["name"]: dataset["rows_taken"] for dataset in value["datasets"]}
    assert taken == ROWS
    assert last == {"web": 25, "code": 21, "books": 17}
    assert "as long as no dataset has ended" in line(value, "Period")


def test_a_difference_is_shown_by_what_comes_of_it(mixer: Mixer, tmp_path: Path) -> None:
    old = config_file(tmp_path)
    with building.start(mix_config(tmp_path)) as run:
        run.write(1)
    output = str(tmp_path / "out")
    same = mixer("plan", old, "--diff", output)
    assert (same.code, same.out) == (0, f"With {old}, the run in {output} goes on: nothing differs\n")
    config = tmp_path / "new.yaml"
    config.write_text(Path(old).read_text().replace("weight: 3", "weight: 4") + "compression: snappy\n")
    shown = mixer("plan", str(config), "--diff", output)
    assert shown.code == 0
    assert f"the run in {output} would refuse to go on" in shown.out
    assert "  datasets.web.weight: the run has 3, the config has 4" in shown.out
    assert "Refused without --allow-repack" in shown.out
    value = mixer("plan", str(config), "--diff", old, "--json").json
    assert (value["verdict"], value["old_is"]) == ("refused", "config")
    assert value["needs_allow_repack"][0].startswith("compression: ")
    longer = config_file(tmp_path, batches=14, compression="snappy")
    assert "goes on only with --extend and --allow-repack\n" in mixer("plan", longer, "--diff", output).out
    both = mixer("plan", str(config), "--diff", old, "--measure")
    assert (both.code, both.out) == (2, "")


def test_the_schema_of_a_config_is_printed(mixer: Mixer) -> None:
    shown = mixer("schema")
    assert shown.code == 0
    assert json.loads(shown.out) == json_schema() == mixer("schema", "--json").json
    assert "\n  " in shown.out


def test_names_cannot_steer_the_terminal(tmp_path: Path) -> None:
    value = planned(tmp_path)
    value["output"] = "out\x1b[2J"
    value["datasets"][0]["name"] = "\x1b]0;pwned\x07"
    value["datasets"][0]["ignored"] = ["\x1b[1mbold"]
    value["warnings"] = ["\x1b[1mbold"]
    value["duplicates"] = [{"certain": True, "files": [{"dataset": "\x1b", "url": "\x1b"}] * 2}]
    value["renamed_columns"] = [{"dataset": "\x1b", "stored": "\x1b", "name": "\x1b"}]
    value["length_column"] = "\x1b"
    assert "\x1b" not in text(value)
    assert "\x1b" not in text(value, 30)


def test_huge_weights_are_shown_whole(tmp_path: Path) -> None:
    datasets = config_values(tmp_path)["datasets"]
    datasets["web"]["weight"] = 10**30 + 1
    value = planned(tmp_path, datasets=datasets)
    assert value["datasets"][0]["weights"] == [10**30 + 1]
    assert f"{10**30 + 1:,}" in text(value)
    assert f"{(10**30 + 4) // 4:,} batches" in line(value, "Period")
