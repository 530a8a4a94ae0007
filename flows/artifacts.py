"""What Prefect's UI shows of a run, as plain values: tables and Markdown, each below 8 KB.

A keyed artifact is stored up to three times, once inside an event, so size is bounded here: of many datasets the first
ones are shown, and how many more there are.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from mixer.core.commits import LOG_PREFIX, Commit
from mixer.core.plan import Plan
from mixer.errors import MixerError

TABLE_BYTES_MAX = 6_000
TEXT_BYTES_MAX = 7_500
_ERROR_CHARACTERS_MAX = 1_500
_MORE_BYTES = 60
_NAME_CHARACTERS_MAX = 60
_SLUG_CHARACTERS_MAX = 48
_EXACT_IN_BROWSERS = 2**53
_EXACT_DIGITS_MAX = 24
_PHASES_MAX = 8

Row = dict[str, str | int]


@dataclass(frozen=True, slots=True)
class RunView:
    """What artifacts say of a run besides its commits."""

    output: str
    fingerprint: str
    plan: Plan

    @property
    def key(self) -> str:
        """What the keys of the run's artifacts begin with."""
        return artifact_key(self.output, self.fingerprint)


def artifact_key(output: str, fingerprint: str) -> str:
    """Return what the keys of a run's artifacts begin with: Prefect allows small letters, digits and dashes.

    >>> artifact_key("s3://lake/premix/v3_A", "5f2c")
    'mixer-lake-premix-v3-a-f2837e36'
    """
    place = re.sub(r"^[a-z0-9+.-]*://", "", output.lower())
    slug = re.sub(r"[^a-z0-9]+", "-", place).strip("-")[-_SLUG_CHARACTERS_MAX:].strip("-")
    # Two outputs may read alike, and an output may be emptied and used for another run.
    digest = hashlib.sha256(f"{output}\n{fingerprint}".encode()).hexdigest()[:8]
    return "-".join(part for part in ("mixer", slug, digest) if part)


def percent(part: int | Fraction, whole: int) -> str:
    """Return a share in exact arithmetic, rounded to four decimals.

    >>> percent(2, 3), percent(0, 0), percent(10**30, 4 * 10**30)
    ('66.6667%', '-', '25.0000%')
    """
    if whole == 0:
        return "-"
    parts = (2 * 10**6 * part + whole) // (2 * whole)
    return f"{parts // 10**4}.{parts % 10**4:04d}%"


def shown_number(number: int) -> str | int:
    """Return an integer as a browser shows it rightly: as text where JSON readers would round it.

    >>> shown_number(-7), shown_number(2**60), shown_number(-(10**1000))
    (-7, '1152921504606846976', '-1.000E+1000')
    """
    if -_EXACT_IN_BROWSERS <= number <= _EXACT_IN_BROWSERS:
        return number
    text = str(number)
    return text if len(text) <= _EXACT_DIGITS_MAX else f"{Decimal(number):.3E}"


