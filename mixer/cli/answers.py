"""The commands that only look: each one call of a verb, and its result as values and as text."""

from __future__ import annotations

import json
from functools import partial

from mixer.building import status
from mixer.cli import diff_view, gc_view, head_view, plan_view, run_view, verify_view, where_view
from mixer.cli.console import Failure, Reply, failure_of, say, without_secrets
from mixer.cli.pace import Step
from mixer.cli.plan_value import plan_value
from mixer.cli.progress import display
from mixer.collecting import Item, gc
from mixer.comparing import compare
from mixer.config import json_schema, load_config
from mixer.errors import CorruptionError, StoreError
from mixer.heading import head
from mixer.locating import where
from mixer.previewing import preview
from mixer.sampling import measure, sample_lengths
from mixer.verifying import Checked, verify


def show_plan(config: str, *, measured: bool = False) -> Reply:
    """Answer `mixer plan`."""
    asked = load_config(config)
    seen = preview(asked)
    # What is refused anyway is not worth the time, and its inputs may be gone.
    pace = measure(seen.planned) if measured and seen.refusal is None else None
    column = asked.length_column if seen.refusal is None else None
    lengths = None if column is None else sample_lengths(seen.planned, column)
    value = plan_value(seen, pace=pace, lengths=lengths, length_column=column)
    failure = failure_of(seen.refusal) if seen.refusal else None
    return Reply(value, partial(plan_view.plan_lines, value, config=config), failure)


def show_difference(config: str, old: str) -> Reply:
    """Answer `mixer plan --diff`."""
    value = diff_view.difference_value(compare(load_config(config), old), config)
    return Reply(value, lambda _width: diff_view.difference_lines(value))


def show_schema() -> Reply:
    """Answer `mixer schema`."""
    schema = json_schema()
    return Reply(schema, lambda _width: json.dumps(schema, indent=2).split("\n"))


def show_status(output: str) -> Reply:
    """Answer `mixer status`."""
    value = run_view.summary_value(status(output))
    return Reply(value, partial(run_view.summary_lines, value))


def show_verify(output: str, *, quiet: bool) -> Reply:
    """Answer `mixer verify`."""
    with display(quiet=quiet) as shown:

        def on_object(checked: Checked) -> None:
            shown.shards(checked.shards)
            shown.step(Step(checked.done, checked.rows, checked.bytes, checked.path))

        report = verify(output, on_object=on_object)
    value = verify_view.report_value(report)
    failure = None
    if not report.ok:
        message = f"{report.output}: {verify_view.found(len(report.problems))}"
        failure = Failure(CorruptionError.__name__, message, CorruptionError.exit_code)
    return Reply(value, partial(verify_view.report_lines, value), failure)


def show_head(output: str, rows: int, *, batch: int) -> Reply:
    """Answer `mixer head`."""
    found = head(output, rows, batch=batch)
    return Reply(head_view.rows_value(found), partial(head_view.rows_lines, found))


def show_where(  # noqa: PLR0913 -- two questions, each by its own names
    output: str, *, batch: int | None, slot: int | None, dataset: str | None, row: int | None, epoch: int | None
) -> Reply:
    """Answer `mixer where`."""
    value = where_view.where_value(where(output, batch=batch, slot=slot, dataset=dataset, row=row, epoch=epoch))
    return Reply(value, partial(where_view.where_lines, value))


def show_gc(output: str, *, delete: bool, quiet: bool) -> Reply:
    """Answer `mixer gc`."""

    def on_delete(item: Item) -> None:
        if not quiet:
            say(without_secrets(gc_view.deleted_line(item)))

    garbage = gc(output, delete=delete, on_delete=on_delete)
    value = gc_view.garbage_value(garbage, delete=delete)
    failure = None
    if garbage.refused:
        message = f"{output}: {gc_view.could_not(len(garbage.refused))}: {garbage.refused[0].error}"
        failure = Failure(StoreError.__name__, without_secrets(message), StoreError.exit_code)
    return Reply(value, partial(gc_view.garbage_lines, value), failure)
