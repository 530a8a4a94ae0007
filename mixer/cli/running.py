"""The command `mixer run`: the flow or the bare engine, shown while it goes, stopped where nothing is lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from typing import Any, Protocol

from mixer import building
from mixer.building import RunSummary
from mixer.cli import run_view, wording
from mixer.cli.console import Failure, Reply, without_secrets
from mixer.cli.pace import Step
from mixer.cli.progress import Display, display
from mixer.cli.stopping import StopRequest
from mixer.config import MixConfig, load_config
from mixer.core import commits
from mixer.core.commits import Commit
from mixer.errors import MixerError, StoppedError
from mixer.preparation.engine import Progress
from mixer.preparation.record import FOLDER
from mixer.storage import open_store

FLOW_GROUP, FLOW_NAME = "mixer.flows", "premix"
CONSOLE_LEVEL = "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"
"""What Prefect shows on stderr; its server gets all."""
AGAIN = "What is committed stays; the same command goes on from there."
MEND = "This command has committed nothing. Mend this, then run it again: it begins, or goes on from what is committed."

EITHER = "part or shard"
"""What a run works on before its first commit: whether inputs are to be prepared is not known before."""
GONE = "The output was removed meanwhile, so nothing is left to go on from; the same command begins anew."


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the user has allowed beside the usual; each as in `mixer.building.start`."""

    repack: bool
    unsafe_store: bool
    extend: bool = False


class Build(Protocol):
    """What brings a run to its end: the engine itself, or the flow around it."""

    def __call__(  # noqa: PLR0913 -- each is one independent choice
        self,
        config: MixConfig,
        *,
        extend: bool,
        allow_repack: bool,
        accept_unsafe_store: bool,
        on_commit: Callable[[Commit], None],
        on_part: Callable[[Progress], None],
        should_stop: Callable[[], bool],
    ) -> RunSummary: ...


def run_config(path: str, *, allowed: Allowed, with_prefect: bool, quiet: bool, debug: bool) -> Reply:
    """Answer `mixer run`."""
    config = load_config(path)
    # Here, too, so that no flow run fails for it.
    building.refuse_date(config)
    build: Build = flow_of(FLOW_NAME, debug=debug) if with_prefect else building.build
    before = "starting Prefect" if with_prefect else "starting"
    with StopRequest(EITHER) as stop, display(quiet=quiet, before=before) as shown:
        try:
            summary = _build(build, config, stop, shown, allowed)
        except StoppedError as error:
            # There is no run yet of which anything could be said.
            return stopped_before(config.output, str(error), stop)
    value = run_view.summary_value(summary)
    failure = None
    if not summary.finished and stop.signal is not None:
        message = f"{stop.signal.name}: stopped at a shard's edge. {AGAIN}"
        failure = Failure("Stopped", message, stop.exit_code)
    return Reply(value, partial(run_view.summary_lines, value), failure)


def stopped_before(output: str, message: str, stop: StopRequest) -> Reply:
    """Return the answer of a command that was asked to stop while it prepared inputs."""
    signal_name = "" if stop.signal is None else f"{stop.signal.name}: "
    exit_code = StoppedError.exit_code if stop.signal is None else stop.exit_code
    failure = Failure("Stopped", without_secrets(f"{signal_name}{message}"), exit_code)
    return Reply(
        {"output": output},
        lambda _width: [f"Output  {wording.visible(output)}, stopped before all is prepared"],
        failure,
    )


def _build(build: Build, config: MixConfig, stop: StopRequest, shown: Display, allowed: Allowed) -> RunSummary:
    """Return how far the run came; a failure that can be mended by trying again says so."""
    told = False

    def on_commit(commit: Commit) -> None:
        nonlocal told
        if not told:
            told = True
            stop.unit = "shard"
            _, planned = building.existing(config.output)
            shown.shards(planned.plan.shard_count)
        shown.step(Step(commit.shard + 1, commit.rows, commit.bytes, commit.path))

    try:
        return build(
            config,
            extend=allowed.extend,
            allow_repack=allowed.repack,
            accept_unsafe_store=allowed.unsafe_store,
            on_commit=on_commit,
            on_part=partial(show_part, shown, config),
            should_stop=stop,
        )
    except StoppedError:
        raise
    except MixerError as error:
        if error.exit_code == MixerError.exit_code:
            gone = told and _is_gone(config.output, error)
            error.add_note(GONE if gone else AGAIN if told else MEND)
        raise
    except BaseException as error:
        # Prefect's own answer to a signal that came before the first shard's edge.
        if stop.signal is None or isinstance(error, Exception):
            raise
        return building.status(config.output)


def show_part(shown: Display, config: MixConfig, part: Progress) -> None:
    """Show one more part of a prepared copy of what `config` mixes."""
    what = f"{part.kind} of {wording.visible(part.dataset)}"
    place = FOLDER if config.prepared is None else f"{without_secrets(config.prepared).rstrip('/')}/"
    shown.prepared(Step(part.number + 1, part.rows, part.bytes, f"{wording.visible(place)}{part.path}"), what)


def _is_gone(output: str, error: MixerError) -> bool:
    """Return whether the run that `error` ended is no more; a store that does not answer is not asked again."""
    if error.transient:
        return False
    try:
        return open_store(output).stat(commits.RUN_NAME) is None
    except MixerError:
        return False


def flow_of(name: str, *, debug: bool) -> Any:
    """Return the function that runs the flow `name` that is installed; only here is Prefect loaded."""
    if not debug and "PREFECT_LOGGING_LEVEL" not in os.environ:
        # What fails is said once, by this command; Prefect would say it before, for task and flow, with tracebacks.
        os.environ.setdefault(CONSOLE_LEVEL, "CRITICAL")
    found = list(entry_points(group=FLOW_GROUP, name=name))
    if not found:
        raise MixerError(
            f"no flow is installed (entry point {name!r} of {FLOW_GROUP!r}); reinstall mixer, or use --no-prefect"
        )
    return found[0].load()
