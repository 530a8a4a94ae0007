"""A disk that gets full, or read-only, at any object: said clearly, nothing torn, the same bytes when there is room."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mixer import building, log
from mixer.cli.app import app
from mixer.cli.edge import run_app
from mixer.cli.running import AGAIN, MEND
from mixer.config import MixConfig, config_from
from mixer.verifying import verify
from tests.e2e.runs import Child, config_file, many_shards, result, unbroken
from tests.e2e.small_disk import PAGE_BYTES, Tmpfs, disk_at, may_mount
from tests.figures import Note

pytestmark = pytest.mark.crash

SHARDS = 6
ROOM_BYTES = 1 << 24
MOST_PAGES = 60
EVERYTHING = ("probe", "run.json", "README.md", "data/", ".mixer/log/", ".mixer/checkpoints/", "manifest.json")


def mixer(*arguments: str) -> tuple[int, str]:
    """Return the exit code of a command, and what it says on stderr."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = run_app(app, arguments)
    return code, said.getvalue()


def fill_disks(folder: str, real: bool) -> None:
    """Run on disks that are one page larger each time, till the run fits; make room each time, and go on."""
    log.CHECKPOINT_SLOTS = 4
    place = Path(folder) / "disk"
    place.mkdir()
    config = of_many_files(many_shards(Path(folder), str(place / "out"), shards=SHARDS), Path(folder) / "many")
    command = ("run", config_file(config, Path(folder) / "mix.yaml"), "--no-prefect", "--quiet")
    expected = unbroken(config, Path(folder) / "unbroken")
    disk = disk_at(place, real=real)
    (Path(folder) / "kind").write_text(type(disk).__name__)
    hit: list[str] = []
    for pages in range(1, MOST_PAGES):
        disk.mount(pages * PAGE_BYTES)
        code, said = mixer(*command)
        hit.append(said)
        if code:
            check_stopped(config.output, code, said, "the disk is full: make room, then run again; nothing is torn")
            committed = committed_shards(config.output)
            disk.change(ROOM_BYTES, read_only=True)
            read_only_code, read_only_said = mixer(*command)
            check_stopped(config.output, read_only_code, read_only_said, "the disk is mounted read-only")
            assert committed_shards(config.output) == committed
            disk.change(ROOM_BYTES)
            assert mixer(*command) == (0, "")
        assert result(config.output) == expected
        assert verify(config.output).ok
        disk.unmount()
        if not code:
            break
    for name in EVERYTHING:
        assert any(f"{config.output}/{name}" in said or f"/.mixer/{name}" in said for said in hit), f"{name}: {hit}"
    assert pages < MOST_PAGES - 1


def of_many_files(config: MixConfig, folder: Path) -> MixConfig:
    """Return `config` over so many input files that the run's definition takes several pages."""
    folder.mkdir()
    for number in range(30):
        shutil.copy(str(config.datasets["web"].path), folder / f"{number:02d}.parquet")
    values = config.model_dump(mode="json")
    values["datasets"]["web"]["path"] = str(folder)
    return config_from(values)


def committed_shards(output: str) -> int:
    return building.status(output).committed if (Path(output) / ".mixer/run.json").exists() else 0


def check_stopped(output: str, code: int, said: str, why: str) -> None:
    """Check that a run has failed as it should, and that what it has committed is whole."""
    assert code == 1, said
    assert f"{output}/" in said
    assert why in said
    assert (AGAIN in said) or (MEND in said)
    assert "Traceback" not in said
    assert "a bug in mixer" not in said
    # Unfinished files are not left behind either.
    assert not [path for path in (Path(output) / ".mixer/tmp").glob("*") if path.is_file()]
    if (Path(output) / ".mixer/run.json").exists():
        problems = {problem.object.removeprefix(f"{output}/") for problem in verify(output).problems}
        # The last object of all; what is there without it is whole.
        assert problems <= {"manifest.json"}


@pytest.mark.parametrize("real", [True, False], ids=["real if permitted", "pretended"])
def test_a_disk_that_gets_full_at_any_object_is_gone_on_from_when_there_is_room(
    tmp_path: Path, figures: Note, real: bool
) -> None:
    child = Child(tmp_path / "log", fill_disks, str(tmp_path), real)
    assert child.ended() == 0, child.said
    kind = (tmp_path / "kind").read_text()
    figures("disks that got full", {kind: 1})
    assert kind == "Tmpfs" or not (real and may_mount())


def run_with_full_temporary_folder(folder: str) -> None:
    place = Path(folder) / "disk"
    place.mkdir()
    disk = disk_at(place, real=True)
    disk.mount(PAGE_BYTES)
    if isinstance(disk, Tmpfs):
        (place / "filler").write_bytes(bytes(PAGE_BYTES))
    os.environ["TMPDIR"] = str(place)
    tempfile.tempdir = None
    building.build(many_shards(Path(folder), f"{folder}/out", shards=SHARDS))


def test_a_full_temporary_folder_is_none_of_a_runs_business(tmp_path: Path) -> None:
    child = Child(tmp_path / "log", run_with_full_temporary_folder, str(tmp_path))
    assert child.ended() == 0, child.said
    assert verify(str(tmp_path / "out")).finished


NOBODY = 65534


def as_nobody(call: Callable[[], object]) -> None:
    """Call without root's right to write everywhere, if this is root."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    call()


def run_where_nothing_may_be_written(folder: str) -> None:
    config = many_shards(Path(folder), f"{folder}/locked/out", shards=SHARDS)
    command = ("run", config_file(config, Path(folder) / "mix.yaml"), "--no-prefect", "--quiet")
    locked = Path(folder) / "locked"
    locked.mkdir()
    locked.chmod(0o555)
    # The folders above belong to whoever runs the tests, and to nobody else.
    for above in [Path(folder), *Path(folder).parents]:
        if above.stat().st_uid == os.geteuid() and not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)

    def check() -> None:
        code, said = mixer(*command)
        assert code == 1, said
        assert f"{folder}/locked/out" in said
        assert "access denied: check the owner and the permissions of the folder" in said
        assert MEND in said
        assert AGAIN not in said

    as_nobody(check)
    assert list(locked.iterdir()) == []


def test_an_output_where_nothing_may_be_written_is_said_to_be_one_and_nothing_to_be_committed(
    tmp_path: Path,
) -> None:
    child = Child(tmp_path / "log", run_where_nothing_may_be_written, str(tmp_path))
    assert child.ended() == 0, child.said
