"""Making a run longer: what a config may ask of a run that is there, and what the run becomes by it.

A run is extended by an ``amend`` slot in its log. Nothing that is there is touched: an extension adds batches after
the last one that was planned, and every batch that was planned before stays what it was, by its rule, not only by what
comes of it. So every state in the log is what it would have been had the run been this long from the start. Only a
shard that ended short because the run ended there stays short, and the next one begins with the batch after it.

``run.json`` says what the run began as; with the newest amendment, which every later slot names, it is the whole plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mixer import planning
from mixer.asking import epochs_in
from mixer.config import MixConfig
from mixer.core import commits
from mixer.core.commits import Amendment, Commit, Slot
from mixer.core.plan import first_change
from mixer.differing import check_same, row_differences
from mixer.errors import ChangedError, CorruptionError, NotEnoughDataError
from mixer.log import Tail
from mixer.planning import Planned

_GROWING = ("batches", "rows", "phases", "weights_by")
_GROWING_OF_DATASETS = ("weight", "share")
"""Fields in which an extension may differ: those that say how long a run is, and with which weights it goes on."""


def amended(started: Planned, slot: Slot, where: str) -> Planned:
    """Return what the run that began as `started` is from the ``amend`` slot `slot` on.

    Raises:
        CorruptionError: The slot does not say so, or its hash is not that of what it says.
    """
    amendment = commits.amendment_from(slot.payload, where)
    try:
        config = _with_asked(started.config, amendment.asked)
        run = planning.replanned(started, config, cuts=tuple(amendment.cuts), extensions=amendment.number)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptionError(f"{where}: not an amendment: {type(error).__name__}: {error}") from error
    if run.run != amendment.run:
        raise CorruptionError(
            f"{where}: its hash is not that of what it makes of {commits.RUN_NAME}; restore one of them from a copy"
        )
    if first_change(started.plan, run.plan) is not None or run.plan.batches <= started.plan.batches:
        raise CorruptionError(f"{where}: it changes what was planned before it; restore it from a copy")
    edges = (0, *amendment.cuts, amendment.batches)
    if not all(start < stop for start, stop in pairwise(edges[:-1])) or edges[-2] > edges[-1]:
        raise CorruptionError(f"{where}: no shards end at {list(amendment.cuts)} before it; restore it from a copy")
    return run


def current(started: Planned, tail: Tail, output: str) -> Planned:
    """Return what the run that began as `started` is at the end of its log.

    Raises:
        CorruptionError: The newest amendment is damaged.
    """
    if tail.amended is None:
        return started
    return amended(started, tail.amended, f"{output}/{commits.slot_name(tail.amended.number)}")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a start asks of a run that is there."""

    config: MixConfig
    extend: bool
    """Whether it may get longer."""
    allow_repack: bool
    """Whether further shards may be written under other settings."""


def going_on(started: Planned, run: Planned, asked: Asked, tail: Tail) -> tuple[Planned, Amendment | None]:
    """Return how a run goes on, and the amendment that must be written before if it gets longer.

    Args:
        started: What the run began as.
        run: What it is now.
        asked: What is asked of it.
        tail: The end of its log.

    Raises:
        ChangedError: The config is neither what the run was started or extended with, nor an extension that is allowed.
        NotEnoughDataError: It is an extension, and the inputs have too few rows for it.
    """
    config, allow_repack = asked.config, asked.allow_repack
    if not row_differences(run.config, config):
        return check_same(run, config, allow_repack=allow_repack), None
    try:
        longer, amendment = _extension(started, run, config, tail.commit, tail.head)
    except NotEnoughDataError as error:
        if asked.extend:
            raise
        raise _refusal(run, config, f"It cannot be extended so: {error}") from error
    if not asked.extend:
        raise _refusal(
            run,
            config,
            "That only makes the run longer: `mixer run --extend`, in Python `extend=True`, does it and touches "
            "nothing that is there. Else go back to the former config, or choose another output.",
        )
    return check_same(longer, config, allow_repack=allow_repack), amendment


