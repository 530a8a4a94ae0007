"""Everything that `mixer plan` says, as plain values: what ``--json`` prints, and what the text is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from fractions import Fraction
from itertools import pairwise
from typing import Any

from mixer.asking import views_of
from mixer.cli import wording
from mixer.core.exhaustion import largest
from mixer.core.plan import Plan
from mixer.forecasting import Forecast, forecast
from mixer.planning import Planned
from mixer.previewing import Preview
from mixer.sampling import Lengths, Pace
from mixer.schemas.merging import MISSING
from mixer.sources.inventory import Inventory
from mixer.sources.windows import stream_facts


def plan_value(
    preview: Preview,
    *,
    pace: Pace | None = None,
    lengths: Mapping[str, Lengths | None] | None = None,
    length_column: str | None = None,
) -> dict[str, Any]:
    """Return everything a plan says, as plain values.

    Args:
        preview: The plan.
        pace: What was measured, if it was.
        lengths: Tokens of each dataset's rows, if a column tells them.
        length_column: That column.
    """
    planned, plan = preview.planned, preview.planned.plan
    ahead = forecast(planned)
    tokens = None if lengths is None else _tokens(plan, lengths)
    return {
        "output": planned.config.output,
        "run": planned.run[:12],
        "fingerprint": planned.fingerprint,
        "action": preview.action,
        "committed_shards": preview.committed,
        "parent": asdict(preview.planned.parent) if preview.planned.parent else None,
        "datasets": [
            {**_dataset(planned, place, ahead), "tokens": tokens and tokens[plan.names[place]]}
            for place in range(len(plan.names))
        ],
        "length_column": length_column,
        "phases": _phases(plan, ahead),
        **_shape(plan),
        "ranks": [
            {**asdict(ranks), "batch_divides": ranks.batch_divides, "shards_divide": ranks.shards_divide}
            for ranks in ahead.ranks
        ],
        "end": _end(planned),
        **_costs(plan, ahead, pace),
        "columns": [{"name": field.name, "type": str(field.type)} for field in planned.shard_schema],
        "type_changes": _type_changes(planned),
        "renamed_columns": list(_renamed(planned)),
        "duplicates": [
            {"files": [{"dataset": name, "url": url} for name, url in same.files], "certain": same.certain}
            for same in ahead.duplicates
        ],
        "warnings": list(ahead.warnings),
        "writer": planned.physical,
    }


def _shape(plan: Plan) -> dict[str, Any]:
    """Return how the run is cut."""
    last = plan.shard(plan.shard_count - 1)
    return {
        "rows": plan.rows,
        "batches": plan.batches,
        "batch_size": plan.batch_size,
        "shards": plan.shard_count,
        "rows_per_shard": plan.shard(0).rows,
        "batches_per_shard": plan.batches_per_shard,
        "last_shard": {"rows": last.rows, "batches": last.batches},
        "row_groups": _row_groups(plan),
        "rows_per_row_group": min(plan.batches_per_row_group * plan.batch_size, plan.shard(0).rows),
        "batches_per_row_group": plan.batches_per_row_group,
    }


def _costs(plan: Plan, ahead: Forecast, pace: Pace | None) -> dict[str, Any]:
    """Return what is estimated."""
    return {
        "estimated_bytes": ahead.output_bytes,
        "reads": {
            **asdict(ahead.reads),
            "used_bytes": ahead.used_bytes,
            "amplification": ahead.reads.bytes / ahead.used_bytes if ahead.used_bytes else 1.0,
        },
        "shards_alone": {
            "amplification": ahead.alone_amplification,
            "bytes_per_shard": ahead.alone_bytes,
            "shards_looked_at": ahead.alone_shards,
        },
        "peak_memory": {**asdict(ahead.memory), "bytes": ahead.memory.bytes},
        "measured": None
        if pace is None
        else {
            "rows": pace.rows,
            "bytes": pace.bytes,
            "seconds": pace.seconds,
            "rows_per_second": pace.rows_per_second,
            "estimated_seconds": pace.seconds_for(plan.rows),
            "estimated_bytes": pace.bytes_of(plan.rows),
        },
    }


def _phases(plan: Plan, ahead: Forecast) -> list[dict[str, Any]]:
    """Return what a plan says of each phase."""
    phases = []
    for phase, coming in zip(plan.phases, ahead.phases, strict=True):
        rule = phase.rule(phase.members, plan.batch_size)
        rows, total = sum(coming.rows), sum(phase.weights)
        phases.append(
            {
                "batches": phase.batches,
                "batches_made": coming.batches,
                "rows": rows,
                "weights": {plan.names[place]: phase.weights[place] for place in phase.members},
                "share_percent": {
                    plan.names[place]: wording.percent(phase.weights[place], total) for place in phase.members
                },
                "rows_taken": {
                    name: items
                    for place, (name, items) in enumerate(zip(plan.names, coming.rows, strict=True))
                    if items or place in phase.members
                },
                "period_batches": rule.period,
            }
        )
    return phases


def _row_groups(plan: Plan) -> int:
    """Return the row groups of all shards together."""
    groups = 0
    for start, stop in pairwise((0, *plan.cuts, plan.batches)):
        full, last = divmod(stop - start, plan.batches_per_shard)
        groups += full * -(-plan.batches_per_shard // plan.batches_per_row_group)
        groups += -(-last // plan.batches_per_row_group)
    return groups


def _dataset(planned: Planned, place: int, ahead: Forecast) -> dict[str, Any]:
    """Return what a plan says of one dataset."""
    plan = planned.plan
    name, rows = plan.names[place], plan.passes[place].size
    inventory, coming = planned.inventories[name], ahead.datasets[place]
    taken = coming.items
    limit = plan.limits[place]
    return {
        "name": name,
        "path": planned.config.datasets[name].path,
        "files": len(inventory.files),
        "row_groups": sum(len(entry.row_group_rows) for entry in inventory.files),
        "rows": rows,
        "bytes": inventory.bytes,
        "weights": [phase.weights[place] for phase in plan.phases],
        "share": str(coming.exact_items / plan.rows),
        "share_percent": wording.percent(coming.exact_items, plan.rows),
        "rows_taken": taken,
        "realised_percent": wording.percent(taken, plan.rows),
        "rows_off_share": str(taken - coming.exact_items),
        "rows_left": None if limit is None else limit - taken,
        "epochs": str(Fraction(taken, rows)) if rows else "0",
        "taken_percent": wording.percent(taken, rows),
        "last_batch": coming.ending_batch,
        "shuffle": planned.config.datasets[name].shuffle,
        **_stream(inventory),
        "estimated_bytes": coming.output_bytes,
        "reads": asdict(coming.reads),
        "ignored": list(inventory.ignored),
    }


def _stream(inventory: Inventory) -> dict[str, Any]:
    """Return what is known of the stream of ids that a dataset's windows are of; nothing for a dataset of rows."""
    stream = stream_facts(inventory.facts)
    return {"stream": stream} if "end_of_text_ids" in stream else {}


