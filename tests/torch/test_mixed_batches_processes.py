"""Workers of every kind on disk and on S3, and trainers that are processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import ChainDataset, DataLoader

from mixer import building
from mixer.storage import open_store
from mixer.torch import MixedBatches
from tests.e2e.runs import objects
from tests.mixes import mix_config

BATCHES, BATCH_SIZE = 12, 4
COLUMNS = ["_batch", "n", "text"]

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


def taken(batches: Any) -> list[tuple[int, list[int], list[str]]]:
    return [(int(batch["_batch"][0]), batch["n"].tolist(), batch["text"]) for batch in batches]


def take(environment: dict[str, str], _: int) -> None:
    """Give a worker the environment of the test: a fork server may have started before the S3 server had."""
    os.environ.update(environment)


@pytest.mark.s3
@pytest.mark.parametrize("context", ["fork", "forkserver", "spawn"])
def test_workers_of_every_kind_read_on_disk_and_on_s3(finished: Path, s3_url: str, context: str) -> None:
    store = open_store(s3_url)
    for path in finished.rglob("*"):
        if path.is_file():
            store.put(path.relative_to(finished).as_posix(), path.read_bytes())
    expected = taken(MixedBatches(str(finished), columns=COLUMNS))
    # This process has the store open, and its threads at work, before a worker is forked.
    assert taken(MixedBatches(s3_url, columns=COLUMNS)) == expected
    both = [MixedBatches(str(finished), columns=COLUMNS), MixedBatches(s3_url, columns=COLUMNS)]
    begin = partial(take, dict(os.environ))
    plain = DataLoader(
        ChainDataset(both), batch_size=None, num_workers=2, multiprocessing_context=context, worker_init_fn=begin
    )
    assert taken(plain) == expected * 2
    if context == "fork":
        loader = both[1].loader(num_workers=2, multiprocessing_context=context)
        assert taken(loader) == expected
        assert objects(store).keys() == objects(open_store(str(finished))).keys()


def train(rank: int, folder: str, output: str, results: Any) -> None:
    """Train a model of one number on each of two ranks, which step together or hang."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    model = DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        model.module.weight.fill_(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    dataset = MixedBatches(output)
    loader = dataset.loader(num_workers=rank)
    steps = []
    for batch in loader:
        optimizer.zero_grad()
        model(batch["n"].float()[:, None]).mean().backward()
        optimizer.step()
        steps.append((int(batch["_batch"][0]), len(batch["n"])))
    results.put((dataset.rank, steps, model.module.weight.item(), loader.state_dict()))
    distributed.barrier()
    distributed.destroy_process_group()


def test_two_processes_train_to_the_end_in_step(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    building.build(config)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    trainers = [context.Process(target=train, args=(rank, str(tmp_path), config.output, results)) for rank in (0, 1)]
    for trainer in trainers:
        trainer.start()
    try:
        found = sorted(results.get(timeout=180) for _ in trainers)
        for trainer in trainers:
            trainer.join(180)
            assert trainer.exitcode == 0
    finally:
        for trainer in trainers:
            trainer.kill()
    assert [(rank, steps) for rank, steps, _, _ in found] == [
        (rank, [(b, 2) for b in range(BATCHES)]) for rank in (0, 1)
    ]
    assert found[0][2] == found[1][2] != 1.0
    assert found[0][3] == found[1][3]
    # What one process with all rows does.
    weight = 1.0
    for batch in MixedBatches(config.output):
        weight -= 1e-3 * float(batch["n"].float().mean())
    assert found[0][2] == pytest.approx(weight, rel=1e-5)


def test_the_output_may_have_moved_before_workers_read(finished: Path, tmp_path: Path) -> None:
    output = Path(shutil.copytree(finished, tmp_path / "out"))
    dataset = MixedBatches(str(output))
    other = mix_config(tmp_path / "other", batches=3)
    building.build(other)
    shutil.rmtree(output)
    shutil.copytree(other.output, output)
    with pytest.raises(RuntimeError, match="expected the run with the fingerprint"):
        next(iter(dataset.loader(num_workers=1)))
