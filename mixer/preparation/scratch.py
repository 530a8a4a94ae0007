"""Folders for what is of no use once the process has ended, in whatever way it ends."""

from __future__ import annotations

import fcntl
import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from mixer.storage.leftovers import hold

PREFIX = "mixer-sort-"
_LOCK = "lock"

_logger = logging.getLogger(__name__)


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Make a new folder in `parent` and remove it at the end, with all that is in it.

    A lock in it tells that its process lives. Folders that killed processes have left in `parent` are removed first.

    Raises:
        OSError: There is no such folder, or nothing can be made in it.
    """
    remove_left(parent)
    folder, lock = _new_folder(parent)
    try:
        yield folder
    finally:
        _remove(folder)
        lock.close()


def remove_left(parent: Path) -> None:
    """Remove the folders that killed processes have left in `parent`, which need not be there."""
    for left in sorted(parent.glob(f"{PREFIX}*")):
        _remove_if_left(left)


def scratch_file(folder: Path, name: str) -> IO[bytes]:
    """Return a new file in a scratch folder, or an old one emptied, to be written and read without a buffer.

    What lies there is no object: nobody reads it but the process that has written it.
    """
    return (folder / name).open("w+b", buffering=0)


def _new_folder(parent: Path) -> tuple[Path, IO[bytes]]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        try:
            lock = (folder / _LOCK).open("xb")
        except FileNotFoundError:
            # Another process has taken the new folder for one that was left.
            continue
        if hold(lock):
            return folder, lock
        lock.close()


def _remove_if_left(folder: Path) -> None:
    """Remove a folder whose process has ended; leave it if that is not certain, or it is somebody else's."""
    try:
        lock = (folder / _LOCK).open("rb")
    except FileNotFoundError:
        # Its process has died before it had a lock, or is about to make one: it then takes another folder.
        try:
            folder.rmdir()
        except OSError:
            _logger.debug("left %s where it is", folder)
        return
    except OSError:
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        _remove(folder)
    _logger.info("removed %s, which a process that was killed had left", folder)


def _remove(folder: Path) -> None:
    """Remove a folder, and the lock in it last: as long as it is there, another process can go on with this."""
    for path in folder.iterdir():
        if path.name == _LOCK:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    (folder / _LOCK).unlink(missing_ok=True)
    try:
        folder.rmdir()
    except OSError:
        _logger.warning("could not remove %s; remove it by hand", folder)
