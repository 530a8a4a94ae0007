"""What trains with PyTorch: equal-length batches, sliding windows, and seeded loaders."""

from __future__ import annotations

from mixer.torch.batch_sampler import FixedLengthBatchSampler
from mixer.torch.corpus import encode_corpus
from mixer.torch.loading import make_dataloader
from mixer.torch.mixed_batches import MixedBatches
from mixer.torch.window_dataset import SlidingWindowDataset

__all__ = [
    "FixedLengthBatchSampler",
    "MixedBatches",
    "SlidingWindowDataset",
    "encode_corpus",
    "make_dataloader",
]