def shown_bytes(size_bytes: int) -> str:
    """Return a size for people.

    >>> shown_bytes(999), shown_bytes(12_345_678), shown_bytes(3 * 10**12)
    ('999 B', '12.3 MB', '3,000.0 GB')
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size_bytes >= size:
            return f"{size_bytes / size:,.1f} {unit}"
    return f"{size_bytes} B"


def state_table(view: RunView, commit: Commit) -> list[Row]:
    """Return the state after a commit as a table: the whole run first, then its datasets as far as there is room."""
    plan = view.plan
    done = commit.first_batch + commit.batches
    exact = plan.schedule.exact_at(done)
    rows_so_far = sum(commit.state["offsets"].values())
    table = [
        _row(commit.shard, "(all)", commit.rows, size=commit.bytes, offset=rows_so_far, carry=0, shares=("", "")),
    ]
    room = TABLE_BYTES_MAX - _json_bytes(table[0]) - _json_bytes(_row(commit.shard, "", 0)) - _NAME_CHARACTERS_MAX
    for number, (name, asked) in enumerate(zip(plan.names, exact, strict=True)):
        offset = commit.state["offsets"][name]
        row = _row(
            commit.shard,
            shown_name(name),
            commit.counts[name],
            offset=offset,
            carry=commit.state["remainder_carry"][name],
            shares=(percent(asked, rows_so_far), percent(offset, rows_so_far)),
        )
        room -= _json_bytes(row)
        if room < 0:
            more = len(plan.names) - number
            table.append(_row(commit.shard, f"({more:,} more in {LOG_PREFIX})", ""))
            break
        table.append(row)
    return table


def _row(  # noqa: PLR0913 -- a row has so many columns
    shard: int,
    dataset: str,
    rows: int | str,
    *,
    size: int | str = "",
    offset: int | str = "",
    carry: int | str = "",
    shares: tuple[str, str] = ("", ""),
) -> Row:
    return {
        "shard": shard,
        "dataset": dataset,
        "rows": rows,
        "bytes": size,
        "offset": shown_number(offset) if isinstance(offset, int) else offset,
        "carry": shown_number(carry) if isinstance(carry, int) else carry,
        "share asked": shares[0],
        "share realised": shares[1],
    }


def state_text(view: RunView, commit: Commit, *, unseen_shards: range = range(0)) -> str:
    """Return what stands above the table.

    Args:
        view: The run.
        commit: The newest commit.
        unseen_shards: Shards before it that were committed faster than they could be shown.
    """
    plan = view.plan
    done = commit.first_batch + commit.batches
    unit = shown_number(plan.schedule.unit_at(done))
    left = f"; batch {done:,} is next" if done < plan.batches else ""
    text = (
        f"**Shard {commit.shard} is committed** ({commit.shard + 1:,} of {plan.shard_count:,}): "
        f"{commit.rows:,} rows, {shown_bytes(commit.bytes)} in `{commit.path}`, sha256 `{commit.sha256[:16]}…`.\n\n"
        f"`{view.output}` has {done:,} of {plan.batches:,} batches{left}. "
        f"*rows*, *bytes*: in this shard. *offset*: rows taken so far, in all shards. "
        f"*carry*: what the mix owes a dataset, in units of 1/{unit} row."
    )
    if unseen_shards:
        text += (
            f"\n\nShards {unseen_shards.start} to {unseen_shards.stop - 1} have no version of their own here: "
            f"they were committed faster than this server could be told, or while it was away."
        )
    return text


@dataclass(frozen=True, slots=True)
class Ending:
    """How a flow run ended, as far as it is known without asking the store."""

    last: Commit | None
    """The newest commit of the run."""
    head: str
    """The chain head."""
    finished: bool
    seconds: float
    """How long the flow run took."""
    error: Exception | None = None
    """Why the run did not come to its end."""


def report_text(view: RunView, ending: Ending) -> str:
    """Return the report on a flow run that is over, in Markdown."""
    plan, last, error = view.plan, ending.last, ending.error
    shards, batches = (last.shard + 1, last.first_batch + last.batches) if last else (0, 0)
    state = last.state if last else plan.state_at(0)
    lines = [
        f"# {_headline(ending)}",
        "",
        f"- output: `{view.output}`",
        f"- shards: {shards:,} of {plan.shard_count:,}",
        f"- batches: {batches:,} of {plan.batches:,}; rows: {sum(state['offsets'].values()):,} of {plan.rows:,}",
        f"- chain head: `{ending.head}`",
        f"- this flow run took {ending.seconds:,.0f} s",
        "",
    ]
    if error is not None:
        # Only mixer's own messages are known to hold no secret.
        text = f"{type(error).__name__}: {error}" if isinstance(error, MixerError) else type(error).__name__
        lines += ["```", text[:_ERROR_CHARACTERS_MAX].replace("```", "'''"), "```", ""]
    if not ending.finished:
        lines += ["What is committed stays. Run it again to go on from there.", ""]
    lines += [
        "| dataset | weights | share asked | share realised | rows taken | rows there |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    text = "\n".join(lines)
    room = TEXT_BYTES_MAX - len(text.encode())
    return text + _dataset_lines(plan, batches, state["offsets"], room)


def _headline(ending: Ending) -> str:
    if ending.error is not None:
        return "Failed"
    return "Finished" if ending.finished else "Stopped when asked to"


def _dataset_lines(plan: Plan, batches: int, offsets: Mapping[str, int], room: int) -> str:
    """Return a table's lines, a dataset each, in `room` bytes."""
    # Before anything was made, what is asked is told of the whole run.
    exact = plan.schedule.exact_at(batches or plan.batches)
    asked_rows, rows = sum(exact), sum(offsets.values())
    room -= _MORE_BYTES
    text = "\n"
    for number, (name, asked, size) in enumerate(zip(plan.names, exact, plan.sizes, strict=True)):
        offset = offsets[name]
        shown = shown_name(name).replace("|", "\\|")
        weights = " / ".join(str(shown_number(phase.weights[number])) for phase in plan.phases[:_PHASES_MAX])
        shares = f"{percent(asked, int(asked_rows))} | {percent(offset, rows)}"
        line = f"| {shown} | {weights} | {shares} | {offset:,} | {size:,} |\n"
        room -= len(line.encode())
        if room < 0:
            return f"{text}\n… and {len(plan.names) - number:,} more datasets.\n"
        text += line
    return text


def shown_name(name: str) -> str:
    """Return a dataset's name, cut if it is long.

    >>> shown_name("web"), len(shown_name("w" * 200))
    ('web', 60)
    """
    return name if len(name) <= _NAME_CHARACTERS_MAX else name[: _NAME_CHARACTERS_MAX - 1] + "…"


def _json_bytes(row: Row) -> int:
    return len(json.dumps(row)) + 2
