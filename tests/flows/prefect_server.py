"""A real Prefect server for tests, on a loopback port and in a home of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.answering import is_answering

_STARTS = 3
_READY_S = 120.0
_DATABASE = "prefect.db"


@dataclass(frozen=True, slots=True)
class PrefectServer:
    """A server that is running."""

    api_url: str
    home: Path
    process_id: int
    """Of the leader of its process group."""

    @property
    def port(self) -> int:
        return int(self.api_url.rsplit(":", 1)[1].partition("/")[0])

    def environment(self) -> dict[str, str]:
        """Return what a process beside it needs, and nothing that could lead it anywhere else."""
        return {**bare_environment(self.home), "PREFECT_API_URL": self.api_url}

    def kill(self) -> None:
        """Take it down at once."""
        os.killpg(self.process_id, signal.SIGKILL)


def bare_environment(home: Path) -> dict[str, str]:
    """Return the environment of a process on a machine where nobody has set anything up."""
    kept = ("PATH", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH")
    return {**{name: os.environ[name] for name in kept if name in os.environ}, "HOME": str(home)}


@contextmanager
def running_prefect_server(
    *, like: PrefectServer | None = None, home: Path | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[PrefectServer]:
    """Start a server, and kill it with its whole process group at the end; call it in the main thread.

    Args:
        like: A running one whose database is copied, because making one takes a while.
        home: Where it is at home, or was before; a new place if left out.
        settings: What it is told beside the usual.
    """
    with tempfile.TemporaryDirectory(prefix="prefect-") as folder:
        home = home or Path(folder)
        if like is not None:
            _copy_database(like.home / ".prefect", home / ".prefect")
        process, port = _start(home, settings or {})
        try:
            yield PrefectServer(f"http://127.0.0.1:{port}/api", home, process.pid)
        finally:
            _kill(process)


def _copy_database(origin: Path, target: Path) -> None:
    target.mkdir()
    with closing(sqlite3.connect(origin / _DATABASE)) as source, closing(sqlite3.connect(target / _DATABASE)) as copy:
        source.backup(copy)


def _start(home: Path, settings: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], int]:
    log = home / "log"
    for _ in range(_STARTS):
        port = _free_port()
        setpriv = shutil.which("setpriv")
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    # Without it the server outlives tests that were killed.
                    *([setpriv, "--pdeathsig", "KILL"] if setpriv else []),
                    *(sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    **bare_environment(home),
                    "DO_NOT_TRACK": "1",
                    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
                    "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",
                    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
                    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "0.5",
                    # With it a first start copies files into the installed package.
                    "PREFECT_SERVER_UI_ENABLED": "false",
                    **settings,
                },
            )
        if is_answering(process, port, "/api/health", seconds=_READY_S, pause_s=0.1):
            return process, port
        _kill(process)
    raise RuntimeError(
        f"the Prefect server did not start {_STARTS} times; its log ends with:\n{log.read_text()[-2000:]}"
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
