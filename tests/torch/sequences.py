"""Items for loaders, in a module that worker processes import in no time."""

from __future__ import annotations

import torch
from torch.utils.data import Dataset


class Sequences(Dataset[torch.Tensor]):
    """Sequences of given lengths; each holds its own number."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((self.lengths[index],), index)
