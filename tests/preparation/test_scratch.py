from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mixer.preparation.scratch import PREFIX, scratch_folder

WAITS = """
import sys
from pathlib import Path
from mixer.preparation.scratch import scratch_folder

with scratch_folder(Path(sys.argv[1])) as folder:
    (folder / "duckdb").mkdir()
    (folder / "duckdb" / "block").write_bytes(bytes(1000))
    (folder / "aside").write_bytes(bytes(1000))
    print(folder, flush=True)
    sys.stdin.read()
"""


def working(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    """Start a process that works in a folder in `parent` until it is told to end."""
    child = subprocess.Popen(
        [sys.executable, "-c", WAITS, str(parent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    return child, Path(child.stdout.readline().strip())


def test_what_a_killed_process_has_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    child, left = working(tmp_path)
    with child:
        os.kill(child.pid, signal.SIGKILL)
    assert (left / "duckdb" / "block").exists()
    with scratch_folder(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    child, used = working(tmp_path)
    with child:
        with scratch_folder(tmp_path) as folder:
            assert sorted(tmp_path.iterdir()) == sorted([folder, used])
        assert (used / "duckdb" / "block").exists()
        child.communicate()
    assert child.returncode == 0
    assert not list(tmp_path.iterdir())


def test_what_died_while_it_removed_its_folder_is_removed_too(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}empty").mkdir()
    (tmp_path / f"{PREFIX}half" / "duckdb").mkdir(parents=True)
    (tmp_path / f"{PREFIX}half" / "lock").touch()
    with scratch_folder(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]


def test_what_others_have_there_is_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / f"{PREFIX}notes"
    theirs.mkdir()
    (theirs / "note").touch()
    (tmp_path / "lock").touch()
    with scratch_folder(tmp_path):
        pass
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "lock", theirs, theirs / "note"]


def test_a_folder_goes_also_when_something_goes_wrong_in_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), scratch_folder(tmp_path) as folder:
        (folder / "missing" / "aside").touch()
    assert not list(tmp_path.iterdir())
