"""What a store does of what a run needs, tried on the store itself.

All that is written lies below ``.mixer/probe/`` and is removed again. No run looks there, so it harms none, whether one
is at work, stopped or finished.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from mixer.checkup.base import Check, Checks
from mixer.errors import OutputError, StoreError
from mixer.storage import RISK, Store
from mixer.storage.urls import PROBE_FOLDER, draw_name

RACES = 5
"""How often two writers at once try for one name."""
_CHANGE = f"without it {RISK}; choose another store, or see --accept-unsafe-store"
_BODY = bytes(range(200))
_RANGES = ((0, 10), (37, 90), (190, 1000), (150, 150))

_checks = Checks("output")


def store_checks(store: Store) -> Iterator[Check]:
    """Yield a check for each promise of a store that can be tried; stops at the first that is refused for good."""
    trials: list[tuple[str, Callable[[Store], Check]]] = [
        ("create", _create_twice),
        ("create at once", _create_at_once),
        ("replace", _replace),
        ("read and list", _read_and_list),
        ("delete", _delete),
    ]
    for name, trial in trials:
        try:
            yield trial(store)
        except (StoreError, OutputError) as error:
            yield _checks.failed(name, str(error))
            return


@contextmanager
def _probe(store: Store) -> Iterator[str]:
    """Yield a name that nobody has, and remove what was put there."""
    name = f"{PROBE_FOLDER}{draw_name()}"
    try:
        yield name
    finally:
        store.delete(name)


def _create_twice(store: Store) -> Check:
    with _probe(store) as name:
        first, second = store.create(name, b"first"), store.create(name, b"second")
        found = store.get(name)
    if (first, second, found) == (True, False, b"first"):
        return _checks.ok("create", "a name is created once only: a second create of it was refused")
    what = "a second create of one name went through" if second else "what was created is not there as it was"
    return _checks.failed("create", what, f"(unless `mixer gc --delete` was at work here just now) {_CHANGE}")


def _create_at_once(store: Store) -> Check:
    for number in range(1, RACES + 1):
        with _probe(store) as name, ThreadPoolExecutor(2, thread_name_prefix="mixer-doctor") as writers:
            start = threading.Barrier(2)
            won = list(writers.map(partial(_race, store, name, start), (b"one", b"two")))
            found = store.get(name)
        winner = {(True, False): b"one", (False, True): b"two"}.get((won[0], won[1]))
        if winner is None or found != winner:
            what = f"of two creates of one name at once {sum(won)} went through, in race {number}"
            return _checks.failed("create at once", what, _CHANGE)
    found_all = f"of two creates of one name at once one was refused, {RACES} times; what is seldom wrong may slip by"
    return _checks.ok("create at once", found_all)


def _race(store: Store, name: str, start: threading.Barrier, data: bytes) -> bool:
    start.wait()
    return store.create(name, data)


def _replace(store: Store) -> Check:
    with _probe(store) as name:
        store.put(name, b"first")
        info = store.stat(name)
        version = info.version if info else ""
        second, third = store.replace(name, b"second", version), store.replace(name, b"third", version)
        found = store.get(name)
    if (second, third, found) == (True, False, b"second"):
        return _checks.ok("replace", "an object is replaced in the version that was seen only")
    what = "an object that had changed was replaced" if third else "an object was not replaced in the version seen"
    return _checks.warning("replace", what, f"needed only where a leftover shard has other bytes; there {RISK}")


def _read_and_list(store: Store) -> Check:
    with _probe(store) as name:
        store.put(name, _BODY)
        wrong = [
            *(["its bytes differ"] if store.get(name) != _BODY else []),
            *(
                f"bytes {start} to {stop} differ"
                for start, stop in _RANGES
                if store.get_range(name, start, stop) != _BODY[start:stop]
            ),
        ]
        seen = store.stat(name)
        if seen is None or seen.bytes != len(_BODY):
            wrong.append(f"a look finds {seen.bytes if seen else 'no'} bytes")
        if seen not in store.list(PROBE_FOLDER):
            wrong.append("a listing does not show it as it is")
    if not wrong:
        return _checks.ok("read and list", "what was just written is read, in parts too, and listed")
    what = f"of an object of {len(_BODY)} bytes that was just written: {'; '.join(wrong)}"
    return _checks.failed("read and list", what, "choose another store, or look for a cache on the way to it")


def _delete(store: Store) -> Check:
    with _probe(store) as name:
        store.put(name, b"1")
        store.delete(name)
        left = store.stat(name) is not None or any(info.name == name for info in store.list(PROBE_FOLDER))
    if left:
        return _checks.failed(
            "delete", "an object that was deleted is still there", f"allow deleting below {PROBE_FOLDER}"
        )
    return _checks.ok("delete", "what is deleted is gone")
