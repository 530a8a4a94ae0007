"""What a sampler takes its randomness from, and which part of the work is this process's own."""

from __future__ import annotations

import random
from typing import TypeAlias

import numpy as np
import torch
from torch import distributed

from mixer.core.arguments import rank_of, whole_number

Rng: TypeAlias = "int | np.random.Generator | np.random.RandomState | random.Random | torch.Generator | None"
"""A base seed, or a generator of which one is drawn; None is the seed 0."""

_SEEDS = 2**63
"""A seed that is drawn lies below."""


def base_seed_of(rng: Rng) -> tuple[int, bool]:
    """Return the base seed that `rng` is or gives, and whether it was drawn.

    One number is drawn from a generator, which therefore goes on from another state.

    Raises:
        ValueError: `rng` is nothing of that kind, or a negative seed.

    >>> base_seed_of(17), base_seed_of(None)
    ((17, False), (0, False))
    """
    if rng is None:
        return 0, False
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(_SEEDS, dtype=np.int64)), True
    if isinstance(rng, np.random.RandomState):
        return int(rng.randint(0, _SEEDS - 1, dtype=np.int64)), True
    if isinstance(rng, random.Random):
        return rng.randrange(_SEEDS), True
    if isinstance(rng, torch.Generator):
        return int(torch.empty((), dtype=torch.int64, device=rng.device).random_(generator=rng).item()), True
    try:
        return whole_number("rng", rng, least=0), False
    except ValueError:
        raise ValueError(
            f"rng: expected None, a seed from 0, or a generator of NumPy, random or torch, found {rng!r}"
        ) from None


def rank_and_world_size(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return which of how many processes this is: as asked, or as `torch.distributed` says, or the only one.

    Raises:
        ValueError: One is given without the other, or `rank` is not one of `world_size`.

    >>> rank_and_world_size(None, None), rank_and_world_size(1, 4)
    ((0, 1), (1, 4))
    """
    if rank is None and world_size is None:
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return 0, 1
    if rank is None or world_size is None:
        raise ValueError(f"rank, world_size: expected both or neither, found rank={rank!r}, world_size={world_size!r}")
    return rank_of(rank, world_size)
