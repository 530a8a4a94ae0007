"""A real S3 server that takes no notice of conditions (``rclone serve s3``), on a loopback port of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.answering import stop
from tests.s3_server import ACCESS_KEY_ID, BUCKET, SECRET_ACCESS_KEY, S3Server

_STARTS = 3
_READY_S = 120.0


@dataclass(frozen=True, slots=True)
class RcloneServer(S3Server):
    """A server that is running."""

    folder: Path
    """What it serves: the bucket is a folder in it, and objects are files."""


@contextmanager
def running_rclone_server() -> Iterator[RcloneServer]:
    """Start a server with one empty bucket, `BUCKET`, and stop it at the end; call it in the main thread."""
    with tempfile.TemporaryDirectory(prefix="rclone-") as name:
        folder = Path(name) / "served"
        (folder / BUCKET).mkdir(parents=True)
        process, port = _start(Path(name), folder)
        try:
            yield RcloneServer(port, process.pid, folder)
        finally:
            stop(process)


def _start(home: Path, folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    log = home / "log"
    beside = Path(sys.executable).with_name("rclone")
    setpriv = shutil.which("setpriv")
    for _ in range(_STARTS):
        port = _free_port()
        command = [
            # Without it the server outlives tests that were killed.
            *([setpriv, "--pdeathsig", "KILL"] if setpriv else []),
            *(str(beside) if beside.exists() else "rclone", "serve", "s3", "--config", "NONE"),
            *(f"--addr=127.0.0.1:{port}", f"--auth-key={ACCESS_KEY_ID},{SECRET_ACCESS_KEY}", str(folder)),
        ]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={"HOME": str(home), "TMPDIR": str(home), "XDG_CACHE_HOME": str(home)},
            )
        if _is_open(process, port):
            return process, port
        stop(process)
    raise RuntimeError(f"the S3 server did not start {_STARTS} times; its log ends with:\n{log.read_text()[-2000:]}")


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port: int = server.getsockname()[1]
        return port


def _is_open(process: subprocess.Popen[bytes], port: int) -> bool:
    # It answers nothing to those who have no key, so a connection must do.
    deadline_s = time.monotonic() + _READY_S
    while process.poll() is None and time.monotonic() < deadline_s:
        with closing(socket.socket()) as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.02)
    return False
