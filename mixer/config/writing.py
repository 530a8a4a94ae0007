"""Configs as YAML and JSON Schema."""

from __future__ import annotations

from typing import Any

import yaml

from mixer.config.models import MixConfig

_EXAMPLE = """\
# A mix of datasets by exact weights. `mixer plan` shows what will come of it, `mixer run` makes it.

# Folder or URL prefix for the shards and the commit log.
output: mixed

# Where copies go of what cannot be read from anywhere: JSON, CSV, text, tokens, full shuffles. Below the output if left
# out; runs that share the place make each copy once. `mixer run` makes them, `mixer prepare` makes nothing else.
# prepared: s3://lake/prepared

# Rows in every batch: each batch has this many, divided among the datasets by their weights.
batch_size: 512

# Batches of the whole run (or its rows). Leave both out with `on_exhausted: stop` or `redistribute`.
batches: 2_000
# rows: 1_024_000

# Batches in every Parquet file. The position is committed after each file, so a killed run loses at most one.
batches_per_shard: 128

# If a dataset has too few rows: `error` says so before anything is written, `stop` ends the run after the last batch
# that every dataset can fill, `repeat` begins the dataset again, `redistribute` shares its part out among the others
# until all rows are used.
on_exhausted: error

# What random orders depend on (`shuffle: block` and `shuffle: full` at a dataset).
seed: 0

# Instead of weights and `batches`: stretches of the run with weights of their own. Datasets go on where they were.
# phases: [{batches: 1_000, weights: {web: 6, code: 3}}, {batches: 1_000, weights: {web: 1, books: 1}}]

# Instead of weights: let them follow from the sizes of the datasets.
# weights_by: {sizes: rows, temperature: 2, max_share: 40%}

# The mix begins with the first shards of another run; `mixer fork` writes a config with all that belongs to it.
# fork: {run: s3://lake/premix/v3, shards: 40}

# If a dataset lacks a column that others have: `error`, or `null` in all of its rows.
missing: error

# Columns that say where each row comes from: _dataset, _row, _batch, and with `repeat` _epoch.
lineage: true

# zstd, snappy, lz4 or none. Only zstd takes a compression_level: 1 (the default) to 22.
compression: zstd
# compression_level: 1

# Batches in a row group; chosen by size if left out.
# batches_per_row_group: 16

# For `mixer plan` only: the column that says how many tokens a row has, a whole number or a list of tokens.
# length_column: input_ids

# The order of the datasets matters: rows stand in it inside a batch, and it breaks ties.
# A path is a file, a glob, a folder, or a list of these; a local path or a URL. Files are Parquet, or what their names
# say (`*.jsonl.zst`), or what `format: csv` says; `on_bad_line: skip` passes over lines that are broken.
# `window: {context_length: 1024, tokenizer: tokenizer.json}` makes windows of tokens the items that weights count, and
# `batches: {by: input_ids, size: 8}` makes batches of equally long rows.
# Credentials have no place here: they come from the environment, ~/.aws or fsspec's configuration.
# Instead of a weight there may be a share, such as `share: 60%`.
# `columns` takes only those that it lists, may rename them and cast them, exactly or not at all:
# `columns: [text, id]`, or `columns: {content: text, id: {name: key, cast: string}}`.
datasets:
  web:
    path: inputs/web/*.parquet
    weight: 6
  code:
    path: inputs/code/
    weight: 3
  books:
    path:
      - inputs/books-1.parquet
      - inputs/books-2.parquet
    weight: 1
"""


def example_config() -> str:
    """Return a config to start from, in YAML, every key explained; it loads as it is.

    >>> example_config().startswith("# A mix")
    True
    """
    return _EXAMPLE


def to_yaml(config: MixConfig) -> str:
    """Return `config` as YAML that loads as an equal config; what is None is left out."""
    values = config.model_dump(mode="json", exclude_none=True)
    return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=10**6))


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a config."""
    return MixConfig.model_json_schema()
