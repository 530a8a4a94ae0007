"""A store in a folder of a local (or mounted) disk.

Why not fsspec's: its ``mode="create"`` looks first and writes then, so that several writers win; its plain write
shows a name before the bytes; and it never calls fsync. Here an object is written whole under another name, made
durable, and only then given its own: by a hard link, which fails if the name is taken, or by a rename.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mixer.errors import OutputError, StoreError, StoreUnavailableError
from mixer.storage.base import ObjectInfo
from mixer.storage.leftovers import Leftover, find_leftovers, hold, remove_leftover
from mixer.storage.probing import ACCEPT, RISK
from mixer.storage.regular import find_regular, open_regular
from mixer.storage.retry import RetryPolicy
from mixer.storage.urls import TEMPORARY_FOLDER, check_name, check_prefix, check_range, draw_name

_NO_OBJECT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV})
_UNAVAILABLE = frozenset({errno.ETIMEDOUT, errno.ESTALE, errno.EAGAIN, errno.EHOSTDOWN, errno.EHOSTUNREACH})
_HINTS = {
    errno.ENOSPC: "the disk is full: make room, then run again; nothing is torn",
    errno.EDQUOT: "the disk quota is used up: make room, then run again; nothing is torn",
    errno.EFBIG: "the file system does not take a file so large: make the shards smaller",
    errno.EROFS: "the disk is mounted read-only: mount it writable, or choose another output",
    errno.EACCES: "access denied: check the owner and the permissions of the folder",
    errno.EPERM: "not permitted: check the owner, the permissions and the attributes of the folder",
    errno.EEXIST: "there is a file where a folder is needed: move it away, or choose another output",
    errno.ENOTDIR: "there is a file where a folder is needed: move it away, or choose another output",
    errno.EISDIR: "there is a folder where the object should be: move it away, or choose another output",
    errno.ENAMETOOLONG: "the file system does not take a name so long: choose a shorter one",
    errno.EMFILE: "too many files are open: raise the limit (ulimit -n)",
    errno.EIO: "the disk reports an error: check its health before going on",
    errno.ENOLCK: "this file system has no locks: delete the file if nothing else works on this output, then run again",
}
_RUN_FOLDERS = (".mixer/", "data/")
_LOCK = RetryPolicy(attempts=20, first_wait_s=0.005, max_wait_s=0.2)
"""How long to wait for a lock that is held for as long as a rename takes, by anybody but a stopped process."""


class LocalStore:
    """The files below one folder, which need not exist yet.

    What is not whole yet lies in a hidden folder below it; what a killed process left there is never listed, and
    harms nothing.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        # Not `Path.absolute`, which would keep `..`.
        self.root = Path(os.path.abspath(Path(root).expanduser()))  # noqa: PTH100
        self._settled: set[Path] = set()

    def __repr__(self) -> str:
        return f"LocalStore({str(self.root)!r})"

    @property
    def url(self) -> str:
        return str(self.root)

    def get(self, name: str) -> bytes | None:
        path = self._path(name)
        with _told("read", path):
            try:
                with os.fdopen(open_regular(path), "rb") as file:
                    data = file.read()
                    expected_bytes = os.fstat(file.fileno()).st_size
            except _NO_OBJECT:
                return None
        if len(data) != expected_bytes:
            raise StoreUnavailableError(f"cannot read {path}: expected {expected_bytes} bytes, found {len(data)}")
        return data

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        check_range(start, stop)
        path = self._path(name)
        with _told("read", path), os.fdopen(open_regular(path), "rb") as file:
            file.seek(start)
            # Not `stop - start` as it is: that much memory would be taken first.
            return file.read(max(0, min(stop, os.fstat(file.fileno()).st_size) - start))

    def put(self, name: str, data: bytes) -> None:
        path = self._path(name)
        with _told("write", path):
            self._settle(path.parent)
            with self._temporary(data) as temporary:
                temporary.replace(path)
            _sync_folder(path.parent)

    def create(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        with _told("create", path):
            self._settle(path.parent)
            with self._temporary(data) as temporary:
                if not _link(temporary, path) and not _holds(path, data):
                    return False
            # Also if another process linked the same bytes: it may have died before the name was durable.
            _sync_folder(path.parent)
        return True

    def replace(self, name: str, data: bytes, version: str) -> bool:
        path = self._path(name)
        with _told("replace", path):
            try:
                find_regular(path)
            except (FileNotFoundError, NotADirectoryError):
                return False
            with self._temporary(data) as temporary:
                try:
                    with _locked(path) as found:
                        if _info(name, found).version == version:
                            temporary.replace(path)
                        elif not _holds(path, data):
                            return False
                except FileNotFoundError:
                    return False
            _sync_folder(path.parent)
        return True

    def list(self, prefix: str, *, after: str = "") -> list[ObjectInfo]:
        folder = self._unlinked(self.root / check_prefix(prefix))
        if prefix == TEMPORARY_FOLDER:
            return []
        with _told("list", folder):
            return sorted(_walk(folder, prefix, after), key=lambda info: info.name)

    def delete(self, name: str) -> None:
        path = self._path(name)
        with _told("delete", path):
            if path.is_dir():
                return
            try:
                path.unlink()
            except (FileNotFoundError, NotADirectoryError):
                return
            _sync_folder(path.parent)

    def stat(self, name: str) -> ObjectInfo | None:
        path = self._path(name)
        with _told("look up", path):
            try:
                return _info(name, find_regular(path))
            except _NO_OBJECT:
                return None

    def leftovers(self) -> tuple[Leftover, ...]:
        """Return what lies unfinished in this store, sorted by name: of writers at work, and of killed ones."""
        folder = self._unlinked(self.root / TEMPORARY_FOLDER)
        with _told("list", folder):
            return tuple(find_leftovers(folder, TEMPORARY_FOLDER))

    def remove_leftover(self, name: str) -> bool:
        """Remove one of `leftovers`, unless a writer is at work on it, or it is no writer's; return whether it is gone.

        Raises:
            StoreError: The folder that it lies in is a symbolic link, or the file cannot be removed.
        """
        folder = self._unlinked(self.root / TEMPORARY_FOLDER)
        path = folder / check_name(name.removeprefix(TEMPORARY_FOLDER))
        with _told("delete", path):
            return remove_leftover(path)

    def _path(self, name: str) -> Path:
        path = self.root / check_name(name)
        self._unlinked(path.parent)
        return path

    def _unlinked(self, folder: Path) -> Path:
        """Return `folder` if no folder on the way to it is a symbolic link; the root itself may be one.

        Raises:
            StoreError: One is: what is written and deleted there would be somebody else's.
        """
        here = folder
        while here != self.root:
            # Not `Path.is_symlink`, which may fail where the call after this one says it better.
            if os.path.islink(here):  # noqa: PTH114 - see above
                raise _linked(here)
            here = here.parent
        return folder

    def _settle(self, folder: Path) -> None:
        """Make `folder` durably, and all above it: the process that made them may not have lived to sync them."""
        if folder in self._settled:
            return
        if self._settled and not self.root.exists():
            raise FileNotFoundError(errno.ENOENT, "the folder of the store was removed meanwhile", str(self.root))
        top = folder
        while not top.exists() and top != top.parent:
            top = top.parent
        if top.is_relative_to(self.root):
            top = self.root
        folder.mkdir(parents=True, exist_ok=True)
        upwards = folder
        while upwards != top:
            upwards = upwards.parent
            _sync_folder(upwards)
        self._settled.add(folder)

    @contextmanager
    def _temporary(self, data: bytes) -> Iterator[Path]:
        """Yield a new file that durably holds `data`, and remove it afterwards, whatever happens."""
        folder = self._unlinked(self.root / TEMPORARY_FOLDER)
        # What it lies in is made once: an output that is removed under a run must not come back as an empty one.
        folder.mkdir(parents=folder not in self._settled, exist_ok=True)
        self._settled.add(folder)
        while True:
            path = folder / draw_name()
            with path.open("xb") as file:
                try:
                    if hold(file):
                        file.write(data)
                        file.flush()
                        _stamp(file.fileno())
                        os.fsync(file.fileno())
                        yield path
                        return
                finally:
                    path.unlink(missing_ok=True)


def _link(temporary: Path, path: Path) -> bool:
    """Give the file `temporary` the name `path` as well, and return whether that name was free."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        raise OutputError(
            f"cannot create {path}: this file system refuses hard links ({error.strerror}), without which {RISK};"
            f" choose an output on another one (ext4, xfs, btrfs, NFS) or in a bucket, {ACCEPT}"
        ) from error
    return True


def _holds(path: Path, data: bytes) -> bool:
    try:
        if find_regular(path).st_size != len(data):
            return False
        with os.fdopen(open_regular(path), "rb") as file:
            return file.read() == data
    except FileNotFoundError:
        return False


def _stamp(descriptor: int) -> None:
    """Give a file the time to the nanosecond: the system's own for files may stand still for milliseconds.

    A file that is replaced twice in that while may get back the inode that it had at first, and its version with it.
    """
    now_ns = time.time_ns()
    # A mount that keeps times of its own may refuse: then its versions are as good as those are.
    with suppress(PermissionError, NotImplementedError):
        os.utime(descriptor, ns=(now_ns, now_ns))


@contextmanager
def _locked(path: Path) -> Iterator[os.stat_result]:
    """Hold the lock of the file that `path` names, and yield what is known of it.

    The lock is of the file and not of its name, so it is looked up afterwards whether it still has that name.

    Raises:
        FileNotFoundError: There is none.
        StoreUnavailableError: Somebody else keeps it.
    """
    for attempt in range(1, _LOCK.attempts + 1):
        descriptor = _open_to_lock(path)
        try:
            if _lock(descriptor):
                found = os.fstat(descriptor)
                if os.path.samestat(found, path.stat()):
                    yield found
                    return
        finally:
            os.close(descriptor)
        time.sleep(_LOCK.wait_s(attempt))
    raise StoreUnavailableError(
        f"cannot replace {path}: another process holds its lock, also after {_LOCK.attempts} tries; end that process"
        " if it hangs or is stopped, then run again"
    )


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open_to_lock(path: Path) -> int:
    try:
        # NFS gives such a lock only to those who may write.
        return open_regular(path, os.O_RDWR)
    except PermissionError:
        return open_regular(path)


def _walk(folder: Path, prefix: str, after: str) -> Iterator[ObjectInfo]:
    """Yield what lies below `folder`, whose names begin with `prefix`; files that vanish meanwhile are left out.

    Links to folders are not followed.

    Raises:
        StoreError: One is where objects of a run lie: they would be missed.
    """
    try:
        entries = os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    with entries:
        for entry in entries:
            name = prefix + entry.name
            if entry.is_dir():
                inner = name + "/"
                if entry.is_symlink():
                    if inner.startswith(_RUN_FOLDERS):
                        raise _linked(folder / entry.name)
                    continue
                if inner != TEMPORARY_FOLDER and (inner > after or after.startswith(inner)):
                    yield from _walk(folder / entry.name, inner, after)
            elif name > after and entry.is_file():
                try:
                    yield _info(name, entry.stat())
                except FileNotFoundError:
                    continue


def _linked(folder: Path) -> StoreError:
    return StoreError(
        f"{folder}: expected a folder, found a symbolic link; inside of an output none is followed, as nothing is"
        " written or deleted outside of it: put the folder itself there, or make the output's own folder the link"
    )


def _info(name: str, found: os.stat_result) -> ObjectInfo:
    # Two files may have got the same time; then they have not the same inode, for one replaced the other.
    return ObjectInfo(name=name, bytes=found.st_size, version=f"{found.st_mtime_ns}-{found.st_ino}")


def _sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have no such call for folders; there it is their server's promise.
        if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS}:
            raise
    finally:
        os.close(descriptor)


@contextmanager
def _told(doing: str, path: Path) -> Iterator[None]:
    """Turn what the operating system says into a `StoreError` that names the path and what to do."""
    try:
        yield
    except (StoreError, OutputError):
        raise
    except FileNotFoundError as error:
        raise StoreError(
            f"cannot {doing} {path}: there is no such file, or its folder was removed meanwhile"
        ) from error
    except OSError as error:
        code = error.errno or 0
        hint = f"; {_HINTS[code]}" if code in _HINTS else ""
        found = str(error.filename or path)
        where = f" ({found})" if found != str(path) else ""
        message = f"cannot {doing} {path}: {error.strerror or error}{where}{hint}"
        raise (StoreUnavailableError if code in _UNAVAILABLE else StoreError)(message) from error
