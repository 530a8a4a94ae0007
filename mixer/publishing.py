"""What an output says of itself to people and to other tools: the dataset card and the manifest."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

from mixer import extending
from mixer.ancestry import Place
from mixer.core import commits
from mixer.core.commits import Commit, Slot
from mixer.core.fingerprint import canonical_json
from mixer.core.plan import Plan
from mixer.errors import StoreError
from mixer.log import CommitLog
from mixer.planning import Planned
from mixer.storage import Store

log = logging.getLogger(__name__)

_TRIES = 5


def dataset_card(planned: Planned) -> bytes:
    """Return the output's ``README.md``: a dataset card for Hugging Face, and a word for people.

    Its YAML names no files. If it did, `datasets` would find what it has loaded before by these names alone, and give
    the rows of another output whose folder is called the same, or those of this run when it had fewer. It finds the
    shards by itself, and then looks at each file's time.
    """
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
tags:
- mixer
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
{_places(planned)} `manifest.json` lists them with rows, bytes and sha256 once the run is complete.
""".encode()


def _places(planned: Planned) -> str:
    """Return where the shards lie."""
    parent = planned.parent
    if parent is None:
        return "The shards lie in `data/`."
    first = f"the first {parent.shards:,} ({parent.batches:,} batches) are those of the run in `{_cell(parent.output)}`"
    return f"The shards lie in `data/`, but not all: {first}."


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


def manifest(planned: Planned, shards: Sequence[Commit], head: str, taken: Sequence[Place] = ()) -> bytes:
    """Return ``manifest.json``: what the log says, in one object for tools that need no more.

    Args:
        planned: What the run is.
        shards: Its own commits.
        head: The chain head.
        taken: The shards before them, which lie in the outputs of other runs.
    """
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
            "bytes": sum(shard.bytes for shard in (*(commit for _, commit in taken), *shards)),
            "datasets": [
                {"name": name, "rows": rows}
                for name, rows in zip(plan.names, plan.schedule.offsets_at(plan.batches), strict=True)
            ],
            "phases": planned.definition["phases"],
            "shards": [
                *({"output": output, **_entry(shard, plan.batch_size)} for output, shard in taken),
                *(_entry(shard, plan.batch_size) for shard in shards),
            ],
        }
    )


def _entry(shard: Commit, batch_size: int) -> dict[str, Any]:
    return {
        "path": shard.path,
        "rows": shard.rows,
        "bytes": shard.bytes,
        "sha256": shard.sha256,
        "first_row": shard.first_batch * batch_size,
        "first_batch": shard.first_batch,
        "batches": shard.batches,
        "counts": shard.counts,
    }


def has_manifest(store: Store, planned: Planned, head: str) -> bool:
    """Return whether a run that is finished with the chain head `head` has its manifest, whatever else that says."""
    if planned.extensions:
        # There may be that of a former end.
        return _head_said(store.get(commits.MANIFEST_NAME)) == head
    return store.stat(commits.MANIFEST_NAME) is not None


def publish_manifest(store: Store, planned: Planned, commit_log: CommitLog, data: bytes, head: str) -> None:
    """Write the manifest of a run that is finished with the chain head `head`, also in place of another one.

    A process that sleeps here while others extend and finish the run replaces nothing: it looks at the log after it has
    looked which manifest is there.

    Args:
        store: Where the run is.
        planned: What it is.
        commit_log: Its log.
        data: What `manifest` returned.
        head: Its chain head.

    Raises:
        StoreError: Something else keeps writing another one.
    """
    name = commits.MANIFEST_NAME
    for _ in range(_TRIES):
        info = store.stat(name)
        if info is None:
            if store.create(name, data):
                return
            continue
        if info.bytes == len(data) and store.get(name) == data:
            return
        if commit_log.tail().head != head:
            return
        if store.replace(name, data, info.version):
            if not planned.extensions:
                log.warning("replaced a manifest that says otherwise than the log path=%s/%s", store.url, name)
            return
    raise StoreError(
        f"{store.url}/{name}: changed {_TRIES} times while it was to be written; see what else writes to this output,"
        f" end it, then run again"
    )


def _head_said(data: bytes | None) -> str | None:
    """Return the chain head that a manifest names; None if it names none."""
    try:
        content = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    head = content.get("head") if isinstance(content, dict) else None
    return head if isinstance(head, str) else None


def publish_card(store: Store, started: Planned, planned: Planned, amendments: Sequence[Slot]) -> None:
    """Write the dataset card, unless there is one; one that was written before the run was extended is replaced.

    Args:
        store: Where the run is.
        started: What it began as.
        planned: What it is by now.
        amendments: Its ``amend`` slots; the last one makes it what it is.
    """
    data = dataset_card(planned)
    if store.create(commits.CARD_NAME, data) or not amendments:
        return
    info = store.stat(commits.CARD_NAME)
    found = store.get(commits.CARD_NAME)
    if info is None or found == data:
        return
    former = [started] + [
        extending.amended(started, slot, f"{store.url}/{commits.slot_name(slot.number)}") for slot in amendments[:-1]
    ]
    # One that people have written stays. If another start is faster, it writes the same.
    if any(found == dataset_card(one) for one in former):
        store.replace(commits.CARD_NAME, data, info.version)
