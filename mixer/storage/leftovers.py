"""What killed writers have left on a disk: files that were not whole yet, and the proof that nobody writes them.

A writer holds a lock (``flock``) on its file for as long as the file has its passing name, and the system takes the
lock away when the process ends, in whatever way. So a file whose lock can be had is nobody's: no clock, and no guess.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mixer.storage.urls import is_drawn

_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file that is not an object, or not yet."""

    name: str
    """Name relative to the store."""
    bytes: int
    """Length in bytes."""
    held: bool | None
    """Whether a writer is at work on it; None if this file system has no locks to tell by."""
    foreign: bool = False
    """Whether it is none of a writer's files: it has another name than they have, or is no file at all."""


def hold(file: IO[bytes]) -> bool:
    """Lock the new file that a writer is about to fill, until it is closed; return whether it still has its name.

    It has not if somebody who collects leftovers saw it before it was locked. On a file system without locks nobody
    collects, and the answer is True.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return os.fstat(file.fileno()).st_nlink > 0


def find_leftovers(folder: Path, prefix: str) -> Iterator[Leftover]:
    """Yield the files in `folder`, sorted by name; `prefix` comes before their names."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            found = path.lstat()
            if stat.S_ISDIR(found.st_mode):
                continue
            name = prefix + path.name
            if not _is_ours(path.name, found):
                yield Leftover(name, found.st_size, None, foreign=True)
                continue
            with path.open("rb") as file:
                yield Leftover(name, os.fstat(file.fileno()).st_size, _is_held(file))
        except FileNotFoundError:
            continue


def remove_leftover(path: Path) -> bool:
    """Remove a file unless a writer is at work on it, or may be, or it is no writer's; return whether it is gone.

    The lock is kept until the name is gone: a writer that has made the file but not locked it yet notices, and takes
    another name.
    """
    try:
        if not _is_ours(path.name, path.lstat()):
            return False
        with path.open("rb") as file:
            if _is_held(file) is not False:
                return False
            path.unlink(missing_ok=True)
    except FileNotFoundError:
        return True
    return True


def _is_ours(name: str, found: os.stat_result) -> bool:
    """Return whether a file may be a writer's, by its name and by what it is; opening a pipe would never end."""
    return is_drawn(name) and stat.S_ISREG(found.st_mode)


def _is_held(file: IO[bytes]) -> bool | None:
    """Return whether a writer has locked a file; if not, none can until the file is closed."""
    try:
        # Shared, because NFS gives an exclusive lock to those only who may write.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return None
    return False
