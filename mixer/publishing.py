"""What an output says of itself to people and to other tools: the dataset card and the manifest."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from mixer.core import commits
from mixer.core.commits import Commit
from mixer.core.fingerprint import canonical_json
from mixer.errors import StoreError
from mixer.planning import Planned
from mixer.storage import Store

log = logging.getLogger(__name__)

_TRIES = 5


def dataset_card(planned: Planned) -> bytes:
    """Return the output's ``README.md``: the YAML that Hugging Face `datasets` reads, and a word for people."""
    plan = planned.plan
    total = sum(plan.weights)
    rows = "\n".join(
        f"| {_cell(name)} | {weight} | {weight / total:.4%} | {taken:,} |"
        for name, weight, taken in zip(plan.names, plan.weights, plan.schedule.offsets_at(plan.batches), strict=True)
    )
    lineage = (
        "\nEach row says where it comes from: `_dataset`, `_row` (its position there, from 0) and `_batch`.\n"
        if planned.definition["lineage"]
        else ""
    )
    return f"""---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/*.parquet
---
# A mix of {len(plan.names)} datasets

{plan.rows:,} rows in {plan.batches:,} batches of {plan.batch_size:,}, made by mixer (run `{planned.run[:12]}`).
Every batch holds the datasets in exact integer proportions: none is ever ahead of its share by a whole row.
Rows stand batch by batch, and in a batch dataset by dataset: row `i` is in batch `i // {plan.batch_size}`.

| dataset | weight | share | rows |
| --- | ---: | ---: | ---: |
{rows}
{lineage}
The shards lie in `data/`. `manifest.json` lists them with rows, bytes and sha256 once the run is complete.
""".encode()


def _cell(text: str) -> str:
    """Return `text` as it can stand in a Markdown table."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("`", "\\`").replace("<", "&lt;")


def manifest(planned: Planned, shards: Sequence[Commit], head: str) -> bytes:
    """Return ``manifest.json``: what the log says, in one object for tools that need no more."""
    plan = planned.plan
    return canonical_json(
        {
            "format": commits.FORMAT,
            "run": planned.run,
            "fingerprint": planned.fingerprint,
            "head": head,
            "batch_size": plan.batch_size,
            "batches": plan.batches,
            "rows": plan.rows,
            "bytes": sum(shard.bytes for shard in shards),
            "datasets": [
                {"name": name, "weight": weight, "rows": rows}
                for name, weight, rows in zip(
                    plan.names, plan.weights, plan.schedule.offsets_at(plan.batches), strict=True
                )
            ],
            "shards": [
                {
                    "path": shard.path,
                    "rows": shard.rows,
                    "bytes": shard.bytes,
                    "sha256": shard.sha256,
                    "first_row": shard.first_batch * plan.batch_size,
                    "first_batch": shard.first_batch,
                    "batches": shard.batches,
                    "counts": shard.counts,
                }
                for shard in shards
            ],
        }
    )


def publish_manifest(store: Store, data: bytes) -> None:
    """Store `data` as the manifest of a run that is complete, also in place of another one.

    Raises:
        StoreError: Something else keeps writing another one.
    """
    name = commits.MANIFEST_NAME
    for _ in range(_TRIES):
        info = store.stat(name)
        if info is None:
            store.put(name, data)
            return
        if info.bytes == len(data) and store.get(name) == data:
            return
        if store.replace(name, data, info.version):
            log.warning("replaced a manifest that says otherwise than the log path=%s/%s", store.url, name)
            return
    raise StoreError(
        f"{store.url}/{name}: changed {_TRIES} times while it was to be replaced; see what else writes to this output,"
        f" end it, then run again"
    )
