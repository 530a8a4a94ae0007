"""Waiting for a server that a test has started, and stopping it."""

from __future__ import annotations

import http.client
import subprocess
import time
from contextlib import closing, suppress

_STOP_S = 20.0


def is_answering(process: subprocess.Popen[bytes], port: int, path: str, *, seconds: float, pause_s: float) -> bool:
    """Wait until a GET of `path` is answered with 200; return False if the process ends or time is up before."""
    deadline_s = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline_s:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        with closing(connection), suppress(OSError, http.client.HTTPException):
            connection.request("GET", path)
            if connection.getresponse().status == http.HTTPStatus.OK:
                return True
        time.sleep(pause_s)
    return False


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, and end it if it does not."""
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
