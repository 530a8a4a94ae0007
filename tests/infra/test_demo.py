from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mixer
from infra import corpora, demo

ROOT = Path(__file__).parents[2]


def fresh_clone(into: Path) -> Path:
    """Copy what a clone of this checkout would hold, changes that are not committed included."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, into / name)
    return into


def run_demo(clone: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(clone / "infra" / "demo")],
        env={**os.environ, "PYTHON": sys.executable, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.install
@pytest.mark.crash
@pytest.mark.timeout(1800)
def test_the_demo_works_in_a_fresh_clone_and_again(tmp_path: Path) -> None:
    clone = fresh_clone(tmp_path)
    first = run_demo(clone)
    assert first.returncode == 0, first.stdout + first.stderr
    # What stands between the commands is for people; that nothing alarming is there is a promise.
    assert not re.search("traceback|warning|error", first.stdout + first.stderr, re.IGNORECASE)
    assert "the sha256 of every shard is equal" in first.stdout
    assert "All of it held" in first.stdout

    second = run_demo(clone)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "Installing" not in second.stdout + second.stderr
    assert second.stdout.count("made by an earlier demo") == 4


def test_the_demo_ends_with_1_at_the_first_check_that_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "make_corpora", lambda: demo.check("water is dry", holds=False))
    assert demo.main() == 1
    told = capsys.readouterr()
    assert "failed  water is dry" in told.err
    assert "2/8" not in told.out
    assert "All of it held" not in told.out


@pytest.fixture
def two_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two finished runs of one mix, where the demo looks for them."""
    corpora.write("code", tmp_path / "inputs", limit=12)
    outputs = tmp_path / "mixed", tmp_path / "unbroken"
    for output in outputs:
        datasets = {"code": {"path": str(tmp_path / "inputs" / "code"), "weight": 1}}
        config = {"output": str(output), "batch_size": 2, "batches": 6, "batches_per_shard": 2, "datasets": datasets}
        mixer.build(mixer.MixConfig.model_validate(config))
    monkeypatch.setattr(demo, "MIXED", outputs[0])
    monkeypatch.setattr(demo, "UNBROKEN", outputs[1])
    return outputs


def test_equal_runs_pass_the_comparison(two_runs: tuple[Path, Path]) -> None:
    demo.compare()


def test_one_other_byte_fails_the_comparison(two_runs: tuple[Path, Path]) -> None:
    shard = two_runs[1] / "data" / "shard-00000001.parquet"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(demo.CheckError, match="sha256 of every shard"):
        demo.compare()


def test_a_missing_shard_fails_the_comparison(two_runs: tuple[Path, Path]) -> None:
    for output in two_runs:
        (output / "data" / "shard-00000001.parquet").unlink()
    with pytest.raises(demo.CheckError, match="2 of 3 shards are there"):
        demo.compare()
