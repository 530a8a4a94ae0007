"""A real S3 server (SeaweedFS) for tests, on loopback ports of its own."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.answering import is_answering, stop

ACCESS_KEY_ID = "mixertestkey"
SECRET_ACCESS_KEY = "mixertestsecret"  # noqa: S105 - of a server that lives as long as the tests
BUCKET = "test"
_STARTS = 3
_READY_S = 120.0


@dataclass(frozen=True, slots=True)
class S3Server:
    """A server that is running."""

    port: int
    process_id: int

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        """Return the variables that lead a client there, and nowhere else."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }


@contextmanager
def running_s3_server() -> Iterator[S3Server]:
    """Start a server with one empty bucket, `BUCKET`, and stop it at the end; call it in the main thread."""
    # Unix sockets lie in it, and their paths must be short: not pytest's own temporary folder.
    with tempfile.TemporaryDirectory(prefix="s3-") as folder:
        process, port = _start(Path(folder))
        try:
            yield S3Server(port, process.pid)
        finally:
            stop(process)


def _start(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    log = folder / "log"
    for _ in range(_STARTS):
        ports = _free_ports()
        with log.open("wb") as output:
            process = subprocess.Popen(
                _command(folder, ports),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
                    "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
                    # Unbounded, it keeps most of a gigabyte after a few large objects.
                    "GOMEMLIMIT": "256MiB",
                    "HOME": str(folder),
                    "PATH": os.environ.get("PATH", ""),
                    "TMPDIR": str(folder),
                },
            )
        if is_answering(process, ports["s3"], "/healthz", seconds=_READY_S, pause_s=0.05):
            return process, ports["s3"]
        stop(process)
    raise RuntimeError(f"the S3 server did not start {_STARTS} times; its log ends with:\n{log.read_text()[-2000:]}")


def _command(folder: Path, ports: dict[str, int]) -> list[str]:
    data = folder / "data"
    data.mkdir(exist_ok=True)
    beside = Path(sys.executable).with_name("weed")
    weed = str(beside) if beside.exists() else "weed"
    setpriv = shutil.which("setpriv")
    return [
        # Without it the server outlives tests that were killed.
        *([setpriv, "--pdeathsig", "KILL"] if setpriv else []),
        *(weed, "-logtostderr=true", "mini", f"-dir={data}", f"-bucket={BUCKET}"),
        *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false", "-webdav=false", "-admin.ui=false"),
        *(f"-s3.port={ports['s3']}", f"-s3.port.grpc={ports['s3.grpc']}", "-s3.port.iceberg=0", "-s3.port.lance=0"),
        *(f"-master.port={ports['master']}", f"-master.port.grpc={ports['master.grpc']}"),
        *(f"-volume.port={ports['volume']}", f"-volume.port.grpc={ports['volume.grpc']}"),
        *(f"-filer.port={ports['filer']}", f"-filer.port.grpc={ports['filer.grpc']}"),
        *(f"-admin.port={ports['admin']}", f"-admin.port.grpc={ports['admin'] + 10_000}"),
        *(f"-filer.localSocket={folder / 'f.sock'}", f"-s3.localSocket={folder / 's.sock'}"),
    ]


def _free_ports() -> dict[str, int]:
    """Return free ports below 20,000; the admin port's fellow, 10,000 above, is free as well."""
    roles = ("s3", "s3.grpc", "master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc", "admin")
    chance = random.SystemRandom()
    ports: dict[str, int] = {}
    while len(ports) < len(roles):
        port = chance.randrange(11_000, 20_000)
        if port not in ports.values() and _is_free(port) and _is_free(port + 10_000):
            ports[roles[len(ports)]] = port
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
