"""Names that others chose, of datasets, columns and files: refused, or harmless. YAML of strangers: never run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.cli.conftest import Answer, Mixer

BAD_DATASETS = (
    "../outside",
    "..",
    ".",
    "a/b",
    "a\\b",
    "/etc/passwd",
    "",
    " a",
    "a\nb",
    "a\x00b",
    "\x00",
    "a\x1b[2Jb",
    "a\u202eb",
    "x" * 201,
)
ODD_DATASETS = (
    "a b",
    "x" * 200,
    "ü" * 200,
    "C:",
    "nul",
    "{0}{x!r}",
    "%s%n",
    "`<b>|`",
    "$(touch x)",
    "-rf",
    "__proto__",
    "~",
)
COLUMNS = (
    *("../outside", "/etc/passwd", "a/b", "a\\b", "a.b", "a b", "x" * 10_000),
    *("a\nb", "a\rb", "a\x1b[2Jb", "\x1b]0;title\x07", "a\u202eb", "a\x9bb", "{x}", "%s", "<script>"),
)
STEERING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def config(folder: Path, datasets: dict[str, Any]) -> str:
    path = folder / "mix.yaml"
    values = {"output": str(folder / "out"), "batch_size": 2, "batches": 2, "batches_per_shard": 1}
    path.write_text(yaml.safe_dump({**values, "datasets": datasets}, allow_unicode=False))
    return str(path)


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


OUTPUT = {
    *(f"data/shard-0000000{shard}.parquet" for shard in range(2)),
    *(f".mixer/log/00000000000{slot}.json" for slot in range(4)),
    *("README.md", "manifest.json", ".mixer/run.json"),
}


def run_all(mixer: Mixer, path: str, out: Path) -> list[Answer]:
    """Run each command once, as text and as JSON; each must succeed and steer no terminal."""
    commands = (
        ["plan", path],
        ["run", path, "--no-prefect"],
        ["status", str(out)],
        ["verify", str(out)],
        ["head", str(out)],
    )
    answers = [mixer(*command, *flags, "--debug") for command in commands for flags in ([], ["--json"])]
    for answer in answers:
        assert answer.code == 0, answer.err
        assert not STEERING.search(answer.out + answer.err)
    return answers


@pytest.mark.parametrize("name", BAD_DATASETS, ids=ascii)
def test_a_dataset_that_could_lead_elsewhere_or_hide_is_refused(mixer: Mixer, tmp_path: Path, name: str) -> None:
    pq.write_table(pa.table({"n": range(4)}), tmp_path / "in.parquet")
    path = config(tmp_path, {name: {"path": str(tmp_path / "in.parquet"), "weight": 1}})
    before = files(tmp_path)
    for command in ("plan", "run"):
        answer = mixer(command, path)
        assert (answer.code, answer.out) == (2, "")
        assert "expected a name" in answer.err
        assert not STEERING.search(answer.err)
    assert files(tmp_path) == before


def test_odd_names_of_datasets_are_names_and_nothing_else(mixer: Mixer, tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": range(4)}), tmp_path / "in.parquet")
    datasets = {name: {"path": str(tmp_path / "in.parquet"), "weight": 1} for name in ODD_DATASETS}
    path = config(tmp_path, datasets)
    run_all(mixer, path, tmp_path / "out")
    assert files(tmp_path / "out") == OUTPUT
    assert files(tmp_path) == {"mix.yaml", "in.parquet", *(f"out/{name}" for name in OUTPUT)}


def test_names_and_texts_of_columns_are_shown_harmless_and_kept_as_they_are(mixer: Mixer, tmp_path: Path) -> None:
    table = pa.table({name: [f"{name[:50]} {row}" for row in range(4)] for name in COLUMNS})
    pq.write_table(table, tmp_path / "in.parquet")
    path = config(tmp_path, {"web": {"path": str(tmp_path / "in.parquet"), "weight": 1}})
    *_, shown = run_all(mixer, path, tmp_path / "out")
    assert [row["a\x1b[2Jb"] for row in shown.json["rows"]] == table["a\x1b[2Jb"].to_pylist()
    assert files(tmp_path / "out") == OUTPUT
    assert files(tmp_path) == {"mix.yaml", "in.parquet", *(f"out/{name}" for name in OUTPUT)}
    shard = pq.read_table(tmp_path / "out/data/shard-00000000.parquet")
    assert shard.column_names[: len(COLUMNS)] == list(COLUMNS)


@pytest.mark.parametrize("name", ["", "a\x00b"], ids=ascii)
def test_columns_whose_names_other_readers_cut_or_lose_are_refused(mixer: Mixer, tmp_path: Path, name: str) -> None:
    pq.write_table(pa.table({name: range(4)}), tmp_path / "in.parquet")
    path = config(tmp_path, {"web": {"path": str(tmp_path / "in.parquet"), "weight": 1}})
    answer = mixer("run", path, "--no-prefect")
    assert answer.code == 2
    assert "has a name that is empty or holds a NUL" in answer.err
    assert files(tmp_path) == {"mix.yaml", "in.parquet"}


@pytest.mark.parametrize("name", ["\x1b[2J", "a\nb", "\x9b2J", "a\u202eb"], ids=ascii)
def test_names_of_files_steer_no_terminal_neither_where_they_are_read_nor_where_they_cannot_be(
    mixer: Mixer, tmp_path: Path, name: str
) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"n": range(4)}), tmp_path / f"in/{name}.parquet")
    (tmp_path / f"in/{name}.txt").write_text("passed over")
    path = config(tmp_path, {"web": {"path": str(tmp_path / "in"), "weight": 1}})
    run_all(mixer, path, tmp_path / "out")
    assert files(tmp_path / "out") == OUTPUT
    (tmp_path / f"in/{name}.parquet").write_bytes(b"no Parquet")
    (tmp_path / "other").mkdir()
    for arguments in (["plan", path], ["init", str(tmp_path / "new.yaml"), "--from", str(tmp_path / "in")]):
        for flags in ([], ["--json"], ["--debug"]):
            answer = mixer(*arguments, *flags)
            assert not STEERING.search(answer.out + answer.err)


ENDINGS = "\noutput: out\nbatch_size: 1\nbatches: 1\nbatches_per_shard: 1\n"
HOSTILE_YAML = {
    "object": "datasets: !!python/object/apply:os.system ['touch MARK']",
    "name": "datasets: !!python/name:os.system",
    "module": "datasets: {a: !!python/module:os {path: x, weight: 1}}",
    "new": "datasets: !!python/object/new:os.system ['touch MARK']",
    "laughs": "a: &a [x, x]\n"
    + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)),
    "merge": "base: &b {path: x, weight: 1}\ndatasets: {a: {<<: *b}}",
    "itself": "datasets: &a {a: *a}",
    "deep lists": "datasets: " + "[" * 50_000 + "]" * 50_000,
    "deep mappings": "datasets: " + "{a: " * 5_000 + "}" * 5_000,
    "weight of a million digits": "datasets: {a: {path: x, weight: " + "9" * 1_000_000 + "}}",
    "weight of 5000 digits": "datasets: {a: {path: x, weight: " + "9" * 5_000 + "}}",
    "weight that is no number": "datasets: {a: {path: x, weight: .nan}}",
    "weight that is infinite": "datasets: {a: {path: x, weight: 1e999}}",
    "binary": "datasets: {a: {path: !!binary aGVsbG8=, weight: 1}}",
    "doubled keys": "datasets: {a: {path: x, weight: 1, weight: 2}}",
    "another document": "datasets: {a: {path: x, weight: 1}}\n---\na: 1",
}


@pytest.mark.parametrize("text", HOSTILE_YAML.values(), ids=HOSTILE_YAML)
def test_yaml_of_strangers_is_refused_with_its_line_and_runs_nothing(
    mixer: Mixer, tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mix.yaml").write_text(ENDINGS.strip() + "\n" + text.replace("MARK", str(tmp_path / "mark")) + "\n")
    for command in ("plan", "run"):
        answer = mixer(command, "mix.yaml", "--json")
        assert (answer.code, answer.json["error"]["type"]) == (2, "ConfigError")
        assert "mix.yaml:" in answer.err
        assert len(answer.err) < 10_000
    assert files(tmp_path) == {"mix.yaml"}
