"""Opening and looking up files of which only some may be objects: a pipe has no end, and a link may lead nowhere."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from mixer.errors import StoreError

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link that leads nowhere",
}


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open the file at `path`, never waiting for anybody; return its descriptor.

    Raises:
        FileNotFoundError: Nothing has that name.
        IsADirectoryError: It is a folder.
        StoreError: It is neither a file nor a folder.
    """
    find_regular(path)
    # What it is may have changed since; no pipe is ever waited for.
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def find_regular(path: Path) -> os.stat_result:
    """Return what is known of the file at `path`; a link to one is as good as it.

    Raises:
        As `open_regular`.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        _check(path, path.lstat())
        raise
    _check(path, found)
    return found


def _check(path: Path, found: os.stat_result) -> None:
    """Check that what was found at `path` is a file."""
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if kind != stat.S_IFREG:
        raise StoreError(
            f"{path}: expected a file, found {_KINDS.get(kind, 'something else')}; move it away, then run again"
        )
