"""DataBatcher: the rule applied item by item, over any registry of iterators.

This is the reference that the engine's arrays are held to, and useful by itself wherever items are Python
objects. A batch is all or nothing: whatever fails while one is gathered, the batcher stays as it was, and the
items that were already pulled wait for the next call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from mixer.core.allocation import Allocation, allocate
from mixer.core.plan import State
from mixer.errors import DatasetError, ExhaustedError

Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)


class Registry(Protocol[Item_co]):
    """Named datasets that can be opened anywhere."""

    def get_iterator(self, name: str, offset: int = 0) -> Iterator[Item_co]:
        """Return an iterator over dataset `name` from its zero-based item `offset`; no other one moves."""
        ...


class DataBatcher(Generic[Item]):
    """Batches of exact integer proportions, resumable from a small state.

    >>> class Letters:
    ...     def get_iterator(self, name, offset=0):
    ...         return iter([f"{name}{number}" for number in range(offset, 100)])
    >>> batcher = DataBatcher(Letters(), {"a": 3, "b": 2, "c": 1}, batch_size=4)
    >>> batcher.next_batch(), batcher.next_batch()
    (['a0', 'a1', 'b0', 'c0'], ['a2', 'a3', 'b1', 'b2'])
    >>> batcher.state_dict()
    {'offsets': {'a': 4, 'b': 3, 'c': 1}, 'remainder_carry': {'a': 0, 'b': -2, 'c': 2}}
    """

    def __init__(self, registry: Registry[Item], weights: Mapping[str, int], batch_size: int) -> None:
        """Batch `batch_size` items of `registry`'s datasets in the proportions of `weights`.

        Args:
            registry: Where the items come from.
            weights: A positive integer for each dataset. Its order decides ties and the order inside a batch.
            batch_size: Items a batch, at least 1.

        Raises:
            ValueError: There are no weights, or a weight or the batch size is not a positive integer.
        """
        for name, weight in weights.items():
            if type(weight) is not int or weight < 1:
                raise ValueError(f"weights[{name!r}]: expected a positive integer, found {weight!r}")
        self._allocation = Allocation(tuple(weights.values()), batch_size)
        self._names = tuple(weights)
        self._registry = registry
        self._carries = [0] * len(self._names)
        total = self._allocation.total
        shares = [divmod(batch_size * weight, total) for weight in self._allocation.weights]
        self._base = tuple(whole for whole, _ in shares)
        self._remainders = tuple(rest for _, rest in shares)
        self._offsets = dict.fromkeys(self._names, 0)
        self._iterators: dict[str, Iterator[Item]] = {}
        # Items that were pulled for a batch which then failed; they are the next ones to be emitted.
        self._pulled: dict[str, deque[Item]] = {name: deque() for name in self._names}

    def next_batch(self) -> list[Item]:
        """Return the next `batch_size` items, grouped by dataset.

        Raises:
            ExhaustedError: A dataset has no further item.
            DatasetError: The registry, or one of its iterators, raised; the cause is chained.
        """
        carries = list(self._carries)
        counts = allocate(carries, self._remainders, self._base, self._allocation.total)
        for name, count in zip(self._names, counts, strict=True):
            self._pull(name, count)
        batch: list[Item] = []
        for name, count in zip(self._names, counts, strict=True):
            pulled = self._pulled[name]
            batch += [pulled.popleft() for _ in range(count)]
            self._offsets[name] += count
        self._carries = carries
        return batch

    def _pull(self, name: str, count: int) -> None:
        """Pull items of `name` until `count` wait to be emitted."""
        pulled = self._pulled[name]
        while len(pulled) < count:
            offset = self._offsets[name] + len(pulled)
            # Taken out while it works: an iterator that raised, by whatever, is finished and never asked again.
            iterator = self._iterators.pop(name, None)
            try:
                if iterator is None:
                    iterator = iter(self._registry.get_iterator(name, offset=offset))
                item = next(iterator)
            except StopIteration as end:
                raise ExhaustedError(
                    f"dataset {name!r} ended at offset {offset}, and this batch takes {count} items from offset "
                    f"{self._offsets[name]}; add items to it, or stop here: the state before this batch is kept"
                ) from end
            except Exception as error:
                raise DatasetError(
                    f"dataset {name!r} failed at offset {offset}: {type(error).__name__}: {error}"
                ) from error
            self._iterators[name] = iterator
            pulled.append(item)

    def state_dict(self) -> State:
        """Return what `load_state_dict` needs to go on from here: an independent copy, ready for JSON."""
        return {
            "offsets": dict(self._offsets),
            "remainder_carry": dict(zip(self._names, self._carries, strict=True)),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`; each dataset is opened at its offset when it is next needed.

        Raises:
            ValueError: `state` is not just what `state_dict` of a batcher over the same datasets returns. Nothing
                has changed then.
        """
        keys = set(_mapping(state, "state"))
        if keys != {"offsets", "remainder_carry"}:
            raise ValueError(
                f"state: expected the keys 'offsets' and 'remainder_carry' and no other, found "
                f"{sorted(map(repr, keys))}"
            )
        offsets = self._checked(state["offsets"], "offsets")
        carries = self._checked(state["remainder_carry"], "remainder_carry")
        if negative := {name: offset for name, offset in offsets.items() if offset < 0}:
            raise ValueError(f"state['offsets']: expected integers from 0, found {negative}")
        self._offsets = offsets
        self._carries = [carries[name] for name in self._names]
        self._iterators = {}
        self._pulled = {name: deque() for name in self._names}

    def _checked(self, values: Any, where: str) -> dict[str, int]:
        """Return a copy of `values`, in this batcher's order, if it maps each dataset to an integer."""
        _mapping(values, f"state[{where!r}]")
        missing, unknown = _difference(self._names, values)
        if missing or unknown:
            raise ValueError(f"state[{where!r}]: datasets missing: {missing}; unknown: {unknown}")
        for name in self._names:
            if type(values[name]) is not int:
                raise ValueError(f"state[{where!r}][{name!r}]: expected an integer, found {values[name]!r}")
        return {name: values[name] for name in self._names}


def _mapping(value: Any, where: str) -> Mapping[Any, Any]:
    """Return `value` if it is a mapping; whatever is wrong with a checkpoint is a `ValueError`."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}: expected a mapping, found {type(value).__name__}")  # noqa: TRY004 -- see above
    return value


def _difference(names: tuple[str, ...], values: Mapping[Hashable, object]) -> tuple[list[str], list[Hashable]]:
    """Return which of `names` are not in `values`, and which of `values` are not in `names`."""
    known = set(names)
    return [name for name in names if name not in values], [name for name in values if name not in known]
