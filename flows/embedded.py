"""Prefect's own server beside a run, where no other is set up: out of Ctrl-C's reach, and gone when the run is."""

from __future__ import annotations

import atexit
import signal
import subprocess
import threading
from contextvars import copy_context

from prefect.client.orchestration import get_client
from prefect.server.api.server import SubprocessASGIServer

# Reads until its standard input ends, which it does when this process ends, in whatever way.
_WATCH = 'read -r _; kill "$0"'
_POLL_SECONDS = 0.05


def start_embedded_server() -> None:
    """Start the server, unless it is running.

    Prefect starts it by itself, but in this process's group, where a Ctrl-C would end it before the run has come to
    a shard's edge; and a run that is killed would leave it behind for ever.

    Raises:
        RuntimeError: It did not start.
    """
    if SubprocessASGIServer().running:
        return
    errors: list[Exception] = []

    def start() -> None:
        # The server inherits this thread's mask; a Ctrl-C here goes to the main thread as ever.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            get_client(sync_client=True)
        except Exception as error:  # noqa: BLE001 -- it is raised where it is waited for
            errors.append(error)

    thread = threading.Thread(target=copy_context().run, args=(start,), name="mixer-server", daemon=True)
    thread.start()
    watched: int | None = None
    while thread.is_alive():
        # It takes a while until it answers, and this process may be killed meanwhile.
        thread.join(_POLL_SECONDS)
        server = SubprocessASGIServer().server_process
        if server is not None and server.pid != watched:
            watched = server.pid
            _end_with_this_process(watched)
    if errors:
        raise errors[0]


def _end_with_this_process(process_id: int) -> None:
    """See to it that a process does not outlive this one, were it killed."""
    watcher = subprocess.Popen(  # noqa: S603 -- nothing in it comes from outside
        ["/bin/sh", "-c", _WATCH, str(process_id)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def dismiss() -> None:
        # Before Prefect stops the server: its number might become another process's.
        watcher.kill()
        watcher.communicate()

    atexit.register(dismiss)
