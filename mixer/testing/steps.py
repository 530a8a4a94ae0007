"""A death at every operation of anything that works on a store, and a look at what becomes of it when it is run again.

Nothing here knows what is done to the store. What survives it has shown that it may die at any moment between two of
its operations, in the middle of each, and before it learns that one was done.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mixer.storage.base import Store
from mixer.testing.crashing import MOMENTS, Crash, CrashingStore, Moment, Operation

T = TypeVar("T")
_SHOWN_MAX = 2000

Act = Callable[[Store], object]
"""What is done to a store, from the beginning or from wherever it is."""


@dataclass(frozen=True, slots=True)
class Death:
    """An operation to die at, and the moment of it."""

    operation: Operation
    moment: Moment

    def __str__(self) -> str:
        return f"{self.moment} operation {self.operation}"


@dataclass(frozen=True, slots=True)
class Steps:
    """What `die_at_every_step` did."""

    operations: tuple[Operation, ...]
    """Those of the act, when nothing interrupts it."""
    deaths: tuple[Death, ...]
    """Those that were died."""

    def __str__(self) -> str:
        return f"{len(self.operations)} operations, {len(self.deaths)} deaths before, in or after one"


DieBy = Callable[[Act, Store, Death], None]
"""Do the act to the store until it dies the death; an `AssertionError` if it does not come to that."""
Choose = Callable[[Sequence[Death]], Iterable[Death]]
"""Which of all possible deaths to die."""


def count_operations(act: Act, store: Store) -> list[Operation]:
    """Do `act` to `store`; return its operations in their order.

    >>> from mixer.testing import MemoryStore
    >>> [str(operation) for operation in count_operations(lambda store: store.put("a", b"1"), MemoryStore())]
    ['0: put a']
    """
    counting = CrashingStore(store)
    act(counting)
    return list(counting.operations)


def by_crash(act: Act, store: Store, death: Death) -> None:
    """Die within this process, by an exception that no handler swallows (`Crash`): quick, and good for most."""
    try:
        act(CrashingStore(store, at=death.operation.number, moment=death.moment))
    except Crash:
        return
    raise AssertionError(f"did not die {death}: it took another way than when its operations were counted")


def sample(count: int, *, verbs: Collection[str] | None = None, seed: int = 0) -> Choose:
    """Return a choice of `count` of the deaths at operations of `verbs` (None: at any): always the same ones.

    The moments get equal shares. If there are no more than `count`, all of them are chosen.

    >>> deaths = [Death(Operation(n, "put", "a"), moment) for n in range(9) for moment in MOMENTS]
    >>> chosen = list(sample(6)(deaths))
    >>> sorted(death.moment for death in chosen)
    ['after', 'after', 'before', 'before', 'in', 'in']
    """

    def choose(deaths: Sequence[Death]) -> list[Death]:
        chance = random.Random(seed)  # noqa: S311 - repeatable on purpose
        possible = [death for death in deaths if verbs is None or death.operation.verb in verbs]
        by_moment = [[death for death in possible if death.moment == moment] for moment in MOMENTS]
        for some in by_moment:
            chance.shuffle(some)
        # One of each moment by turns.
        turns = [death for same in zip(*by_moment, strict=True) for death in same]
        return sorted(turns[:count], key=lambda death: (death.operation.number, MOMENTS.index(death.moment)))

    return choose


def die_at_every_step(  # noqa: PLR0913 - each is one independent choice of what is tried and how
    act: Act,
    new_store: Callable[[], Store],
    result: Callable[[Store], T],
    *,
    die: DieBy = by_crash,
    choose: Choose = list,
    left_behind: Callable[[Store], object] | None = None,
    resume: Act | None = None,
) -> Steps:
    """Do `act` once unbroken; then, for each death, let it die in a new place, do it again there, and compare.

    Args:
        act: What is done. It must take the same operations in the same order each time it begins in a new place, and
            go on from wherever an earlier one died. For deaths in child processes it must be picklable, as the
            stores must be: a function of a module, or a ``functools.partial`` of one.
        new_store: Gives a place where `act` begins: an empty one, or one in which something was left on purpose.
        result: What counts of a place where `act` has ended. What differs from time to time must be left out of it,
            and it may raise errors of its own.
        die: How to die: `by_crash`, ``by_exit()`` or ``by_sigkill()``.
        choose: Which of all deaths to die, such as ``sample(12)``; all, unless it is given.
        left_behind: Looks at a place after a death, before anything is done again; raises if it is not as it must be.
        resume: What is done after a death, if it is something else than `act`.

    Returns:
        The operations of `act`, and which deaths were died.

    Raises:
        AssertionError: A place has become something else than without the death; or `act` went another way.

    See `mixer.testing` for an example.
    """
    unbroken = new_store()
    operations = count_operations(act, unbroken)
    expected = result(unbroken)
    deaths = tuple(choose([Death(operation, moment) for operation in operations for moment in MOMENTS]))
    for death in deaths:
        store = new_store()
        die(act, store, death)
        if left_behind is not None:
            left_behind(store)
        (resume or act)(store)
        found = result(store)
        if found != expected:
            raise AssertionError(f"died {death}, and was run again: expected {_shown(expected)}, found {_shown(found)}")
    return Steps(tuple(operations), deaths)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."
