"""What the fakes of Google's and Azure's object stores share: HTTP on a loopback port, a record, and harm on request.

They are fakes, not emulators: they speak as much of the services' interfaces as mixer's clients use, with the
services' own preconditions, checksums and errors, as the services' documentation has them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

_SILENCE_S = 1.0


class Fault(StrEnum):
    """What may become of a request."""

    BUSY = "answered with 503, not done"
    FORBIDDEN = "answered with 403, not done"
    RESET = "connection closed, not done"
    LOST = "done, connection closed without a reply"
    LATE = "done, answered with 500"
    CUT = "done, the reply is cut in half"
    HURT = "one bit of the request's body is flipped"
    BENT = "done, one bit of the reply's body is flipped"
    SILENT = "done, no reply for a second"


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in."""

    method: str
    path: tuple[str, ...]
    """The parts of the path between its slashes, each decoded after it was split off."""
    query: dict[str, str]
    headers: dict[str, str]
    """By name in small letters."""
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer to a request."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stored:
    """An object that is there."""

    data: bytes
    version: int


class FakeService:
    """Objects by name below buckets, and what was asked of them.

    Attributes:
        requests: What came in since the last `reset`.
        buckets: The objects of each bucket.
        page: At most so many entries are in one page of a listing.
    """

    def __init__(self, bucket: str) -> None:
        self.lock = threading.Lock()
        self.requests: list[Request] = []
        self.buckets: dict[str, dict[str, Stored]] = {bucket: {}}
        self.page = 4
        self.port = 0
        self.woken = threading.Event()
        self._versions = 1_700_000_000_000_000
        self._faults: Iterator[Fault | None] = iter(())
        self._methods: frozenset[str] = frozenset()

    def reset(self, *faults: Fault | None, methods: str = "GET HEAD POST PUT DELETE") -> None:
        """Forget the record; each of the next requests of these methods suffers one of `faults` (None: none)."""
        with self.lock:
            self.requests.clear()
            self._faults = iter(faults)
            self._methods = frozenset(methods.split())

    def methods(self) -> list[str]:
        """Return the methods of the record."""
        with self.lock:
            return [request.method for request in self.requests]

    def received(self, request: Request) -> Fault | None:
        """Record a request and return what it is to suffer."""
        with self.lock:
            self.requests.append(request)
            return next(self._faults, None) if request.method in self._methods else None

    def next_version(self) -> int:
        """Return a version that none has had; the caller holds the lock."""
        self._versions += 1
        return self._versions

    def answer(self, request: Request) -> Reply:
        """Do what a request asks for."""
        raise NotImplementedError

    def refusal(self, status: int) -> Reply:
        """Return the service's words for a status that has nothing to do with the request."""
        raise NotImplementedError


S = TypeVar("S", bound=FakeService)


@contextmanager
def running(service: S) -> Iterator[S]:
    """Serve on a loopback port of its own until the end."""

    class Handler(_Handler):
        pass

    Handler.service = service
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        service.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield service
        finally:
            service.woken.set()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    service: FakeService
    protocol_version = "HTTP/1.1"
    # Head and body of a reply leave together, or each reply waits for an acknowledgement.
    wbufsize = 1 << 16
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) != length:
            # The client died on the way: services drop what did not come whole.
            self.close_connection = True
            return
        target, _, query = self.path.partition("?")
        request = Request(
            method=self.command,
            path=tuple(unquote(part) for part in target.split("/")[1:]),
            query=dict(parse_qsl(query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
        )
        self._suffer(request, self.service.received(request))

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - the names that the handler asks for

    def _suffer(self, request: Request, fault: Fault | None) -> None:
        early = {Fault.BUSY: 503, Fault.FORBIDDEN: 403}
        if fault in early:
            self._reply(self.service.refusal(early[fault]))
            return
        if fault is Fault.RESET:
            self.close_connection = True
            return
        if fault is Fault.HURT:
            request = _hurt(request)
        reply = self.service.answer(request)
        if fault is Fault.SILENT:
            self.service.woken.wait(_SILENCE_S)
        if fault is Fault.BENT:
            reply = replace(reply, body=_bent(reply.body, len(reply.body) // 2))
        if fault is Fault.LOST:
            self.close_connection = True
        elif fault is Fault.LATE:
            self._reply(self.service.refusal(500))
        else:
            self._reply(reply, cut=fault is Fault.CUT)

    def _reply(self, reply: Reply, *, cut: bool = False) -> None:
        self.send_response(reply.status)
        headers = {"Content-Length": str(len(reply.body)), **reply.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body[: len(reply.body) // 2] if cut else reply.body)
        if cut:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        """Say nothing."""


def _hurt(request: Request) -> Request:
    # In the last quarter: behind what is said of the object, and before the closing words of a multipart body.
    return replace(request, body=_bent(request.body, len(request.body) * 3 // 4))


def _bent(body: bytes, place: int) -> bytes:
    return body[:place] + bytes((body[place] ^ 1,)) + body[place + 1 :] if body else body


def sliced(data: bytes, wanted: str | None) -> tuple[int, bytes, str | None] | None:
    """Return status, bytes and `Content-Range` for a `Range` header; None if it cannot be satisfied."""
    if wanted is None:
        return 200, data, None
    first, _, last = wanted.removeprefix("bytes=").partition("-")
    start, stop = int(first), min(int(last) + 1 if last else len(data), len(data))
    if start >= len(data):
        return None
    return 206, data[start:stop], f"bytes {start}-{stop - 1}/{len(data)}"


def grouped(names: list[str], prefix: str, delimiter: str) -> list[tuple[str, bool]]:
    """Return names, and once each what begins with `prefix` up to the next delimiter (True), in byte order."""
    found: dict[str, bool] = {}
    for name in names:
        head, cut, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
        found[prefix + head + cut if cut else name] = bool(cut)
    return sorted(found.items(), key=lambda pair: pair[0].encode())
