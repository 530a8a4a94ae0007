"""For tests, yours too: a store in memory, a store that dies at a chosen operation, and a death at every one of them.

An `act` is any callable that takes a store. One that survives a crash at every one of its operations on the store
survives a crash:

>>> def act(store):
...     store.create("data", b"one row")
...     store.create("log", b"data is part of it")
>>> def result(store):
...     return {info.name: store.get(info.name) for info in store.list("")}
>>> print(die_at_every_step(act, MemoryStore, result))
2 operations, 6 deaths before, in or after one

One that does not is told where:

>>> def hasty(store):
...     if store.create("log", b"data is part of it"):
...         store.create("data", b"one row")
>>> def resumed(store):
...     if store.get("log") is None:
...         hasty(store)
>>> die_at_every_step(resumed, MemoryStore, result)
Traceback (most recent call last):
AssertionError: died in operation 1: create log, and was run again: expected {'data': b'one row', 'log': b'data is \
part of it'}, found {'log': b'data is part of it'}

`by_crash` plays the death within this process, `by_exit` ends a child process from within, `by_sigkill` kills one from
outside. A single death is a `CrashingStore`:

>>> store = MemoryStore()
>>> dying = CrashingStore(store, at=1, moment="after")
>>> act(dying)
Traceback (most recent call last):
mixer.testing.crashing.Crash: died after operation 1: create log
>>> sorted(store.objects)  # the last operation was done, though its caller never knew
['data', 'log']
"""

from __future__ import annotations

from mixer.testing.children import by_exit, by_sigkill
from mixer.testing.crashing import MOMENTS, WRITES, Crash, CrashingStore, Moment, Operation
from mixer.testing.steps import Act, Choose, Death, DieBy, Steps, by_crash, count_operations, die_at_every_step, sample
from mixer.testing.stores import MemoryStore, OverwritingStore

__all__ = [
    "MOMENTS",
    "WRITES",
    "Act",
    "Choose",
    "Crash",
    "CrashingStore",
    "Death",
    "DieBy",
    "MemoryStore",
    "Moment",
    "Operation",
    "OverwritingStore",
    "Steps",
    "by_crash",
    "by_exit",
    "by_sigkill",
    "count_operations",
    "die_at_every_step",
    "sample",
]
