"""Deaths of real processes: a child works on a store, and ends at a chosen operation, from within or from outside."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import NoReturn

from mixer.storage.base import Store
from mixer.testing.crashing import CrashingStore
from mixer.testing.steps import Act, Death, DieBy

DEADLINE_S = 120.0
"""How long a child may take to come to its death."""
_EXIT_DEAD = 9
_EXIT_ALIVE = 99
_STANDS_THERE = "stands there"
_KILLED = -signal.SIGKILL

# Of one process that has loaded what children need (see multiprocessing.set_forkserver_preload), not of this one, whose
# threads a fork would not take along.
_PROCESSES = get_context("forkserver")


@dataclass(frozen=True, slots=True)
class _Order:
    """What a child is to do."""

    act: Act
    store: Store
    death: Death
    in_delay_s: float
    waits: bool
    """Whether to wait for its death, once it stands there, instead of ending itself."""


def by_exit(*, in_delay_s: float = 0.0) -> DieBy:
    """Return a way to die: a child process that ends itself at once (``os._exit``); nothing is cleaned up.

    `in_delay_s` is the most that an operation has been under way when the process dies in it; how much it is, is drawn
    by the operation's number.
    """
    return partial(_die_in_child, in_delay_s=in_delay_s, waits=False)


def by_sigkill(*, in_delay_s: float = 0.0) -> DieBy:
    """Return a way to die: a child process that says that it stands at the operation, and is then killed by SIGKILL.

    In the middle of an operation the child is killed while the operation goes on, so how far it comes is chance.
    `in_delay_s` as of `by_exit`.
    """
    return partial(_die_in_child, in_delay_s=in_delay_s, waits=True)


def _die_in_child(act: Act, store: Store, death: Death, *, in_delay_s: float, waits: bool) -> None:
    chance = random.Random(death.operation.number)  # noqa: S311 - repeatable on purpose
    order = _Order(act, store, death, chance.uniform(0.0, in_delay_s), waits)
    receiver, sender = _PROCESSES.Pipe(duplex=False)
    child = _PROCESSES.Process(target=_live, args=(dict(os.environ), sender, order), daemon=True)
    with receiver:
        with sender, _without_main_module(act):
            child.start()
        said = _hear(receiver)
        if said in {_STANDS_THERE, None}:
            # None: it hangs.
            child.kill()
        child.join()
    expected, wanted = (_KILLED, _STANDS_THERE) if waits else (_EXIT_DEAD, "")
    if (said, child.exitcode) != (wanted, expected):
        found = "hung" if said is None else f"ended with exit code {child.exitcode} and said: {said or 'nothing'}"
        raise AssertionError(f"expected a child process to die {death}; it {found}")


def _hear(receiver: Connection) -> str | None:
    """Return what a child says before it ends, if anything; None if it does neither for too long."""
    if not receiver.poll(DEADLINE_S):
        return None
    try:
        return str(receiver.recv())
    except EOFError:
        return ""


def _live(environment: dict[str, str], sender: Connection, order: _Order) -> NoReturn:
    os.environ.clear()
    os.environ.update(environment)
    crash: Callable[[], object] = partial(_wait_for_death, sender) if order.waits else partial(os._exit, _EXIT_DEAD)
    store = CrashingStore(
        order.store,
        at=order.death.operation.number,
        moment=order.death.moment,
        crash=crash,
        in_delay_s=order.in_delay_s,
    )
    try:
        order.act(store)
        sender.send(f"it is done, after {len(store.operations)} operations; it took another way than when counted")
    except BaseException:  # noqa: BLE001 -- a process ends here, and its parent reads why
        sender.send(traceback.format_exc())
    # At once: no clean-up of this module's making shall help the act.
    os._exit(_EXIT_ALIVE)


def _wait_for_death(sender: Connection) -> NoReturn:
    sender.send(_STANDS_THERE)
    while True:
        threading.Event().wait()


@contextmanager
def _without_main_module(act: Act) -> Iterator[None]:
    """Keep a child from importing the main module again, as multiprocessing has it do, unless the act is in it.

    It is often a test runner's, and slow; or a script that is not made to be imported.
    """
    inner = act
    while isinstance(inner, partial):
        inner = inner.func
    main = vars(sys.modules["__main__"])
    hidden = {} if getattr(inner, "__module__", None) == "__main__" else {"__file__": main.pop("__file__", None)}
    try:
        yield
    finally:
        main.update({name: value for name, value in hidden.items() if value is not None})
