"""A good config, and what is said of bad ones."""

from __future__ import annotations

import pytest

from mixer.config import parse_config
from mixer.errors import ConfigError

GOOD = """\
output: out
batch_size: 4
batches: 10
batches_per_shard: 2
datasets:
  web: {path: web.parquet, weight: 3}
  code: {path: [a.parquet, b/], weight: 1}
"""
TOP = (
    "output, prepared, batch_size, batches, rows, batches_per_shard, on_exhausted, seed, phases, weights_by, fork, "
    "missing, lineage, compression, compression_level, batches_per_row_group, length_column, datasets"
)
DATASET = "path, format, on_bad_line, document, window, batches, weight, share, shuffle, columns, max_rows, max_epochs"
REFUSED = (
    "holds a user, password or signature (not shown here); take it out, and give credentials through the "
    "environment, ~/.aws or fsspec's configuration"
)


def message(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "mix.yaml")
    return str(caught.value)
