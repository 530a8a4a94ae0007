"""What `mixer plan` says: a preview as plain values, and those values as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from mixer.cli import wording
from mixer.cli.tables import natural_width, table
from mixer.core.exhaustion import largest
from mixer.core.plan import Plan
from mixer.planning import Planned
from mixer.previewing import Preview

LABEL_WIDTH = 12
SHOWN_IGNORED = 5
"""Ignored files listed for a dataset; ``--json`` has all of them."""


def plan_value(preview: Preview) -> dict[str, Any]:
    """Return everything a plan says, as plain values."""
    planned, plan = preview.planned, preview.planned.plan
    last = plan.shard(plan.shard_count - 1)
    datasets = [_dataset(planned, place) for place in range(len(plan.names))]
    return {
        "output": planned.config.output,
        "run": planned.run[:12],
        "fingerprint": planned.fingerprint,
        "action": preview.action,
        "committed_shards": preview.committed,
        "datasets": datasets,
        "rows": plan.rows,
        "batches": plan.batches,
        "batch_size": plan.batch_size,
        "phases": _phases(plan),
        "shards": plan.shard_count,
        "rows_per_shard": plan.shard(0).rows,
        "batches_per_shard": plan.batches_per_shard,
        "last_shard": {"rows": last.rows, "batches": last.batches},
        "row_groups": _row_groups(plan),
        "rows_per_row_group": min(plan.batches_per_row_group * plan.batch_size, plan.shard(0).rows),
        "batches_per_row_group": plan.batches_per_row_group,
        "estimated_bytes": sum(dataset["estimated_bytes"] for dataset in datasets),
        "end": _end(planned),
        "columns": [{"name": field.name, "type": str(field.type)} for field in planned.shard_schema],
        "type_changes": [
            {
                "dataset": promotion.dataset,
                "file": promotion.file,
                "column": promotion.column,
                "stored": promotion.stored,
                "output": promotion.output,
            }
            for promotion in planned.promotions
        ],
        "writer": planned.physical,
    }


def _phases(plan: Plan) -> list[dict[str, Any]]:
    """Return what a plan says of each phase."""
    phases = []
    for phase in plan.phases:
        rule = phase.rule(phase.members, plan.batch_size)
        phases.append(
            {
                "batches": phase.batches,
                "weights": {plan.names[place]: phase.weights[place] for place in phase.members},
                "period_batches": rule.period,
            }
        )
    return phases


def _row_groups(plan: Plan) -> int:
    """Return the row groups of all shards together."""
    full, last = divmod(plan.batches, plan.batches_per_shard)
    return full * -(-plan.batches_per_shard // plan.batches_per_row_group) + -(-last // plan.batches_per_row_group)


def _dataset(planned: Planned, place: int) -> dict[str, Any]:
    """Return what a plan says of one dataset."""
    plan = planned.plan
    name, rows = plan.names[place], plan.sizes[place]
    inventory = planned.inventories[name]
    taken = plan.schedule.offsets_at(plan.batches)[place]
    exact = plan.schedule.exact_at(plan.batches)[place]
    limit = plan.limits[place]
    return {
        "name": name,
        "path": planned.config.datasets[name].path,
        "files": len(inventory.files),
        "rows": rows,
        "bytes": inventory.bytes,
        "weights": [phase.weights[place] for phase in plan.phases],
        "share": str(exact / plan.rows),
        "share_percent": wording.percent(exact, plan.rows),
        "rows_taken": taken,
        "realised_percent": wording.percent(taken, plan.rows),
        "rows_off_share": str(taken - exact),
        "rows_left": None if limit is None else limit - taken,
        "epochs": str(Fraction(taken, rows)) if rows else "0",
        "taken_percent": wording.percent(taken, rows),
        "estimated_bytes": inventory.bytes * taken // rows if rows else 0,
        "ignored": list(inventory.ignored),
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


def plan_lines(value: Mapping[str, Any], width: int | None, *, config: str) -> Iterator[str]:
    """Yield the text of a plan for a window of `width` cells.

    Args:
        value: What `plan_value` returned.
        width: None for any width.
        config: Where the config is, for the next command.
    """
    yield _pair("Output", wording.visible(value["output"]))
    yield _pair("Run", f"{value['run']}, {_action(value, config)}")
    yield ""
    yield from _dataset_lines(value, width)
    yield ""
    yield from _shape_lines(value)
    columns = ", ".join(f"{wording.visible(column['name'])} {column['type']}" for column in value["columns"])
    yield _pair("Columns", columns)
    yield from _remarks(value)


def _pair(label: str, text: str) -> str:
    return f"{label:<{LABEL_WIDTH}}{text}"


def _action(value: Mapping[str, Any], config: str) -> str:
    command = f"`mixer run {wording.visible(config)}`"
    done, shards = value["committed_shards"], value["shards"]
    match value["action"]:
        case "start":
            return f"new: {command} starts it"
        case "resume":
            return f"{done:,} of {shards:,} shards committed: {command} goes on with shard {done:,}"
        case "nothing":
            return f"finished: {command} has nothing to do"
        case _:
            return f"refused: {command} ends with the error below"


def _dataset_lines(value: Mapping[str, Any], width: int | None) -> list[str]:
    """Return a line for each dataset, in one table or, where that is too wide, in two."""
    what_is_there = ("dataset", "files", "rows", "size", "weight")
    what_is_taken = ("asked", "takes", "realised", "rows off", "left")
    rows = [*map(_cells, value["datasets"]), _sums(value)]
    header = (*what_is_there, *what_is_taken)
    if width is None or natural_width(header, rows) <= width:
        return table(header, rows, align="lrrrrrrrrr", width=width)
    there = [row[:5] for row in rows]
    taken = [(row[0], *row[5:]) for row in rows]
    return [
        *table(what_is_there, there, align="lrrrr", width=width),
        "",
        *table(("dataset", *what_is_taken), taken, align="lrrrrr", width=width),
    ]


def _cells(dataset: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        wording.visible(dataset["name"]),
        wording.count(dataset["files"]),
        wording.count(dataset["rows"]),
        wording.size(dataset["bytes"]),
        " / ".join(map(wording.count, dataset["weights"])),
        dataset["share_percent"],
        wording.count(dataset["rows_taken"]),
        dataset["realised_percent"],
        wording.signed(Fraction(dataset["rows_off_share"])),
        "no end" if dataset["rows_left"] is None else wording.count(dataset["rows_left"]),
    )


def _sums(value: Mapping[str, Any]) -> tuple[str, ...]:
    sums = {key: sum(d[key] or 0 for d in value["datasets"]) for key in ("files", "rows", "bytes", "rows_left")}
    weights = [sum(phase["weights"].values()) for phase in value["phases"]]
    return (
        "all",
        wording.count(sums["files"]),
        wording.count(sums["rows"]),
        wording.size(sums["bytes"]),
        " / ".join(map(wording.count, weights)),
        "100 %",
        wording.count(value["rows"]),
        "100 %",
        "0",
        wording.count(sums["rows_left"]),
    )


def _shape_lines(value: Mapping[str, Any]) -> Iterator[str]:
    batches, shards, last = value["batches"], value["shards"], value["last_shard"]
    in_batches = f"in {wording.plural(batches, 'batch')} of {value['batch_size']:,}"
    yield _pair("Rows", f"{value['rows']:,} {in_batches}, {_end_text(value['end'])}")
    shape = f"{shards:,} of {value['rows_per_shard']:,} rows ({wording.plural(value['batches_per_shard'], 'batch')})"
    if shards == 1:
        shape = f"1 of {last['rows']:,} rows ({wording.plural(last['batches'], 'batch')})"
    elif last["batches"] != value["batches_per_shard"]:
        shape += f", the last of {last['rows']:,} ({wording.plural(last['batches'], 'batch')})"
    yield _pair("Shards", shape)
    writer = value["writer"]
    level = f" level {writer['compression_level']}" if writer["compression_level"] is not None else ""
    yield _pair("Row groups", f"{value['row_groups']:,} of {value['rows_per_row_group']:,} rows at most")
    yield _pair(
        "Size",
        f"about {wording.size(value['estimated_bytes'])} in {writer['compression']}{level}, "
        f"if rows take what they take in the inputs",
    )
    yield from _phase_lines(value["phases"])


def _phase_lines(phases: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for place, phase in enumerate(phases):
        period = phase["period_batches"]
        exact = "every batch has exactly its shares" if period == 1 else "after each the shares are exact"
        if len(phases) == 1:
            yield _pair("Period", f"{wording.plural(period, 'batch')}: {exact}")
            return
        length = "the rest" if phase["batches"] is None else wording.plural(phase["batches"], "batch")
        who = ", ".join(f"{wording.visible(name)} {wording.count(weight)}" for name, weight in phase["weights"].items())
        yield _pair(f"Phase {place + 1}", f"{length}: {who}; period {wording.plural(period, 'batch')}")


def _end_text(end: Mapping[str, Any]) -> str:
    """Return why a run ends where it does."""
    if end["first_exhausted"] is None:
        return "all that were asked; datasets are gone through again as often as needed"
    if end["on_exhausted"] == "redistribute":
        return "all that were asked" if end["reason"] == "batches" else "all that the data gives"
    short = repr(wording.visible(end["first_exhausted"]))
    if end["reason"] == "exhausted":
        asked = f" of the {end['batches_asked']:,} asked" if end["batches_asked"] is not None else ""
        return f"as many{asked} as the data gives: {short} runs out first"
    if end["largest_batches"] == end["batches_asked"]:
        return f"all that were asked, and all that the data gives: {short} would run out next"
    return f"all that were asked; the data gives {end['largest_batches']:,}, then {short} runs out"


def _remarks(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield what changes its type, and what was passed over."""
    if value["type_changes"]:
        yield ""
        yield "Types that change, values unchanged"
        for change in value["type_changes"]:
            yield (
                f"  {wording.visible(change['dataset'])}: column {wording.visible(change['column'])!r} is stored as "
                f"{change['stored']} and written as {change['output']} ({wording.visible(change['file'])})"
            )
    for dataset in value["datasets"]:
        ignored = dataset["ignored"]
        if ignored:
            yield ""
            yield f"Ignored for {wording.visible(dataset['name'])}: {wording.plural(len(ignored), 'name')}"
            yield from wording.listed(ignored, SHOWN_IGNORED)
