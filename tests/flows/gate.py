"""A TCP gate before a server: it lets connections through, refuses them, or lets them hang."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_CHUNK_BYTES = 64 * 1024


class Gate:
    """A loopback port that leads to another one while it is open."""

    def __init__(self, port: int) -> None:
        """Lead to `port`; it is shut at first."""
        self._target = ("127.0.0.1", port)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._listener: socket.socket | None = None
        self._sockets: list[socket.socket] = []
        self._unanswered: list[socket.socket] = []

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    def open(self) -> None:
        """Let connections through."""
        self._listen(answers=True)

    def hang(self) -> None:
        """Break all connections; accept new ones and never answer."""
        self.shut()
        self._listen(answers=False)

    def shut(self) -> None:
        """Break all connections and refuse new ones."""
        listener, self._listener = self._listener, None
        if listener is not None:
            # A plain close is put off while another thread waits for the socket.
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for each in self._unanswered:
            each.close()
        self._unanswered = []

    def _listen(self, *, answers: bool) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener, answers), daemon=True).start()

    def _accept(self, listener: socket.socket, answers: bool) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if not answers:
                self._unanswered.append(client)
            else:
                self._sockets.append(client)
                server = socket.create_connection(self._target)
                self._sockets.append(server)
                threading.Thread(target=_forward, args=(client, server), daemon=True).start()


def _forward(client: socket.socket, server: socket.socket) -> None:
    with client, server, contextlib.suppress(OSError):
        while True:
            ready, _, _ = select.select([client, server], [], [])
            for each in ready:
                data = each.recv(_CHUNK_BYTES)
                if not data:
                    return
                (server if each is client else client).sendall(data)


@contextmanager
def gate_to(port: int) -> Iterator[Gate]:
    """Give a gate before `port`, shut at first and at the end."""
    gate = Gate(port)
    try:
        yield gate
    finally:
        gate.shut()
