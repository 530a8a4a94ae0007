"""A TCP proxy that notes the requests that pass, and resets connections when their answers get long."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from urllib.parse import urlsplit

_CHUNK_BYTES = 16 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class TcpProxy:
    """One server's proxy on a loopback port."""

    def __init__(self, upstream_url: str, cuts: tuple[int, ...]) -> None:
        """Pass on to `upstream_url`; reset the n-th connection after ``cuts[n]`` bytes of answers, later ones never."""
        parts = urlsplit(upstream_url)
        self._upstream = (parts.hostname or "", parts.port or 80)
        self._cuts = chain(cuts, repeat(None))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.requests: list[str] = []
        """First line of each request that passed."""
        self.resets = 0
        """Connections that were reset."""

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def serve(self) -> None:
        """Accept until closed."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._upstream)
            self._open += [client, server]
            cut = next(self._cuts)
            threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
            threading.Thread(target=self._answers, args=(server, client, cut), daemon=True).start()

    def close(self) -> None:
        """Stop, and close every connection."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._open:
            _close(each)

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(_CHUNK_BYTES):
                if data.startswith((b"GET ", b"HEAD ")):
                    self.requests.append(data.split(b"\r\n", 1)[0].decode())
                server.sendall(data)
        _close(server)

    def _answers(self, server: socket.socket, client: socket.socket, cut: int | None) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := server.recv(_CHUNK_BYTES):
                if cut is not None and passed + len(data) > cut:
                    client.sendall(data[: cut - passed])
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                    self.resets += 1
                    break
                client.sendall(data)
                passed += len(data)
        _close(client)
        _close(server)


def _close(each: socket.socket) -> None:
    # A plain close is put off while another thread waits for the socket.
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RD)
    with contextlib.suppress(OSError):
        each.close()


@contextmanager
def running_proxy(upstream_url: str, cuts: tuple[int, ...] = ()) -> Iterator[TcpProxy]:
    """Run a proxy in a thread of its own."""
    proxy = TcpProxy(upstream_url, cuts)
    thread = threading.Thread(target=proxy.serve, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()
