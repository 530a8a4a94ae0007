"""Parts are the same whatever part one begins with, of every format and compression; and memory stays bounded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mixer.errors import ChangedError, ConfigError, CorruptionError, InputError
from mixer.formats.options import RowsOptions
from mixer.formats.stage import RowsStage
from mixer.preparation.base import Part
from mixer.storage.filesystems import filesystem_for
from mixer.storage.inputs import find_inputs
from tests.formats.making import TOOLS, Document, arrow, json_lines, read, rows_of, stage_of, tar, written
from tests.profiles import sized

ROWS: list[dict[str, Any]] = [
    {"n": n, "t": "é" * (n % 50), "deep": {"list": [n, None]} if n % 3 else None, "s": None if n % 2 else "x,y"}
    for n in range(250)
]
TABLE = pa.Table.from_pylist(ROWS)
SAMPLES = [
    (f"{'long' * 40 if n % 5 == 0 else 'd'}/{n:03d}.{ending}", data)
    for n in range(40)
    for ending, data in (("bin", bytes(n)), ("seg.png", b"\xff" * 40), ("txt", b"text"))
    if n % 7 or ending != "txt"
]
CSV = "n,t\n" + "".join(f'{n},"a ""{"é" * (n % 9)}"",\n{n}"\r\n' if n % 3 else f"{n},00{n}\n" for n in range(150))
TEXT = "".join(f"{'é' * (n % 40)}\nsecond {n}\n{' ' * (n % 2)}\n" for n in range(120))
FILES: dict[str, tuple[Callable[[], bytes], str, Document]] = {
    "jsonl": (lambda: json_lines(ROWS), ".jsonl", "line"),
    "jsonl with escapes": (lambda: json_lines(ROWS, ascii_only=True), ".ndjson", "line"),
    "json": (lambda: json.dumps(ROWS, indent=1, ensure_ascii=False).encode(), ".json", "line"),
    "csv": (CSV.encode, ".csv", "line"),
    "tsv": (CSV.replace(",", "\t").encode, ".tsv", "line"),
    "lines": (TEXT.encode, ".txt", "line"),
    "paragraphs": (TEXT.encode, ".txt", "paragraph"),
    "files": (TEXT.encode, ".txt", "file"),
    "arrow file": (lambda: arrow(TABLE, is_stream=False), ".arrow", "line"),
    "arrow stream": (lambda: arrow(TABLE, is_stream=True), ".arrows", "line"),
    "dictionaries": (
        lambda: arrow(TABLE.set_column(3, "s", TABLE["s"].dictionary_encode()), is_stream=False),
        ".feather",
        "line",
    ),
    "webdataset": (lambda: tar(SAMPLES), ".tar", "line"),
}


def same(found: list[Part], expected: list[Part]) -> bool:
    return [(part.cursor, part.bad, list(part.row_groups)) for part in found] == [
        (part.cursor, part.bad, list(part.row_groups)) for part in expected
    ]


@pytest.mark.parametrize(
    ("kind", "packing"),
    [(kind, packing) for kind in FILES for packing in sized(short=("", ".gz"), long=("", *TOOLS))]
    + [("jsonl", packing) for packing in sized(short=(".zst", ".bz2", ".xz"), long=())],
)
def test_one_may_go_on_from_every_part_and_ends_in_the_same_parts(tmp_path: Path, kind: str, packing: str) -> None:
    data, ending, document = FILES[kind]
    paths = [written(tmp_path, f"{number}{ending}{packing}", data()) for number in range(2)]
    found = rows_of(stage_of(paths, document=document))
    plain = read(written(tmp_path, f"plain{ending}", data()), document=document)
    assert found.rows == plain.rows * 2
    assert found.facts["rows"] == len(found.rows) > 0
    schema = stage_of(paths, document=document).schema()
    assert schema.equals(found.schema, check_metadata=True)
    for number, part in enumerate(found.parts):
        cursor = json.loads(json.dumps(part.cursor))
        rest = list(stage_of(paths, document=document).parts(schema, cursor))
        assert same(rest, list(found.parts[number + 1 :]))
    if kind != "files":
        assert len(found.parts) > 2


def test_rows_are_what_was_written(tmp_path: Path) -> None:
    for kind in ("jsonl", "jsonl with escapes", "json", "arrow file", "arrow stream", "dictionaries"):
        data, ending, _ = FILES[kind]
        assert read(written(tmp_path, f"a{ending}", data())).rows == ROWS, kind


def test_row_groups_and_parts_are_even_over_many_small_files_too(tmp_path: Path) -> None:
    lines = [json_lines(ROWS[start : start + 7]) for start in range(0, 250, 7)]
    paths = [written(tmp_path, f"{number:03d}.jsonl", data) for number, data in enumerate(lines)]
    found = read(paths, part_bytes=4000, row_group_bytes=1000)
    sizes = [len(json_lines(group.to_pylist())) for part in found.parts for group in part.row_groups]
    assert all(900 < size < 2000 for size in sizes[:-1])
    assert all(len(part.row_groups) == 4 for part in found.parts[:-1])


@given(
    data=st.data(),
    lines=st.lists(st.sampled_from(["{}", '{"a":1}', "", "x", '{"a":1', '{"a":[2]}', '{"a":null} ']), max_size=40),
)
@settings(max_examples=sized(short=40, long=500), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_counts_and_cuts_do_not_depend_on_where_one_goes_on(
    tmp_path: Path, data: st.DataObject, lines: list[str]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a":[7]}\n' + "\n".join(line.replace(":1", ":[1]") for line in lines))
    stage = stage_of(str(path), on_bad_line="quarantine", part_bytes=60, row_group_bytes=25)
    found = rows_of(stage)
    number = data.draw(st.integers(0, len(found.parts) - 1))
    assert same(list(stage.parts(found.schema, found.parts[number].cursor)), list(found.parts[number + 1 :]))
    counted = found.facts["bad_lines"]
    assert isinstance(counted, dict)
    assert sum(counted.values()) == len(found.bad)
    broken = {number for number, line in enumerate(lines, start=2) if line in {"x", '{"a":1'}}
    assert {line.line for line in found.bad} == broken


def test_the_identity_is_all_that_decides_and_nothing_else(tmp_path: Path) -> None:
    stage = stage_of(written(tmp_path, "a.csv", b"a\n1\n"))
    (file,) = find_inputs(str(tmp_path / "a.csv")).files
    assert stage.identity == {
        "stage": "rows",
        "version": 1,
        "options": {"format": "csv", "on_bad_line": "error"},
        "part_bytes": 3000,
        "row_group_bytes": 500,
        "files": [{"url": file.url, "bytes": 4, "version": file.version}],
    }
    assert stage.name == "d"


def test_what_only_bad_lines_are_left_of_is_told_in_a_part_without_rows(tmp_path: Path) -> None:
    found = read(
        written(tmp_path, "a.jsonl", b'{"a":1}\n' * 441 + b"x\n" * 3), on_bad_line="quarantine", part_bytes=3200
    )
    assert [len(part.row_groups) > 0 for part in found.parts] == [True, False]
    assert [line.line for line in found.parts[-1].bad] == [442, 443, 444]
    assert found.facts["bad_lines"] == {"broken": 3}


def test_a_file_that_is_not_the_one_that_was_found_is_not_read(tmp_path: Path) -> None:
    stage = stage_of(written(tmp_path, "a.jsonl", b'{"a":1}\n'))
    schema = stage.schema()
    (tmp_path / "a.jsonl").write_bytes(b'{"a":"changed"}\n')
    with pytest.raises(ChangedError, match=r"a\.jsonl has changed"):
        next(stage.parts(schema, None))


def test_a_schema_of_other_rows_is_told_from_this_one(tmp_path: Path) -> None:
    stage = stage_of(written(tmp_path, "a.jsonl", b'{"a":1}\n'))
    with pytest.raises(ChangedError, match=r"expected string, found 1"):
        next(stage.parts(pa.schema({"a": pa.string()}), None))


@pytest.mark.parametrize(
    "cursor", [{}, {"file": 0}, {"file": -1, "offset": 0, "line": 1, "taken": 0, "rows": 0, "counts": {}}]
)
def test_what_is_no_cursor_is_refused(tmp_path: Path, cursor: dict[str, Any]) -> None:
    stage = stage_of(written(tmp_path, "a.jsonl", b'{"a":1}\n'))
    with pytest.raises(CorruptionError, match="expected the cursor"):
        next(stage.parts(stage.schema(), cursor))
    with pytest.raises(CorruptionError, match="expected the cursor"):
        stage.facts(cursor)


def test_a_format_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected a format of jsonl, json"):
        RowsStage("d", [], RowsOptions("parquet"))


@pytest.mark.s3
@pytest.mark.parametrize("packing", ["", ".zst"])
def test_remote_files_are_read_as_local_ones_are(tmp_path: Path, s3_url: str, packing: str) -> None:
    for kind in ("jsonl", "csv", "arrow file", "webdataset"):
        data, ending, _ = FILES[kind]
        local = written(tmp_path, f"a{ending}{packing}", data())
        url = f"{s3_url}/{kind.split()[0]}/a{ending}{packing}"
        filesystem_for("s3").pipe_file(url.removeprefix("s3://"), Path(local).read_bytes())
        remote, expected = stage_of(url.rpartition("/")[0]), read(local)
        found = rows_of(remote)
        assert found.rows == expected.rows
        assert same(list(remote.parts(found.schema, found.parts[0].cursor)), list(found.parts[1:]))


_CHILD = """
import resource, sys
from mixer.formats.finding import find_rows
from mixer.formats.options import RowsOptions
from mixer.formats.stage import RowsStage
kind, listing = find_rows(sys.argv[1])
stage = RowsStage("d", listing.files, RowsOptions(kind), part_bytes=4 << 20, row_group_bytes=1 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = sum(group.num_rows for part in stage.parts(stage.schema(), None) for group in part.row_groups)
print(rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10)
"""


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "txt", "tar"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, kind: str) -> None:
    size, count = sized(short=24 << 20, long=300 << 20), 0
    row = json.dumps({"text": "word " * 200, "n": 1})
    line = {"jsonl": row, "json": row + ",", "csv": '"' + "word " * 200 + '",1', "txt": "word " * 200, "tar": ""}[kind]
    path = tmp_path / f"a.{kind}"
    with path.open("wb") as file:
        if kind == "tar":
            count = size // 10240
            file.write(tar([(f"{n:06d}.bin", bytes(9000)) for n in range(count)]))
        else:
            count = size // len(line)
            file.write({"json": b"[", "csv": b"a,b\n"}.get(kind, b"") + (line + "\n").encode() * (count - 1))
            file.write(line.rstrip(",").encode() + (b"]" if kind == "json" else b""))
    run = subprocess.run([sys.executable, "-c", _CHILD, str(path)], capture_output=True, text=True, check=True)
    rows, grown = map(int, run.stdout.split())
    assert rows == count
    assert grown < 60 << 20, f"{grown >> 20} MiB"


def test_a_folder_of_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found nothing"):
        stage_of(str(tmp_path))
