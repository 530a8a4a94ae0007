"""What only a disk can do to a store: die half-way, fill up, refuse links, hold odd things."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mixer.errors import OutputError, StoreError, StoreUnavailableError
from mixer.storage import LocalStore, local
from mixer.storage.retry import RetryPolicy

BODY_BYTES = 8_000_000

WRITER = """
import sys
from mixer.storage import LocalStore
store = LocalStore(sys.argv[1])
verb, name, size = sys.argv[2], sys.argv[3], int(sys.argv[4])
print("ready", flush=True)
for number in range(1000):
    body = bytes([65 + number % 2]) * size
    if verb == "put":
        store.put(name, body)
    else:
        store.create(f"{name}-{number}", body)
"""


def temporary_files(root: Path) -> list[Path]:
    return list((root / ".mixer" / "tmp").glob("*"))


@pytest.mark.crash
@pytest.mark.parametrize("verb", ["put", "create"])
def test_a_writer_that_is_killed_leaves_whole_objects_only(tmp_path: Path, verb: str) -> None:
    store = LocalStore(tmp_path)
    whole = {bytes([letter]) * BODY_BYTES for letter in b"AB"}
    leftovers = 0
    for number in range(8):
        command = [sys.executable, "-c", WRITER, str(tmp_path), verb, f"data/{number}", str(BODY_BYTES)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(0.005 + 0.013 * number)
            writer.kill()
        assert writer.returncode == -signal.SIGKILL
        leftovers += len(temporary_files(tmp_path))
        for info in store.list(""):
            assert info.name.startswith("data/")
            assert store.get(info.name) in whole
            store.delete(info.name)
        assert not any((tmp_path / "data").glob("*"))
        for path in temporary_files(tmp_path):
            path.unlink()
    # Or else no process was ever killed in the middle, and nothing was shown.
    assert leftovers > 0


def test_a_put_never_changes_the_bytes_under_a_reader(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("a", b"the old bytes")
    with (tmp_path / "a").open("rb") as reader:
        store.put("a", b"new bytes")
        assert reader.read() == b"the old bytes"


def test_a_replacement_is_seen_also_where_the_clock_stood_still(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("a", b"1")
    before, times = store.stat("a"), (tmp_path / "a").stat()
    store.put("a", b"2")
    os.utime(tmp_path / "a", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert store.stat("a") != before


def test_a_version_has_the_time_to_the_nanosecond(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock for files may stand still for milliseconds, and a freed inode be the next one that is given out."""
    times_ns = (1_700_000_000_000_000_001, 1_700_000_000_000_000_002, 1_700_000_000_000_000_003)
    clock = iter(times_ns)
    monkeypatch.setattr(time, "time_ns", lambda: next(clock))
    store = LocalStore(tmp_path)
    store.put("a", b"1")
    seen = [version_of(store, "a")]
    store.put("a", b"2")
    seen.append(version_of(store, "a"))
    store.replace("a", b"3", seen[-1])
    seen.append(version_of(store, "a"))
    assert [version.partition("-")[0] for version in seen] == [str(time_ns) for time_ns in times_ns]


def version_of(store: LocalStore, name: str) -> str:
    info = store.stat(name)
    assert info is not None
    return info.version


def test_a_mount_that_keeps_its_own_times_is_used_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object, *, ns: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "utime", refuse)
    assert LocalStore(tmp_path).create("a", b"1")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_LOCK", RetryPolicy(attempts=3, first_wait_s=0.001))


