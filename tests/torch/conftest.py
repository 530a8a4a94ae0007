"""What tests of loaders share."""

from __future__ import annotations

import multiprocessing

import pytest

from mixer import building
from tests.mixes import mix_config

# Workers are forked from a server that holds PyTorch already, which each would need seconds to import.
multiprocessing.set_forkserver_preload(["mixer.torch"])


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A finished run of twelve batches: shards of six, row groups of three."""
    config = mix_config(tmp_path_factory.mktemp("run"), batches_per_shard=6, batches_per_row_group=3)
    building.build(config)
    return config.output
