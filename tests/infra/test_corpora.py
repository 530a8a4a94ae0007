from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

SCRIPT = Path(__file__).parents[2] / "infra" / "corpora.py"
ROWS = 40


def make(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script on a slice of the two corpora that need no package."""
    command = [sys.executable, str(SCRIPT), "--out", str(out), "--limit", str(ROWS), "--only", "code", "docs"]
    return subprocess.run([*command, *arguments], check=False, capture_output=True, text=True)


def files(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("corpora")
    assert make(out).returncode == 0
    return out


def test_a_slice_holds_the_asked_rows_of_real_text(made: Path) -> None:
    for name in ("code", "docs"):
        table = pq.read_table(made / name)
        assert table.schema.names == ["id", "text"]
        assert table.num_rows == ROWS
        assert len(set(table["id"].to_pylist())) == ROWS
        assert all(table["text"].to_pylist())


def test_corpora_made_twice_have_equal_bytes(made: Path, tmp_path: Path) -> None:
    assert make(tmp_path).returncode == 0
    assert files(tmp_path) == files(made)


def test_corpora_that_are_there_are_left_as_they_are(made: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in made.rglob("*.parquet")}
    again = make(made)
    assert again.stdout.count("was there") == 2
    assert {path: path.stat().st_mtime_ns for path in made.rglob("*.parquet")} == before


def test_corpora_of_another_size_are_made_anew(tmp_path: Path) -> None:
    assert make(tmp_path).returncode == 0
    other = make(tmp_path, "--limit", "5")
    assert "was there" not in other.stdout
    assert pq.read_table(tmp_path / "code").num_rows == 5


def test_a_missing_package_is_named_with_how_to_get_it() -> None:
    corpora = runpy.run_path(str(SCRIPT))
    with pytest.raises(corpora["MissingPackageError"], match=r"'no_such_package'.*`pip install such`"):
        corpora["_package_folder"]("no_such_package", "pip install such")
