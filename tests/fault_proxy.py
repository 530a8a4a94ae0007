"""A proxy before a real S3 server that hurts requests and replies on purpose.

It forwards what is signed byte by byte, so that signatures hold, and parses no more of HTTP than where messages
end. What is hurt, and how, is asked of a callable once a request; `seeded` draws it, `scripted` lists it.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum


class Fault(Enum):
    """What may happen to a request, or to its reply."""

    STATUS_409 = "answered 409 ConditionalRequestConflict; the server never saw it"
    STATUS_429 = "answered 429 TooManyRequests; the server never saw it"
    STATUS_500 = "answered 500 InternalError; the server never saw it"
    STATUS_503 = "answered 503 SlowDown; the server never saw it"
    STATUS_500_AFTER = "answered 500 InternalError, though the server did it"
    RESET_BEFORE = "connection reset; the server never saw it"
    RESET_AFTER = "connection reset, though the server did it: a lost reply"
    REQUEST_CUT = "the server saw half of it, then the connection closed"
    REQUEST_FLIPPED = "one bit of the request's body is wrong"
    REPLY_CUT = "the reply's body ends half-way"
    REPLY_FLIPPED = "one bit of the reply's body is wrong"
    HANG_BEFORE = "no answer ever; the server never saw it"
    HANG_AFTER = "no answer ever, though the server did it"
    DELAYED = "everything is right, but late"
    REORDERED = "held back until a later request is through, or for a while"


STATUSES = {
    Fault.STATUS_409: (409, "ConditionalRequestConflict"),
    Fault.STATUS_429: (429, "TooManyRequests"),
    Fault.STATUS_500: (500, "InternalError"),
    Fault.STATUS_503: (503, "SlowDown"),
    Fault.STATUS_500_AFTER: (500, "InternalError"),
}
LOSING_REPLIES = frozenset({Fault.STATUS_500_AFTER, Fault.RESET_AFTER, Fault.HANG_AFTER, Fault.REPLY_CUT})
"""The server may have done what it was asked, and the client is not told."""
DELAY_S = 0.05
HOLD_S = 0.6
"""How long a request is held back if no later one comes; a client that waits less sends the later one itself."""
_STATUS_DONE = range(200, 300)
_RANDOM_NAME = re.compile("[0-9a-f]{32}")
_LINE_BYTES_MAX = 2**20


@dataclass(frozen=True, slots=True)
class Request:
    """A request as the proxy saw it come in."""

    number: int
    method: str
    target: str
    """Path and query."""
    headers: dict[str, str]
    """Names in small letters."""
    body_bytes: int


Chooser = Callable[[Request], Fault | None]


def no_faults(request: Request) -> Fault | None:
    return None


def what(request: Request) -> str:
    """Return what is asked for; names that are drawn anew each time (32 hexadecimal digits) count as one."""
    return f"{request.method} {_RANDOM_NAME.sub('*', request.target)} {request.headers.get('range', '')}"


def seeded(seed: int, rate: float, faults: Collection[Fault] = tuple(Fault)) -> Chooser:
    """Hurt requests at `rate` (0 to 1), by faults drawn evenly.

    The draw depends on what is asked and on how often it was asked before, not on when: threads that race for their
    places change nothing.
    """
    kinds = sorted(faults, key=lambda fault: fault.name)
    asked: Counter[str] = Counter()

    def choose(request: Request) -> Fault | None:
        asked[what(request)] += 1
        chance = random.Random(f"{seed}/{what(request)}/{asked[what(request)]}")  # noqa: S311 - repeatable on purpose
        return chance.choice(kinds) if chance.random() < rate else None

    return choose


def scripted(faults: Sequence[Fault | None], methods: Collection[str] = ()) -> Chooser:
    """Hurt the first requests as listed (those of `methods` only, if any are named), and none after them."""
    left = list(faults)

    def choose(request: Request) -> Fault | None:
        return left.pop(0) if left and (not methods or request.method in methods) else None

    return choose


@dataclass(slots=True)
class _Message:
    head: bytes
    headers: dict[str, str]
    body: bytes

    @property
    def raw(self) -> bytes:
        return self.head + self.body


@dataclass(slots=True)
class FaultProxy:
    """A proxy that is running; `choose` may be set anew at any time."""

    upstream_port: int
    port: int = 0
    choose: Chooser = no_faults
    requests: list[Request] = field(default_factory=list)
    faults: list[tuple[Request, Fault]] = field(default_factory=list)
    answered: list[tuple[Request, int]] = field(default_factory=list)
    """What the server itself answered, in its order: the HTTP status, whether or not the client was told."""
    hold_s: float = HOLD_S
    salt: int = 0
    overtaken: int = 0
    """Requests that were held back and let a later one through."""
    _open: dict[asyncio.Task[object], asyncio.StreamWriter] = field(default_factory=dict)
    _arrivals: int = 0
    _newest_passed: int = 0
    _passing: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def reset(self, choose: Chooser = no_faults, *, salt: int = 0) -> None:
        """Forget what was seen, count requests from 0 again, and hurt them by `choose` from now on.

        With another `salt` other bits are flipped.
        """
        self.requests.clear()
        self.faults.clear()
        self.answered.clear()
        self.overtaken = 0
        self.choose = choose
        self.salt = salt

    def lost_creates(self) -> list[Request]:
        """Return the creations that the server did, and whose reply was lost: the next try finds the name taken."""
        lost = [request for request, fault in self.faults if fault in LOSING_REPLIES and request.method == "PUT"]
        return [
            request
            for request, status in list(self.answered)
            if status in _STATUS_DONE and "if-none-match" in request.headers and any(request is other for other in lost)
        ]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        try:
            while await self._serve_one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()
            del self._open[task]

    async def close(self) -> None:
        """Drop every connection, and wait until nothing is under way."""
        for writer in self._open.values():
            writer.transport.abort()
        await asyncio.gather(*self._open)

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Carry one request and its reply; return whether the connection goes on."""
        message = await _read(reader, writer)
        if message is None:
            return False
        method, target, _ = message.head.decode("latin-1").split(" ", 2)
        # Not the request's number, which begins anew with every reset.
        self._arrivals += 1
        arrival = self._arrivals
        request = Request(len(self.requests), method, target, message.headers, len(message.body))
        self.requests.append(request)
        fault = self.choose(request)
        if fault is not None:
            self.faults.append((request, fault))
        if fault in {Fault.RESET_BEFORE, Fault.HANG_BEFORE, Fault.REQUEST_CUT}:
            return await self._never_done(message, fault, reader, writer)
        if fault in STATUSES and fault is not Fault.STATUS_500_AFTER:
            await _send(writer, _answer(fault, method))
            return True
        if fault is Fault.DELAYED:
            await asyncio.sleep(DELAY_S)
        if fault is Fault.REORDERED:
            await self._wait_for_later(arrival)
        if fault is Fault.REQUEST_FLIPPED:
            message.body = self._flipped(message.body, request)
        reply = await self._forward(message, method)
        self.answered.append((request, int(reply.head.split(b" ", 2)[1])))
        async with self._passing:
            self._newest_passed = max(self._newest_passed, arrival)
            self._passing.notify_all()
        return await self._reply(reply, fault, request, reader, writer)

    async def _never_done(
        self, message: _Message, fault: Fault | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if fault is Fault.REQUEST_CUT:
            _, upstream = await asyncio.open_connection("127.0.0.1", self.upstream_port)
            # Without a body half the head is a request as much cut as one can be.
            keep = len(message.head) + len(message.body) // 2 if message.body else len(message.head) // 2
            await _send(upstream, message.raw[:keep])
            upstream.close()
        if fault is Fault.HANG_BEFORE:
            await reader.read(1)
        _reset(writer)
        return False

    async def _reply(
        self,
        reply: _Message,
        fault: Fault | None,
        request: Request,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        if fault is Fault.STATUS_500_AFTER:
            await _send(writer, _answer(fault, request.method))
            return True
        if fault is Fault.HANG_AFTER:
            await reader.read(1)
        if fault in {Fault.HANG_AFTER, Fault.RESET_AFTER}:
            _reset(writer)
            return False
        if fault is Fault.REPLY_CUT:
            await _send(writer, reply.raw[: len(reply.head) + len(reply.body) // 2] if reply.body else reply.head[:20])
            return False
        if fault is Fault.REPLY_FLIPPED:
            reply.body = self._flipped(reply.body, request)
        await _send(writer, reply.raw)
        return reply.headers.get("connection", "").lower() != "close"

    def _flipped(self, body: bytes, request: Request) -> bytes:
        """Return `body` with another bit, if it has any."""
        if not body:
            return body
        chance = random.Random(f"{self.salt}/{what(request)}/{request.number}")  # noqa: S311 - repeatable on purpose
        at = chance.randrange(len(body))
        return body[:at] + bytes([body[at] ^ 1 << chance.randrange(8)]) + body[at + 1 :]

    async def _forward(self, message: _Message, method: str) -> _Message:
        upstream_reader, upstream = await asyncio.open_connection(
            "127.0.0.1", self.upstream_port, limit=_LINE_BYTES_MAX
        )
        try:
            await _send(upstream, message.raw)
            reply = None
            # 1xx replies are between the server and us: the client's body is here already.
            while reply is None or reply.head.split(b" ", 2)[1].startswith(b"1"):
                reply = await _read(upstream_reader, None, bodiless=method == "HEAD")
                if reply is None:
                    raise ConnectionResetError
            return reply
        finally:
            upstream.close()

    async def _wait_for_later(self, arrival: int) -> None:
        try:
            async with asyncio.timeout(self.hold_s), self._passing:
                await self._passing.wait_for(lambda: self._newest_passed > arrival)
                self.overtaken += 1
        except TimeoutError:
            pass


@contextmanager
def running_fault_proxy(upstream_port: int) -> Iterator[FaultProxy]:
    """Run a proxy before the server at `upstream_port` in a thread of its own."""
    proxy = FaultProxy(upstream_port)
    started, stop = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=_LINE_BYTES_MAX)
        proxy.port = server.sockets[0].getsockname()[1]
        started.set()
        await stop.wait()
        server.close()
        await proxy.close()

    thread = threading.Thread(target=asyncio.run, args=(run(),), name="fault-proxy", daemon=True)
    thread.start()
    started.wait()
    try:
        yield proxy
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join()


async def _read(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None, *, bodiless: bool = False
) -> _Message | None:
    """Read one message; None if the other side closed. A client that waits for leave to go on gets it by `writer`."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    if writer is not None and "100-continue" in headers.get("expect", "").lower():
        await _send(writer, b"HTTP/1.1 100 Continue\r\n\r\n")
    if bodiless:
        return _Message(head, headers, b"")
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return _Message(head, headers, await _read_chunks(reader))
    return _Message(head, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        parts += [line, await reader.readexactly(size + 2)]
        if size == 0:
            return b"".join(parts)


def _answer(fault: Fault, method: str) -> bytes:
    status, code = STATUSES[fault]
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>on purpose</Message></Error>".encode()
    head = f"HTTP/1.1 {status} {code}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    return head if method == "HEAD" else head + body


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close at once with a reset, not with an orderly end."""
    raw = writer.get_extra_info("socket")
    if raw is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
