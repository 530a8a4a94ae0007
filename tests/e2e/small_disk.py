"""Disks of any size, and read-only ones: a tmpfs that only the calling process sees."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
from pathlib import Path
from typing import Any

PAGE_BYTES = 4096
"""What the smallest file takes."""

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_REMOUNT, _MS_REC, _MS_PRIVATE = 1, 32, 0x4000, 1 << 18
_CAP_SYS_ADMIN = 21
_LIBC = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, doing: str) -> None:
    if result:
        code = ctypes.get_errno()
        raise OSError(code, f"{doing}: {os.strerror(code)}")


def see_mounts_alone() -> None:
    """Give this process, which must have one thread, a view of the mounts that is its own.

    Raises:
        OSError: Neither is it root's, nor may it become root in a world of its own.
    """
    user, group = os.geteuid(), os.getegid()
    flags = _CLONE_NEWNS if user == 0 else _CLONE_NEWNS | _CLONE_NEWUSER
    _checked(_LIBC.unshare(flags), "unshare")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _checked(_LIBC.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "make mounts private")


class Tmpfs:
    """A disk in memory, mounted at a folder."""

    def __init__(self, place: Path) -> None:
        """Be able to mount at `place`; what was mounted goes with the process.

        Raises:
            OSError: This machine lets nobody but its real root mount.
        """
        see_mounts_alone()
        self._place = place

    def mount(self, size: int) -> None:
        """Mount an empty disk of `size` bytes, rounded up to pages."""
        self._mount(0, size)

    def change(self, size: int, *, read_only: bool = False) -> None:
        """Give the disk another size, and make it read-only or writable."""
        self._mount(_MS_REMOUNT | (_MS_RDONLY if read_only else 0), size)

    def unmount(self) -> None:
        """Take the disk away with what it holds."""
        _checked(_LIBC.umount2(os.fsencode(self._place), 2), f"unmount {self._place}")

    def _mount(self, flags: int, size: int) -> None:
        options = f"size={size}".encode()
        _checked(_LIBC.mount(b"tmpfs", os.fsencode(self._place), b"tmpfs", flags, options), f"mount {self._place}")


class Pretence:
    """A folder that this process takes for a small disk: for machines where nothing can be mounted.

    A disk may say that it is full when a file is made durable, and not before; this one always does.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._size = 0
        self._read_only = False
        self._sync = os.fsync
        os.fsync = self._checked_sync

    def mount(self, size: int) -> None:
        self.change(size)

    def change(self, size: int, *, read_only: bool = False) -> None:
        self._size, self._read_only = size, read_only

    def unmount(self) -> None:
        shutil.rmtree(self._place)
        self._place.mkdir()

    def _checked_sync(self, fd: Any) -> None:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            if self._read_only:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            files = {found.st_ino: found.st_size for found in map(Path.stat, self._place.rglob("*")) if _is_file(found)}
            if sum(-(-size // PAGE_BYTES) * PAGE_BYTES for size in files.values()) > self._size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._sync(fd)


def _is_file(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode)


def may_mount() -> bool:
    """Return whether this process has root's right to mount (CAP_SYS_ADMIN), so that nothing may keep it from that."""
    status = Path("/proc/self/status").read_text()
    held = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(held, 16) >> _CAP_SYS_ADMIN & 1)


def disk_at(place: Path, *, real: bool) -> Tmpfs | Pretence:
    """Return a disk to be mounted at `place`: a real one if that is asked for and this machine permits it.

    Raises:
        OSError: It is asked for, and not there although this process has the right to mount.
    """
    if real:
        had_right = may_mount()
        try:
            return Tmpfs(place)
        except OSError:
            if had_right:
                raise
    return Pretence(place)
