"""Names say the format, a folder of Parquet stays one, and a folder that `datasets` has saved is found out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from datasets import Dataset, DatasetDict, disable_progress_bars

from mixer.errors import InputError
from mixer.formats.finding import find_rows
from mixer.formats.kinds import ROW_FORMATS, compression_of, format_of, suffixes_of
from mixer.storage.inputs import find_inputs
from tests.formats.making import read, written

ROWS = [{"n": n, "t": "x" * (n % 9), "l": [n, None], "o": {"k": None if n % 2 else "v"}} for n in range(300)]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    disable_progress_bars()


def found(path: str | list[str], asked: str | None = None) -> tuple[str, list[str]]:
    kind, listing = find_rows(path, asked)
    return kind, [Path(file.url).name for file in listing.files]


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")


@pytest.mark.parametrize("kind", [kind for kind in ROW_FORMATS if kind != "huggingface"])
def test_every_suffix_of_a_format_says_it_in_small_and_capital_letters(kind: str) -> None:
    for suffix in suffixes_of(kind):
        assert format_of([f"/a.b/c{suffix}"]) == format_of([f"/a.b/C{suffix.upper()}"]) == kind


def test_a_name_says_how_the_file_is_compressed() -> None:
    names = ["a.jsonl", "a.csv.gz", "a.CSV.GZ", "a.tar.zst", "a.tgz", "a.txt.bz2", "a.json.xz", "a.gz.txt"]
    assert [compression_of(name) for name in names] == [None, "gzip", "gzip", "zstd", "gzip", "bz2", "xz", None]


def test_a_folder_of_one_format_is_taken_in_order_and_other_names_are_told(tmp_path: Path) -> None:
    touch(tmp_path, "b.jsonl.gz", "a/z.ndjson", "README.md", "LICENSE")
    kind, listing = find_rows(str(tmp_path))
    assert (kind, [Path(file.url).name for file in listing.files]) == ("jsonl", ["z.ndjson", "b.jsonl.gz"])
    assert [Path(name).name for name in listing.ignored] == ["LICENSE", "README.md"]


def test_a_folder_that_holds_parquet_stays_parquet(tmp_path: Path) -> None:
    touch(tmp_path, "a.parquet", "dataset_infos.json", "notes.txt")
    assert found(str(tmp_path)) == ("parquet", ["a.parquet"])
    assert find_rows(str(tmp_path))[1] == find_inputs(str(tmp_path))


def test_files_of_several_formats_are_an_error_that_names_some(tmp_path: Path) -> None:
    touch(tmp_path, "a.jsonl", "b.csv", "c/d.parquet")
    with pytest.raises(InputError, match=r"expected files of one format, found csv \(.*b\.csv\), jsonl \(.*a\.jsonl\)"):
        find_rows([str(tmp_path / "a.jsonl"), str(tmp_path / "b.csv")])
    with pytest.raises(InputError, match=r"found jsonl \(.*\), parquet \(.*\)"):
        find_rows([str(tmp_path / "a.jsonl"), str(tmp_path / "c")])
    assert found(str(tmp_path), "csv") == ("csv", ["b.csv"])
    assert found(str(tmp_path / "*.jsonl")) == ("jsonl", ["a.jsonl"])


def test_the_asked_format_holds_for_any_name(tmp_path: Path) -> None:
    touch(tmp_path, "dump.data", "b.json")
    assert found(str(tmp_path / "dump.data"), "jsonl") == ("jsonl", ["dump.data"])
    assert found(str(tmp_path / "b.json"), "jsonl") == ("jsonl", ["b.json"])
    assert found(str(tmp_path / "dump.data")) == ("parquet", ["dump.data"])


def test_nothing_to_find_says_what_was_looked_for(tmp_path: Path) -> None:
    touch(tmp_path, "LICENSE")
    with pytest.raises(InputError, match=r"\*\.jsonl .*\*\.tar .*only what is ignored \(1\): .*LICENSE"):
        find_rows(str(tmp_path))
    with pytest.raises(InputError, match=r"files named \*\.csv, or a pattern"):
        find_rows(str(tmp_path), "csv")


def test_a_saved_dataset_gives_its_rows_and_features(tmp_path: Path) -> None:
    dataset = Dataset.from_list(ROWS)
    dataset.save_to_disk(tmp_path / "saved", num_shards=3)
    assert found(str(tmp_path / "saved"))[0] == "huggingface"
    result = read(str(tmp_path / "saved"))
    assert result.rows == ROWS
    assert json.loads(result.schema.metadata[b"huggingface"])["info"]["features"]["n"]["dtype"] == "int64"
    assert read(str(tmp_path / "saved") + "/", "huggingface").rows == ROWS


def test_a_shuffled_dataset_that_was_saved_is_in_its_own_order(tmp_path: Path) -> None:
    dataset = Dataset.from_list(ROWS).shuffle(seed=1).select(range(50))
    dataset.save_to_disk(tmp_path / "saved")
    assert read(str(tmp_path / "saved")).rows == dataset.to_list()


def test_a_saved_dataset_without_rows_is_called_empty(tmp_path: Path) -> None:
    Dataset.from_dict({"t": []}).save_to_disk(tmp_path / "saved")
    for asked in (None, "huggingface"):
        with pytest.raises(InputError, match=r"saved/state\.json: expected data files, found none; .* empty"):
            find_rows(str(tmp_path / "saved"), asked)


def test_json_that_is_called_as_what_stands_beside_saved_rows_is_json(tmp_path: Path) -> None:
    path = written(tmp_path, "dataset_info.json", b'[{"a": 1}]')
    assert read(str(tmp_path)).rows == read(path).rows == [{"a": 1}]


def test_the_order_of_files_is_that_of_the_state_and_not_of_their_names(tmp_path: Path) -> None:
    Dataset.from_list(ROWS).save_to_disk(tmp_path, num_shards=2)
    state = json.loads((tmp_path / "state.json").read_text())
    state["_data_files"].reverse()
    (tmp_path / "state.json").write_text(json.dumps(state))
    assert read(str(tmp_path)).rows == ROWS[150:] + ROWS[:150]


def test_of_several_splits_one_must_be_named(tmp_path: Path) -> None:
    dataset = Dataset.from_list(ROWS)
    DatasetDict(train=dataset, validation=dataset.select(range(7))).save_to_disk(tmp_path / "all")
    for asked in (None, "huggingface"):
        with pytest.raises(
            InputError, match=r"expected one split, found .*: train, validation; name one, as in .*all/train"
        ):
            find_rows(str(tmp_path / "all"), asked)
    assert len(read(str(tmp_path / "all/validation")).rows) == 7
    assert len(read([str(tmp_path / "all/train"), str(tmp_path / "all/validation")]).rows) == 307


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("{", "expected JSON"),
        ('{"_data_files": [{"filename": "../a.arrow"}]}', "expected names of files in this folder"),
        ('{"_data_files": ["a.arrow"]}', "expected names of files in this folder"),
        ('{"_data_files": []}', "expected data files, found none"),
        ('{"_data_files": [{"filename": "gone.arrow"}]}', "gone.arrow.*found nothing"),
        (
            '{"_data_files": [{"filename": "a.arrow"}], "_indices_data_files": [{"filename": "i.arrow"}]}',
            "flatten_indices",
        ),
        ('{"other": 1}', "expected a folder that `Dataset.save_to_disk` has written"),
    ],
)
def test_a_state_that_is_not_right_is_an_error(tmp_path: Path, state: str, message: str) -> None:
    touch(tmp_path, "a.arrow")
    (tmp_path / "state.json").write_text(state)
    with pytest.raises(InputError, match=message):
        find_rows(str(tmp_path), "huggingface")
