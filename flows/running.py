"""What every flow of ours has in common: how its tasks are called and retried, and how it is run in this process.

Import it after `flows.settings.apply_defaults` was called.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun, State, TaskRun
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.tasks import Task

from flows.caller import Caller, calling
from flows.embedded import start_embedded_server
from flows.recording import forget_unsent, wait_until_recorded
from flows.settings import is_embedded, refuse_process_pool, retry_delays
from mixer.errors import MixerError

log = logging.getLogger(f"mixer.{__name__}")

_CLIENT_RETRIES = 1

P = ParamSpec("P")
R = TypeVar("R")


def is_worth_a_retry(chosen: Task[Any, Any], run: TaskRun, state: State[Any]) -> bool:
    """Say whether to try a task again; asked only while there are retries left."""
    error = state.data
    if not isinstance(error, MixerError) or not error.transient:
        return False
    log.warning("trying again after a pause task=%s attempt=%d error=%s", chosen.name, run.run_count, error)
    return True


def called(chosen: Task[P, R], caller: Caller) -> Task[P, R]:
    """Return a task as this process wants it retried, and count its run."""
    caller.task_runs += 1
    delays = retry_delays()
    return chosen.with_options(retries=len(delays), retry_delay_seconds=delays)


def entered(caller: Caller, *, without: str) -> tuple[FlowRun, SyncPrefectClient]:
    """Return the flow run that this is, of which `caller` gets to know, and the client of its server.

    Args:
        caller: Who called the flow.
        without: What does the same without a flow, to be told to who is in none.
    """
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        raise RuntimeError(f"expected to be called by a flow run, and found none; to do without one, use {without}")
    if not isinstance(context.client, SyncPrefectClient):
        raise TypeError(f"expected the client of a flow that is not async, found {type(context.client).__name__}")
    refuse_process_pool(context.task_runner)
    caller.flow_run_id = context.flow_run.id
    return context.flow_run, context.client


def run_here(flow: Callable[[], State[Any]], caller: Caller, result: Callable[[], R | None], *, command: str) -> R:
    """Run a flow in this process, on the Prefect server that is set up or one of its own; return what it has made.

    Args:
        flow: Calls the flow, and returns its state.
        caller: Who calls it.
        result: Gives what the flow left for `caller`; None if it did not come so far.
        command: What does without Prefect, to be told if that did not run the flow.

    Raises:
        MixerError: The flow's own, or that Prefect did not run it.
    """
    trouble: Exception | None = None
    # Prefect's own five would hold a finished run for over a minute, if the server has gone away.
    patience = temporary_settings(set_defaults={PREFECT_CLIENT_MAX_RETRIES: _CLIENT_RETRIES})
    with calling(caller), patience:
        try:
            if is_embedded():
                start_embedded_server()
            state = flow()
            reason = f"its state is {state.name}: {state.message}"
        except Exception as error:  # noqa: BLE001 -- whatever Prefect's trouble is, what is done is done
            trouble, reason = error, f"{type(error).__name__}: {error}"
            forget_unsent()
        else:
            if caller.flow_run_id is not None and is_embedded():
                wait_until_recorded(caller.flow_run_id, caller.task_runs)
    if caller.error is not None:
        raise caller.error
    made = result()
    if made is None:
        where = "a server of its own" if is_embedded() else "the server that PREFECT_API_URL names"
        raise MixerError(
            f"Prefect did not run the flow on {where}: {reason}; check the server, or do without: `{command}`"
        ) from trouble
    if trouble is not None:
        log.warning("the Prefect server was not told how the flow run ended error=%s", type(trouble).__name__)
    return made