def _tokens(plan: Plan, lengths: Mapping[str, Lengths | None]) -> dict[str, dict[str, Any] | None]:
    """Return what is known of each dataset's tokens; shares only if something is known of all that give rows."""
    items = dict(zip(plan.names, plan.schedule.offsets_at(plan.batches), strict=True))
    passes = {one.name: one for one in plan.passes}
    taken = {
        name: found.taken(passes[name], items[name]) if found is not None else None for name, found in lengths.items()
    }
    unknown = any(taken[name] is None and items[name] for name in taken)
    total = sum(number or 0 for number in taken.values())
    return {
        name: None
        if found is None
        else {
            "rows_looked_at": found.looked_at,
            "exact": found.complete,
            "per_row": str(found.mean),
            "taken": taken[name],
            "share_percent": None if unknown else wording.percent(taken[name] or 0, total),
        }
        for name, found in lengths.items()
    }


def _end(planned: Planned) -> dict[str, Any]:
    """Return why the run ends where it does, and where the data would end it."""
    plan = planned.plan
    end = largest(plan.phases, plan.limits, plan.batch_size)
    asked = None if any(phase.batches is None for phase in plan.phases) else sum(p.batches or 0 for p in plan.phases)
    return {
        "on_exhausted": planned.config.on_exhausted,
        "batches_asked": asked,
        "largest_batches": end and end[0],
        "first_exhausted": end and plan.names[end[1]],
        "reason": "batches" if plan.batches == asked else "exhausted",
    }


def _type_changes(planned: Planned) -> list[dict[str, str]]:
    """Return the columns that come out as another type than they are stored as, and how that comes."""
    views = views_of(planned.config)
    changes = []
    for promotion in planned.promotions:
        how = "cast" if promotion.column in views[promotion.dataset].casts else "widened"
        changes.append({**asdict(promotion), "how": "filled" if promotion.stored == MISSING else how})
    return changes


def _renamed(planned: Planned) -> Iterator[dict[str, str]]:
    for dataset, view in views_of(planned.config).items():
        for column in view.columns or ():
            if column.stored != column.name:
                yield {"dataset": dataset, "stored": column.stored, "name": column.name}
