"""What an output says of itself to people and to other tools: the dataset card and the manifest."""

from __future__ import annotations

from collections.abc import Sequence

from mixer.core import commits
from mixer.core.commits import Commit
from mixer.core.fingerprint import canonical_json
from mixer.core.plan import Plan
from mixer.planning import Planned


def dataset_card(planned: Planned) -> bytes:
    """Return the output's ``README.md``: the YAML that Hugging Face `datasets` reads, and a word for people."""
    plan = planned.plan
    rows = "\n".join(
        f"| {_cell(name)} | {taken:,} | {taken / plan.rows:.4%} |"
        for name, taken in zip(plan.names, plan.schedule.offsets_at(plan.batches), strict=True)
    )
    lineage = ""
    if planned.definition["lineage"]:
        epoch = ", `_epoch` (in which pass over it)" if "_epoch" in planned.shard_schema.names else ""
        position = f"`_row` (its position there, from 0){epoch}"
        lineage = f"\nEach row says where it comes from: `_dataset`, {position} and `_batch`.\n"
    return f"""---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/*.parquet
---
# A mix of {len(plan.names)} datasets

{plan.rows:,} rows in {plan.batches:,} batches of {plan.batch_size:,}, made by mixer (run `{planned.run[:12]}`).
Batches hold the datasets in exact integer proportions: none is ever ahead of its share by a whole row.
Rows stand batch by batch, and in a batch dataset by dataset: row `i` is in batch `i // {plan.batch_size}`.

| dataset | rows | of all |
| --- | ---: | ---: |
{rows}

{_weights(plan)}
{lineage}
The shards lie in `data/`. `manifest.json` lists them with rows, bytes and sha256 once the run is complete.
""".encode()


def _weights(plan: Plan) -> str:
    """Return the weights in words, phase by phase."""
    told = [
        ", ".join(f"{_cell(name)} {weight}" for name, weight in zip(plan.names, phase.weights, strict=True) if weight)
        for phase in plan.phases
    ]
    if len(told) == 1:
        return f"Weights: {told[0]}."
    lengths = ["the rest" if phase.batches is None else f"{phase.batches:,} batches" for phase in plan.phases]
    phases = "\n".join(
        f"{place}. {length}: {one}" for place, (length, one) in enumerate(zip(lengths, told, strict=True), 1)
    )
    return f"Weights, phase by phase:\n\n{phases}"


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
                {"name": name, "rows": rows}
                for name, rows in zip(plan.names, plan.schedule.offsets_at(plan.batches), strict=True)
            ],
            "phases": planned.definition["phases"],
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
