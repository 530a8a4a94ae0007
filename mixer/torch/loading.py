"""A seeded `DataLoader` over windows: a pass is shuffled by ``base_seed + epoch``, whoever loads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from mixer.core.arguments import truth_value, whole_number
from mixer.torch.item_lengths import has_length
from mixer.torch.seeds import rank_and_world_size

_PIECE = 1 << 16
"""So many numbers become Python's own at a time."""


class EpochSampler(Sampler[int]):
    """All items once, in the order of an epoch; each pass is the next epoch. One rank takes its share of each.

    An order is that of a plain ``DataLoader(..., shuffle=True, generator=g)`` whose generator has the seed
    ``base_seed + epoch``: of ``torch.randperm``, so of the installed PyTorch.

    >>> list(EpochSampler(5, base_seed=3, epoch=4)) == list(EpochSampler(5, base_seed=2, epoch=5))
    True
    """

    def __init__(
        self, items: int, base_seed: int, epoch: int = 0, *, rank: int | None = None, world_size: int | None = None
    ) -> None:
        """Begin with an epoch.

        Raises:
            ValueError: An argument is not what it should be; the message says which.
        """
        self.items = whole_number("items", items, least=0)
        self.base_seed = whole_number("base_seed", base_seed, least=0)
        self.rank, self.world_size = rank_and_world_size(rank, world_size)
        self.set_epoch(epoch)

    def __len__(self) -> int:
        return self.items // self.world_size

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass be this epoch.

        Raises:
            ValueError: `epoch` is no whole number from 0, or gives a seed of more than 63 bits.
        """
        epoch = whole_number("epoch", epoch, least=0)
        if self.base_seed + epoch >= 1 << 63:
            raise ValueError(f"base_seed + epoch: expected less than 2**63, found {self.base_seed + epoch}")
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        # Nothing happens before the first item is taken: a `DataLoader` with workers asks for an iterator that it
        # never uses, which must not cost an epoch.
        generator = torch.Generator().manual_seed(self.base_seed + self.epoch)
        self.epoch += 1
        # A `DataLoader` draws the seed of its workers first.
        torch.empty((), dtype=torch.int64).random_(generator=generator)
        order = torch.randperm(self.items, generator=generator)
        share = order[self.rank : len(self) * self.world_size : self.world_size]
        for start in range(0, len(share), _PIECE):
            yield from share[start : start + _PIECE].tolist()


def make_dataloader(  # noqa: PLR0913 -- the options of a DataLoader that matter here
    ds: Dataset[Any],
    batch_size: int,
    base_seed: int,
    epoch: int = 0,
    *,
    drop_last: bool = False,
    num_workers: int = 0,
    persistent_workers: bool = False,
    rank: int | None = None,
    world_size: int | None = None,
    **options: Any,
) -> DataLoader[Any]:
    """Return a `DataLoader` that is shuffled by ``base_seed + epoch``: the same order for the same sum.

    One pass over it is that epoch, and each further pass the next one: the order of pass ``k`` is that of a new loader
    for ``epoch + k``, with workers or without. ``loader.sampler.set_epoch(...)`` goes elsewhere.

    Args:
        ds: Items by number, such as a `SlidingWindowDataset`.
        batch_size: Items of a batch of this process, B: of windows, inputs and targets of shape ``(B, T)``.
        base_seed: A seed from 0; the same on all ranks.
        epoch: The first epoch, from 0.
        drop_last: Whether a last batch of fewer items is left out.
        num_workers: Processes that load items; 0 loads them in this one.
        persistent_workers: Whether workers stay from one pass to the next.
        rank: Which of the `world_size` processes this is; both are those of `torch.distributed` if they are not
            given, and 0 of 1 without it. Each takes every `world_size`-th item of the order; of the last ones fewer
            than ranks are left out, so that all have as many.
        world_size: How many processes share an epoch.
        options: More of the `DataLoader`'s, such as `pin_memory` or `multiprocessing_context`.

    Raises:
        ValueError: An argument is not what it should be; the message says which.
    """
    items = _items(ds, num_workers, persistent_workers=persistent_workers, options=options)
    batch_size = whole_number("batch_size", batch_size, least=1)
    sampler = EpochSampler(items, base_seed, epoch, rank=rank, world_size=world_size)
    return DataLoader(
        ds,
        batch_size,
        sampler=sampler,
        # Seeds the workers.
        generator=torch.Generator().manual_seed(sampler.base_seed + sampler.epoch),
        drop_last=truth_value("drop_last", drop_last),
        num_workers=num_workers,
        persistent_workers=persistent_workers,
        **options,
    )


def _items(ds: Any, num_workers: int, *, persistent_workers: bool, options: dict[str, Any]) -> int:
    """Return how many items there are to load, once the options are found to be right."""
    taken = {"sampler", "batch_sampler", "shuffle", "generator"} & set(options)
    if taken:
        raise ValueError(
            f"{', '.join(sorted(taken))}: the order follows from base_seed and epoch; "
            "for another one, make a DataLoader"
        )
    if not has_length(ds):
        raise ValueError(f"ds: expected a dataset with a length, found {type(ds).__name__}")
    num_workers = whole_number("num_workers", num_workers, least=0)
    if truth_value("persistent_workers", persistent_workers) and not num_workers:
        raise ValueError("persistent_workers: expected num_workers from 1 with it, found num_workers=0")
    return len(ds)
