"""What `mixer plan` says, as text: first what comes out, then what it costs, then what is worth a remark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mixer.building import DATE
from mixer.cli import wording
from mixer.cli.plan_remarks import remarks
from mixer.cli.plan_tables import dataset_lines, phase_lines, rank_lines, token_lines
from mixer.cli.tables import folded

LABEL_WIDTH = 12
_WORTH_TELLING = 1.05
"""From so much on it is told that reading costs more than what is used."""


def plan_lines(value: Mapping[str, Any], width: int | None, *, config: str) -> Iterator[str]:
    """Yield the text of a plan for a window of `width` cells.

    Args:
        value: What `plan_value` returned.
        width: None for any width.
        config: Where the config is, for the next command.
    """
    for line in _head_lines(value, config):
        yield from folded(line, width, indent=LABEL_WIDTH)
    yield ""
    yield from dataset_lines(value, width)
    yield ""
    for line in (*_shape_lines(value), *_cost_lines(value), _columns_line(value)):
        yield from folded(line, width, indent=LABEL_WIDTH)
    if len(value["phases"]) > 1:
        yield ""
        yield from phase_lines(value["phases"], width)
    if value["length_column"] is not None:
        yield ""
        yield from _token_lines(value, width)
    yield ""
    trainers = "Trainers: with R ranks, rank r takes rows r, r+R, ... of every batch, or whole shards r, r+R, ..."
    yield from folded(trainers, width, indent=2)
    yield from rank_lines(value["ranks"], width)
    yield from remarks(value, width)


def _pair(label: str, text: str) -> str:
    return f"{label:<{LABEL_WIDTH}}{text}"


def _head_lines(value: Mapping[str, Any], config: str) -> Iterator[str]:
    yield _pair("Output", wording.visible(value["output"]))
    yield _pair("Run", f"{value['run']}, {_action(value, config)}")
    if (parent := value["parent"]) is not None:
        taken = f"{wording.plural(parent['shards'], 'shard')}, {wording.plural(parent['batches'], 'batch')}"
        yield _pair("Forked", f"the first {taken}, are those in {wording.visible(parent['output'])}")


def _columns_line(value: Mapping[str, Any]) -> str:
    columns = ", ".join(f"{wording.visible(column['name'])} {column['type']}" for column in value["columns"])
    return _pair("Columns", columns)


def _action(value: Mapping[str, Any], config: str) -> str:
    command = f"`mixer run {wording.visible(config)}`"
    done, shards = value["committed_shards"], value["shards"]
    match value["action"]:
        case "start" if DATE in value["output"]:
            return "new: a scheduled flow run starts it, with its date"
        case "start":
            return f"new: {command} starts it"
        case "resume":
            return f"{done:,} of {shards:,} shards committed: {command} goes on with shard {done:,}"
        case "extend":
            return f"longer: {done:,} of {shards:,} shards are there, {command[:-1]} --extend` makes the others"
        case "nothing":
            return f"finished: {command} has nothing to do"
        case _:
            return f"refused: {command} ends with the error below"


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
    yield _pair("Row groups", f"{value['row_groups']:,} of {value['rows_per_row_group']:,} rows at most")
    if len(value["phases"]) == 1:
        yield _period_line(value)


def _period_line(value: Mapping[str, Any]) -> str:
    period = value["phases"][0]["period_batches"]
    exact = "every batch has exactly its shares" if period == 1 else "after each the shares are exact"
    lasting = ", as long as no dataset has ended" if value["end"]["on_exhausted"] == "redistribute" else ""
    return _pair("Period", f"{wording.plural(period, 'batch')}: {exact}{lasting}")


def _cost_lines(value: Mapping[str, Any]) -> Iterator[str]:
    writer = value["writer"]
    level = f" level {writer['compression_level']}" if writer["compression_level"] is not None else ""
    yield _pair(
        "Size",
        f"about {wording.size(value['estimated_bytes'])} in {writer['compression']}{level}, "
        f"if rows take what they take in the inputs",
    )
    reads = value["reads"]
    text = f"about {wording.size(reads['bytes'])}, {wording.plural(reads['row_groups'], 'row group')}"
    text += f", {wording.plural(reads['requests'], 'ranged read')}"
    if reads["amplification"] >= _WORTH_TELLING:
        text += f"; {reads['amplification']:.2f} times what is used"
    alone = value["shards_alone"]["amplification"]
    if alone >= _WORTH_TELLING and value["shards"] > 1:
        text += f" ({alone:.2f} times if each shard were made by itself)"
    yield _pair("Reads", text)
    memory = value["peak_memory"]
    yield _pair(
        "Memory",
        f"about {wording.size(memory['bytes'])} at most: inputs {wording.size(memory['source_bytes'])}, rows under way "
        f"{wording.size(memory['block_bytes'])}, shards {wording.size(memory['shard_bytes'])}, "
        f"all else {wording.size(memory['base_bytes'])}",
    )
    if measured := value["measured"]:
        yield _pair("Measured", _measured(measured))


def _measured(measured: Mapping[str, Any]) -> str:
    return (
        f"{round(measured['rows_per_second']):,} rows/s, over the first {wording.plural(measured['rows'], 'row')}; at "
        f"that pace all takes {wording.duration(measured['estimated_seconds'])} and gives "
        f"{wording.size(measured['estimated_bytes'])}: an estimate, without the time for putting shards"
    )


def _token_lines(value: Mapping[str, Any], width: int | None) -> Iterator[str]:
    known = [dataset["tokens"] for dataset in value["datasets"] if dataset["tokens"] is not None]
    column = wording.visible(value["length_column"])
    how = "exact" if all(tokens["exact"] for tokens in known) else "~ is an estimate from the rows looked at"
    yield from folded(f"Tokens, by column {column!r} ({how}); weights count rows all the same", width, indent=2)
    yield from token_lines(value, width)


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
