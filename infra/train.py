"""Train a tiny model on the token windows of a run, from its last checkpoint on if there is one.

    python infra/train.py OUTPUT [--steps N] [--checkpoint FILE] [--every N] [--workers N] [--vocabulary N]

One line a step: its number, the loss, and the loss to the last bit. Kill it at any moment and run it again: it goes on
from its last checkpoint, and every step has the loss that it has without the kill. The place in the data is a number
in the checkpoint, beside model and optimizer. Needs PyTorch.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from mixer.torch import MixedBatches

WIDTH = 32
LEARNING_RATE = 0.01


class TinyModel(nn.Module):
    """Guesses each id from the one before it and a mean of all so far."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.hidden = nn.Linear(2 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return logits of shape ``(rows, length, vocabulary)`` for ids of shape ``(rows, length)``."""
        here = self.embedding(ids)
        count = torch.arange(1, ids.shape[1] + 1).unsqueeze(-1)
        so_far = here.cumsum(dim=1) / count
        logits: torch.Tensor = self.head(torch.tanh(self.hidden(torch.cat([here, so_far], dim=-1))))
        return logits


def train(asked: argparse.Namespace) -> None:
    """Train up to the last step, and print the loss of each."""
    torch.manual_seed(17)
    torch.use_deterministic_algorithms(mode=True)
    # Sums in another order have other last bits.
    torch.set_num_threads(1)
    model = TinyModel(asked.vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    batches = MixedBatches(asked.output, columns=["input_ids"])
    done = 0
    if asked.checkpoint.exists():
        state: dict[str, Any] = torch.load(asked.checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        batches.load_state_dict(state["batches"])
        done = state["step"]
    loader = batches.loader(num_workers=asked.workers)
    if asked.steps - done > len(loader):
        sys.exit(f"--steps: expected at most {done + len(loader)}, as the run ends there, found {asked.steps}")
    rows = iter(loader)
    for step in range(done + 1, asked.steps + 1):
        # T + 1 ids: what is seen, and what comes after each.
        ids = next(rows)["input_ids"].long()
        logits = model(ids[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call] # PyTorch has none
        optimizer.step()
        told = float(loss.detach())
        print(f"step {step} loss {told:.4f} {told.hex()}", flush=True)
        if step % asked.every == 0 or step == asked.steps:
            save(
                {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "batches": loader.state_dict(),
                    "step": step,
                },
                asked.checkpoint,
            )


def save(state: dict[str, Any], path: Path) -> None:
    """Write a checkpoint whole or not at all."""
    unfinished = path.with_name(path.name + ".new")
    with unfinished.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def main() -> None:
    """Train as the command line says."""
    parser = argparse.ArgumentParser(description="Train a tiny model on the token windows of a run.")
    parser.add_argument("output", help="where the run is")
    parser.add_argument("--steps", type=int, default=30, help="the last step to make")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"), help="what to go on from")
    parser.add_argument("--every", type=int, default=5, help="steps from checkpoint to checkpoint")
    parser.add_argument("--workers", type=int, default=0, help="processes that read")
    parser.add_argument("--vocabulary", type=int, default=65_536, help="how many ids there are")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