def _extension(
    started: Planned, run: Planned, config: MixConfig, last: Commit | None, head: str
) -> tuple[Planned, Amendment]:
    """Return what `config` extends `run` to after the commit `last`, and how.

    Raises:
        ChangedError: It is no extension.
        NotEnoughDataError: It is one, and the inputs have too few rows.
    """
    grown = _grown(started.config, config)
    check_only_longer(run, config)
    shards, batches = run.done(last)
    try:
        longer = planning.replanned(started, grown, cuts=_cuts(run, batches), extensions=run.extensions + 1)
    except NotEnoughDataError as error:
        raise NotEnoughDataError(f"{error} {_kept(started)}") from error
    changed = first_change(run.plan, longer.plan)
    if changed is not None and changed < min(run.plan.batches, longer.plan.batches):
        raise _refusal(
            run,
            config,
            f"From batch {changed} on it would be another mix, and {run.plan.batches} batches are planned. What is "
            f"planned does not change: keep its phases as they are, and append to them.",
        )
    if longer.plan.batches <= run.plan.batches:
        raise _refusal(
            run,
            config,
            f"That gives {longer.plan.batches} batches, and the run has {run.plan.batches}: it can only get longer.",
        )
    return longer, Amendment(
        number=longer.extensions,
        run=longer.run,
        asked=_asked(started.config, grown),
        cuts=longer.plan.cuts,
        shards=shards,
        batches=batches,
        prev=head,
    )


def _kept(run: Planned) -> str:
    """Return why more data is of no use to a run that is there, and what to do instead."""
    why = "A run keeps the inputs that it was started with: what is added to them now needs another output."
    copies = [
        f"{name!r} holds {epochs_in(run.inventories[name])}"
        for name, dataset in run.config.datasets.items()
        if dataset.shuffle == "full" and run.config.on_exhausted == "repeat"
    ]
    if copies:
        why += (
            f" Of datasets with `shuffle: full` it keeps the copies, with as many epochs as it began: that of "
            f"{', that of '.join(copies)}. To take more, start another output with the longer config: its batches are "
            f"the same as far as those of this run go."
        )
    return why


def check_only_longer(run: Planned, config: MixConfig) -> None:
    """Check that `config` differs from that of `run` in nothing but what may make it longer, however often it was.

    Raises:
        ChangedError: It does; what is listed is what no extension may change.
    """
    others = row_differences(_grown(run.config, config), config)
    if others:
        raise _refused(
            config,
            others,
            "A run can be made longer: `batches` or `rows` raised, `phases` lengthened at the end. All else stays as "
            "it was: go back to the former config, or choose another output.",
        )


def _refusal(run: Planned, config: MixConfig, why: str) -> ChangedError:
    return _refused(config, row_differences(run.config, config), why)


def _refused(config: MixConfig, rows: list[str], why: str) -> ChangedError:
    listed = "\n  ".join(rows)
    return ChangedError(
        f"{config.output}: holds a run of another definition, which is never changed:\n  {listed}\n{why}"
    )


def _cuts(run: Planned, batches: int) -> tuple[int, ...]:
    """Return where shards end short if the committed ones, of `batches` batches in all, are followed by more."""
    cuts = run.plan.cuts
    is_short = (batches - (cuts[-1] if cuts else 0)) % run.plan.batches_per_shard
    return (*cuts, batches) if is_short else cuts


def _grown(was: MixConfig, now: MixConfig) -> MixConfig:
    """Return `was` with what an extension may change taken from `now`."""
    datasets = {
        name: dataset.model_copy(
            update={key: getattr(now.datasets[name], key) for key in _GROWING_OF_DATASETS}
            if name in now.datasets
            else {}
        )
        for name, dataset in was.datasets.items()
    }
    return was.model_copy(update={**{key: getattr(now, key) for key in _GROWING}, "datasets": datasets})


def _asked(was: MixConfig, now: MixConfig) -> dict[str, Any]:
    """Return the fields that `_grown` has changed, as plain values."""
    before, after = was.model_dump(mode="json"), now.model_dump(mode="json")
    asked = {key: after[key] for key in _GROWING if after[key] != before[key]}
    datasets = {
        name: {key: after["datasets"][name][key] for key in _GROWING_OF_DATASETS}
        for name, dataset in before["datasets"].items()
        if any(after["datasets"][name][key] != dataset[key] for key in _GROWING_OF_DATASETS)
    }
    return {**asked, **({"datasets": datasets} if datasets else {})}


def _with_asked(was: MixConfig, asked: Mapping[str, Any]) -> MixConfig:
    """Return `was` with the fields that `_asked` gave.

    Raises:
        ValueError: They are not such fields, or what they make is no config.
    """
    values = was.model_dump(mode="json")
    datasets = asked.get("datasets", {})
    if not set(asked) <= {*_GROWING, "datasets"} or not all(
        set(fields) <= set(_GROWING_OF_DATASETS) for fields in datasets.values()
    ):
        raise ValueError("it changes what no extension does")
    for name, fields in datasets.items():
        values["datasets"][name].update(fields)
    return MixConfig.model_validate({**values, **asked, "datasets": values["datasets"]})
