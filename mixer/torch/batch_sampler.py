"""Batches of one length each for a `DataLoader`: nothing is padded, ranks stay in step, and any batch can be the next.

A batch is a slice of an epoch's order, which depends on the lengths, the options and ``base_seed + epoch`` alone
(`mixer.core.lengths`). So the whole state is an epoch and a number of batches.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from mixer.core.arguments import whole_number
from mixer.core.lengths import Batches, Dropped, group_by_length, size_table
from mixer.torch.item_lengths import item_lengths
from mixer.torch.seeds import Rng, base_seed_of, rank_and_world_size

log = logging.getLogger(__name__)

_FORMAT = 1
"""Of the state; raised when states of before cannot be continued, as when an order comes out differently."""
_KEYS = {"format", "base_seed", "epoch", "batches_done", "sampler"}


@dataclass(eq=False)
class _Pass:
    """One way through an epoch."""

    epoch: int
    batches_done: int = 0
    finished: bool = False


_NO_PASS = _Pass(-1)


class FixedLengthBatchSampler(Sampler[list[int]]):
    """Lists of item numbers, each list of one length, for ``DataLoader(..., batch_sampler=...)``.

    Items of each length are shuffled and cut into batches, and the batches are shuffled. Each `iter()` is a new epoch,
    shuffled anew by ``base_seed + epoch``; it is counted when its first batch is taken. `len()` is the number of
    batches of an epoch, the same for all epochs and all ranks, and known at once.

    With several ranks, each step is a batch of one length and one size on every rank. What cannot be shared out so is
    left over: fewer items of a length than a batch on each rank or, with `include_partial`, fewer than ranks. Other
    items are left over in each epoch; `report` says how many.

    **To continue in the middle of an epoch**, keep `state_dict()` with the checkpoint, build the sampler as before, and
    `load_state_dict()`: the next `iter()` gives the rest of that epoch, and the one after it the next. A `DataLoader`
    without workers takes batches one by one, so the state is right whenever a batch has been used. Workers are ahead
    of the loop by some batches; there, tell the number that the loop has used, from the start of the epoch:
    ``state_dict(batches_done=...)``; in an epoch that is continued, counting begins at the state's own
    ``"batches_done"``. The `StatefulDataLoader` of torchdata keeps the state with each batch by itself.

    >>> sampler = FixedLengthBatchSampler(None, 2, lengths=[3, 7, 3, 3, 7, 3, 3], rng=17)
    >>> len(sampler), list(sampler), list(sampler)
    (3, [[4, 1], [0, 2], [3, 6]], [[1, 4], [2, 5], [0, 6]])
    >>> print(sampler.report)
    6 of 7 items are in batches; 0 too long, 1 left over
    """

    def __init__(  # noqa: PLR0913, PLR0917 -- the documented face
        self,
        data_source: Any,
        batch_size: int,
        include_partial: bool = False,  # noqa: FBT001, FBT002 -- the documented face
        rng: Rng = None,
        maxlen: int | None = None,
        length_to_size: Mapping[int, int] | None = None,
        lengths: Any = None,
        *,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        """Count how many items there are of each length.

        Args:
            data_source: Unless `lengths` are given, ``len(data_source.dataset[i])`` is the length of item ``i``.
            batch_size: Items of a batch.
            include_partial: Whether what is left of a length becomes a smaller batch.
            rng: The base seed, the same on all ranks: a whole number, or a generator (of NumPy, `random` or torch) that
                one is drawn from now. None is the seed 0.
            maxlen: Leave out items that are longer; None, 0 or less leaves out none.
            length_to_size: Batch sizes by length: each holds from its length upward, until the next; `batch_size`
                holds below the first.
            lengths: Those of all items (a list, NumPy array, tensor or Arrow array), an Arrow array of lists that have
                them, or the name of a column with either in `data_source`, which may be None otherwise.
            rank: Which of the processes that take batches in step this is; as `torch.distributed` says if not given.
            world_size: How many these are.

        Raises:
            ValueError: An argument is not what it should be; the message says which.
        """
        self.rank, self.world_size = rank_and_world_size(rank, world_size)
        # Checked before lengths are, since that may take a while.
        size_table(batch_size, length_to_size)
        self.base_seed, self._drawn = base_seed_of(rng)
        self._groups = group_by_length(
            item_lengths(data_source, lengths),
            batch_size,
            length_to_size=length_to_size,
            include_partial=include_partial,
            maxlen=maxlen,
            world_size=self.world_size,
        )
        self._options = _plain(batch_size, include_partial, maxlen, length_to_size)
        self._length, self._report = self._groups.steps, self._groups.dropped()
        self._next, self._loaded, self._begun = _Pass(0), False, _NO_PASS
        self._identity: dict[str, Any] | None = None
        log.info("equal-length batches: %s", self._report)

    @property
    def report(self) -> Dropped:
        """How many items of an epoch are in no batch of any rank, and why."""
        return self._report

    @property
    def epoch(self) -> int:
        """The epoch that is under way or, if none is, the one that comes next."""
        return self._here().epoch

    def _here(self) -> _Pass:
        return self._next if self._begun is _NO_PASS or self._begun.finished else self._begun

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[list[int]]:
        # Nothing happens before the first batch is taken: a `DataLoader` with workers asks for an iterator that it
        # never uses, which must not cost an epoch.
        here = self._begun = self._next
        self._next, self._loaded = _Pass(here.epoch + 1), False
        batches = self._groups.batches(self.base_seed + here.epoch, "lengths")
        while here.batches_done < self._length:
            batch = self._batch(batches, here.batches_done)
            here.batches_done += 1
            yield batch
        here.finished = True

    def _batch(self, batches: Batches, step: int) -> list[int]:
        number = step * self.world_size + self.rank
        batch: list[int] = batches.order[batches.offsets[number] : batches.offsets[number + 1]].tolist()
        return batch

    def set_epoch(self, epoch: int) -> None:
        """Let the next `iter()` be this epoch, from its start; it is shuffled by ``base_seed + epoch``.

        A state that was just loaded for this very epoch stays: many trainers set the epoch before each one.

        Raises:
            ValueError: `epoch` is no whole number from 0.
        """
        epoch = whole_number("epoch", epoch, least=0)
        if not (self._loaded and self._next.epoch == epoch):
            self._next, self._loaded, self._begun = _Pass(epoch), False, _NO_PASS

    def state_dict(self, batches_done: int | None = None) -> dict[str, Any]:
        """Return what it takes to go on from here: numbers and texts, the same for all ranks.

        Args:
            batches_done: How many batches have been used of the epoch last begun, counted from its start, if not all
                that were taken: workers take batches ahead.

        Raises:
            ValueError: `batches_done` is more than an epoch has.
        """
        here = self._here()
        if batches_done is not None:
            # Workers may have taken the last batch of an epoch long before the loop has used it.
            last = here if self._begun is _NO_PASS else self._begun
            here = _Pass(last.epoch, whole_number("batches_done", batches_done, least=0))
            if here.batches_done > self._length:
                raise ValueError(
                    f"batches_done: expected at most {self._length}, the batches of an epoch, found {batches_done}"
                )
        return {
            "format": _FORMAT,
            "base_seed": self.base_seed,
            "epoch": here.epoch,
            "batches_done": here.batches_done,
            "sampler": self._fingerprint(),
        }

    def load_state_dict(self, state_dict: Any) -> None:
        """Let the next `iter()` go on from a state: it gives what is left of the epoch, be it nothing.

        A base seed that was drawn from a generator gives way to the state's.

        Raises:
            ValueError: It is no state of this class, or one of a sampler over other lengths, with other options, for
                another number of ranks, or with another seed.
        """
        if not isinstance(state_dict, Mapping) or set(state_dict) != _KEYS or state_dict["format"] != _FORMAT:
            raise ValueError(f"state_dict: expected a state of FixedLengthBatchSampler, found {state_dict!r}")
        differing = self._differing(state_dict)
        if differing:
            raise ValueError(
                f"state_dict: it is the state of another sampler; {'; '.join(differing)}. "
                "Build the sampler as it was, or begin a new epoch with set_epoch()"
            )
        epoch = whole_number("state_dict['epoch']", state_dict["epoch"], least=0)
        done = whole_number("state_dict['batches_done']", state_dict["batches_done"], least=0)
        if done > self._length:
            raise ValueError(f"state_dict['batches_done']: expected at most {self._length}, found {done}")
        self.base_seed = whole_number("state_dict['base_seed']", state_dict["base_seed"], least=0)
        self._next, self._loaded, self._begun = _Pass(epoch, done), True, _NO_PASS

    def _differing(self, state_dict: Mapping[str, Any]) -> list[str]:
        theirs, ours = state_dict["sampler"], self._fingerprint()
        if not isinstance(theirs, Mapping):
            return [f"its fingerprint is {theirs!r}"]
        pairs = [(name, theirs.get(name), ours.get(name)) for name in sorted({*theirs, *ours})]
        if not self._drawn:
            pairs.append(("base_seed", state_dict["base_seed"], self.base_seed))
        return [f"{name} was {then!r} and is {now!r}" for name, then, now in pairs if then != now]

    def _fingerprint(self) -> dict[str, Any]:
        """Return all that decides an epoch but its seed."""
        if self._identity is None:
            digest = hashlib.sha256(self._groups.lengths.astype("<i8").tobytes())
            # The width of the codes follows from the number of lengths.
            codes = self._groups.codes
            digest.update(np.ascontiguousarray(codes.astype(codes.dtype.newbyteorder("<"), copy=False)).data)
            self._identity = {"lengths": len(codes), "lengths_sha256": digest.hexdigest(), **self._options}
            self._identity["world_size"] = self.world_size
        return dict(self._identity)


def _plain(
    batch_size: int,
    include_partial: bool,  # noqa: FBT001 -- as it was passed
    maxlen: int | None,
    length_to_size: Mapping[int, int] | None,
) -> dict[str, Any]:
    """Return options that were checked, in one spelling for all that mean the same."""
    return {
        "batch_size": int(batch_size),
        "include_partial": bool(include_partial),
        "maxlen": max(0, int(maxlen or 0)),
        "length_to_size": sorted([int(length), int(size)] for length, size in (length_to_size or {}).items()),
    }