@pytest.mark.usefixtures("impatient")
def test_a_file_whose_lock_another_keeps_is_not_replaced_and_is_named(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("data/a", b"1")
    with (tmp_path / "data" / "a").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        with pytest.raises(StoreUnavailableError, match=r"cannot replace .*/data/a: another process holds its lock"):
            store.replace("data/a", b"2", version_of(store, "data/a"))
    assert store.get("data/a") == b"1"
    assert temporary_files(tmp_path) == []
    assert store.replace("data/a", b"2", version_of(store, "data/a"))


@pytest.mark.parametrize("mine", [b"mine", b"theirs"])
def test_a_file_that_is_replaced_before_it_could_be_locked_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: bytes
) -> None:
    store, other = LocalStore(tmp_path), LocalStore(tmp_path)
    store.put("a", b"old")
    version = version_of(store, "a")
    flock, moments = fcntl.flock, iter([True])

    def overtaken(file: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX | fcntl.LOCK_NB and next(moments, False):
            other.put("a", b"theirs")
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", overtaken)
    assert store.replace("a", mine, version) == (mine == b"theirs")
    assert next(moments, None) is None
    assert store.get("a") == b"theirs"


def test_a_file_that_is_gone_before_it_could_be_locked_stays_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    store.put("a", b"old")
    version = version_of(store, "a")
    flock = fcntl.flock

    def removed(file: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX | fcntl.LOCK_NB:
            LocalStore(tmp_path).delete("a")
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", removed)
    assert not store.replace("a", b"new", version)
    assert store.list("") == []
    assert temporary_files(tmp_path) == []


def test_a_disk_without_locks_replaces_nothing_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    store = LocalStore(tmp_path)
    store.put("a", b"1")
    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(
        StoreError, match=r"cannot replace .*/a: .* has no locks: delete the file if nothing else works"
    ):
        store.replace("a", b"2", version_of(store, "a"))
    assert store.get("a") == b"1"


def test_a_file_of_another_owner_is_replaced_if_its_folder_may_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    store.put("a", b"1")
    real = os.open

    def open_(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_RDWR and Path(path).name == "a":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", open_)
    assert store.replace("a", b"2", version_of(store, "a"))
    assert store.get("a") == b"2"


def test_leftovers_of_a_dead_process_are_not_seen(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("a", b"1")
    (tmp_path / ".mixer/tmp/0123456789abcdef").write_bytes(b"half")
    assert [info.name for info in store.list("")] == ["a"]
    assert store.list(".mixer/") == []
    assert store.list(".mixer/tmp/") == []


def test_nothing_is_left_behind_by_a_write_that_ends(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("a", b"1")
    store.create("b", b"1")
    store.create("b", b"2")
    assert temporary_files(tmp_path) == []


def test_only_whole_files_lie_beside_the_objects(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("data/shard.parquet", b"1")
    store.create("data/shard-2.parquet", b"1")
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["shard-2.parquet", "shard.parquet"]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, r"cannot \w+ .*/data/a: .*; the disk is full: make room"),
        (errno.EDQUOT, "the disk quota is used up"),
        (errno.EROFS, "mounted read-only"),
        (errno.EACCES, "access denied: check the owner and the permissions"),
        (errno.EIO, "the disk reports an error"),
        (errno.EMFILE, "too many files are open"),
        (errno.ENOMSG, r"cannot \w+ .*/data/a: No message"),
    ],
)
@pytest.mark.parametrize("verb", ["put", "create"])
def test_a_failed_write_tells_where_and_what_to_do_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, number: int, expected: str
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    store = LocalStore(tmp_path)
    store.put("data/kept", b"1")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(StoreError, match=expected) as caught:
            getattr(store, verb)("data/a", b"1")
    assert not caught.value.transient
    assert store.get("data/a") is None
    assert store.get("data/kept") == b"1"
    assert temporary_files(tmp_path) == []
    getattr(store, verb)("data/a", b"1")
    assert store.get("data/a") == b"1"


def test_a_server_behind_the_disk_that_does_not_answer_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreUnavailableError) as caught:
        LocalStore(tmp_path).put("a", b"1")
    assert caught.value.transient


def test_a_file_too_large_for_the_disk_is_a_clear_error_and_leaves_nothing(tmp_path: Path) -> None:
    script = """
import resource, sys
from mixer.errors import StoreError
from mixer.storage import LocalStore
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
store = LocalStore(sys.argv[1])
store.create("small", b"1")
for verb in (store.put, store.create):
    try:
        verb("large", bytes(3_000_000))
    except StoreError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.count("the file system does not take a file so large") == 2
    assert [info.name for info in LocalStore(tmp_path).list("")] == ["small"]
    assert temporary_files(tmp_path) == []


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_disk_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(
        OutputError, match=r"refuses hard links .* choose an output on another one .* --accept-unsafe-store"
    ):
        LocalStore(tmp_path).create("a", b"1")
    assert LocalStore(tmp_path).list("") == []
    assert temporary_files(tmp_path) == []


def test_a_disk_that_cannot_sync_folders_is_used_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def sync(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112 - a link of the kernel's
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    assert LocalStore(tmp_path).create("data/a", b"1")


def test_everything_is_synced_before_a_name_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, synced = os.fsync, []

    def sync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}").replace(str(tmp_path), "OUT"))  # noqa: PTH115 - see above
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    store = LocalStore(tmp_path / "new" / "store")
    store.create("data/a", b"1")
    # The folders that were made, the bytes, and the name, in this order.
    assert synced[:3] == ["OUT/new/store", "OUT/new", "OUT"]
    assert synced[3].startswith("OUT/new/store/.mixer/tmp/")
    assert synced[4:] == ["OUT/new/store/data"]
    synced.clear()
    # Another process may have died between its link and its sync.
    LocalStore(tmp_path / "new" / "store").create("data/a", b"1")
    assert synced[-1] == "OUT/new/store/data"
    synced.clear()
    store.put("data/a", b"2")
    assert len(synced) == 2
    assert synced[1] == "OUT/new/store/data"
    synced.clear()
    assert store.replace("data/a", b"3", version_of(store, "data/a"))
    assert len(synced) == 2
    assert synced[1] == "OUT/new/store/data"


def test_a_file_where_a_folder_is_needed_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"")
    store = LocalStore(tmp_path)
    for verb in (store.put, store.create):
        with pytest.raises(StoreError, match=r"cannot \w+ .*/data/a: .*\(.*/data\); there is a file where a folder"):
            verb("data/a", b"1")


def test_a_folder_where_an_object_is_needed_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    store = LocalStore(tmp_path)
    for verb in (store.put, store.create):
        with pytest.raises(StoreError, match=r"cannot \w+ .*/a: .*; there is a folder where the object should be"):
            verb("a", b"1")


def test_a_name_too_long_for_the_disk_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not take a name so long"):
        LocalStore(tmp_path).put("x" * 300, b"1")


@pytest.mark.parametrize("name", ["data/1", "other/1", "1"])
@pytest.mark.parametrize("verb", ["put", "create"])
def test_a_folder_that_is_removed_under_a_store_does_not_come_back(tmp_path: Path, verb: str, name: str) -> None:
    """What was in it is gone: an output with the rest of a run only would be worse than none."""
    store = LocalStore(tmp_path / "out")
    store.put("data/0", b"0")
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(StoreError, match=f"{name}: there is no such file, or its folder was removed meanwhile"):
        getattr(store, verb)(name, b"1")
    assert not (tmp_path / "out").exists()
    LocalStore(tmp_path / "out").put(name, b"1")
    assert (tmp_path / "out" / name).read_bytes() == b"1"


def test_a_path_is_made_absolute_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = LocalStore("out/../store")
    monkeypatch.chdir("/")
    assert store.url == str(tmp_path / "store")
    store.put("a", b"1")
    assert (tmp_path / "store" / "a").read_bytes() == b"1"


def test_a_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert LocalStore("~/mix").url == str(tmp_path / "mix")
