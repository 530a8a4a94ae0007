"""What this machine has to offer."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator

from mixer.checkup.base import Check, Checks

ROOM_BYTES = 1 << 30
"""Less memory or disk than this is worth a warning."""
_MIB = 1 << 20

_checks = Checks("machine")


def machine_checks() -> Iterator[Check]:
    """Yield a check for the system, cores, memory and the folder for temporary files."""
    if platform.system() == "Linux":
        yield _checks.ok("system", f"Linux {platform.release()}, {platform.machine()}")
    else:
        yield _checks.warning("system", platform.platform(), "mixer is tested on Linux only")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield _checks.ok("cores", f"{cores} to be used of {os.cpu_count() or cores}")
    yield room(
        _checks, "memory", _available_bytes(), "close other programs, or make the shards smaller (batches_per_shard)"
    )
    folder = tempfile.gettempdir()
    yield room(_checks, f"disk of {folder}", shutil.disk_usage(folder).free, "make room; Prefect and others use it")


def room(checks: Checks, name: str, free_bytes: int, advice: str) -> Check:
    """Return the check of a room of `free_bytes`.

    >>> checks = Checks("machine")
    >>> room(checks, "memory", 1 << 32, "").found, room(checks, "memory", 1 << 29, "make room").state
    ('4,096 MiB free', 'warning')
    """
    found = f"{free_bytes // _MIB:,} MiB free"
    return checks.ok(name, found) if free_bytes >= ROOM_BYTES else checks.warning(name, found, advice)


def _available_bytes() -> int:
    """Return the memory that programs may still take, in bytes."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:  # noqa: PTH123 -- no file, but the system's word
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
