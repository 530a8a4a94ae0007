"""Preparing as a Prefect flow, and the task by which a flow that mixes prepares first.

What is done is known by the copies themselves. So a flow run that failed, crashed, was cancelled or killed is simply
run again, and goes on after the last part that was done.
"""

from __future__ import annotations

import logging
from typing import Any, get_type_hints

from flows.settings import apply_defaults, is_embedded, refuse_process_pool, retry_delays

apply_defaults()

# Prefect reads its settings when it is imported, hence the order.
from prefect import flow, get_run_logger, task  # noqa: E402
from prefect.cache_policies import NO_CACHE  # noqa: E402
from prefect.client.schemas.objects import State, TaskRun  # noqa: E402
from prefect.context import FlowRunContext  # noqa: E402
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings  # noqa: E402
from prefect.states import Cancelled  # noqa: E402
from prefect.tasks import Task  # noqa: E402

from flows.artifacts import shown_bytes  # noqa: E402
from flows.caller import Caller, calling, current_caller  # noqa: E402
from flows.embedded import start_embedded_server  # noqa: E402
from flows.recording import forget_unsent, wait_until_recorded  # noqa: E402
from mixer import building  # noqa: E402
from mixer.building import OnPart, ShouldStop  # noqa: E402
from mixer.config import MixConfig  # noqa: E402
from mixer.errors import MixerError, StoppedError  # noqa: E402
from mixer.preparation.engine import Progress  # noqa: E402
from mixer.preparing import Preparation  # noqa: E402

log = logging.getLogger(f"mixer.{__name__}")

_CLIENT_RETRIES = 1


def _is_worth_a_retry(chosen: Task[Any, Any], run: TaskRun, state: State[Any]) -> bool:
    """Say whether to try a task again; asked only while there are retries left."""
    error = state.data
    if not isinstance(error, MixerError) or not error.transient:
        return False
    log.warning("trying again after a pause task=%s attempt=%d error=%s", chosen.name, run.run_count, error)
    return True


@task(
    name="prepare",
    task_run_name="prepare",
    cache_policy=NO_CACHE,
    persist_result=False,
    retry_condition_fn=_is_worth_a_retry,
)
def prepare_inputs(config: MixConfig) -> Preparation:
    """Prepare what `config` needs, or what of it is not done yet."""
    caller = current_caller.get() or Caller()
    logger = get_run_logger()

    def hear(part: Progress) -> None:
        logger.info(
            "dataset %s, %s: part %d is done: %d rows, %s",
            *(part.dataset, part.kind, part.number, part.rows, shown_bytes(part.bytes)),
        )
        if caller.on_part is not None:
            caller.on_part(part)

    return building.prepare(config, on_part=hear, should_stop=caller.should_stop)


def prepared_first(config: MixConfig, caller: Caller) -> None:
    """Prepare, as a task of its own, what a run needs that is not there yet; else no task is made.

    Raises:
        MixerError: As `mixer.building.prepare`.
    """
    try:
        is_to_prepare = building.is_to_prepare(config)
    except MixerError as error:
        # The task that opens the run meets the same trouble, and is retried where that helps.
        log.debug("cannot tell what is to be prepared error=%s", error)
        return
    if is_to_prepare:
        _called(caller)(config)


def _called(caller: Caller) -> Task[[MixConfig], Preparation]:
    """Return the task as this process wants it retried, and count its run."""
    caller.task_runs += 1
    delays = retry_delays()
    return prepare_inputs.with_options(retries=len(delays), retry_delay_seconds=delays)


@flow(name="prepare", flow_run_name="prepare {config.output}", persist_result=False, log_prints=False)
def prepare(config: MixConfig) -> Preparation | State[Any]:
    """Prepare the inputs of `config` that cannot be read from anywhere: copies in Parquet, made once.

    Args:
        config: What is to be mixed, and where the copies are to lie.
    """
    # Who serves a flow has it pickled, this function with all that it names: so it names one that is found by import.
    return _prepare(config)


# As types and not as their names: a pickled function has no module around it in which these could be looked up.
prepare.fn.__annotations__ = get_type_hints(prepare.fn)


def _prepare(config: MixConfig) -> Preparation | State[Any]:
    """Carry the flow run out, for whoever called it."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        raise RuntimeError("expected to be called by a flow run, and found none; to do without one, use mixer.prepare")
    refuse_process_pool(context.task_runner)
    caller = current_caller.get() or Caller()
    caller.prepared = caller.error = None
    caller.flow_run_id = context.flow_run.id
    if caller.should_stop is not None:
        # Prefect has just installed a handler of SIGTERM; one who stops flows by signals gets to know of it here.
        caller.should_stop()
    try:
        caller.prepared = _called(caller)(config)
    except StoppedError as error:
        caller.error = error
        return Cancelled(message=str(error))
    except Exception as error:
        caller.error = error
        raise
    for stage in caller.prepared.stages:
        get_run_logger().info(
            "dataset %s, %s: %d rows in %d parts, %s, %d put aside, %s",
            *(stage.dataset, stage.kind, stage.rows, stage.parts, shown_bytes(stage.bytes), stage.bad),
            "made now" if stage.is_new else "was there",
        )
    return caller.prepared


def run(config: MixConfig, *, on_part: OnPart | None = None, should_stop: ShouldStop | None = None) -> Preparation:
    """Run the flow in this process, on the Prefect server that is set up or one of its own; return what is prepared.

    Args:
        config: What is to be mixed.
        on_part: Hears of each part that is done, in this thread.
        should_stop: Asked at the start and at each part's edge; True ends the flow run there, as cancelled.

    Raises:
        MixerError: As from `mixer.building.prepare`, or that Prefect did not start the flow.
    """
    caller = Caller(on_part=on_part, should_stop=should_stop)
    trouble: Exception | None = None
    # Prefect's own five would hold what is done for over a minute, if the server has gone away.
    patience = temporary_settings(set_defaults={PREFECT_CLIENT_MAX_RETRIES: _CLIENT_RETRIES})
    with calling(caller), patience:
        try:
            if is_embedded():
                start_embedded_server()
            state = prepare(config, return_state=True)
            reason = f"its state is {state.name}: {state.message}"
        except Exception as error:  # noqa: BLE001 -- whatever Prefect's trouble is, what is prepared is prepared
            trouble, reason = error, f"{type(error).__name__}: {error}"
            forget_unsent()
        else:
            if caller.flow_run_id is not None and is_embedded():
                wait_until_recorded(caller.flow_run_id, caller.task_runs)
    if caller.error is not None:
        raise caller.error
    if caller.prepared is None:
        where = "a server of its own" if is_embedded() else "the server that PREFECT_API_URL names"
        raise MixerError(
            f"Prefect did not run the flow on {where}: {reason}; check the server, or do without: "
            f"`mixer prepare --no-prefect`"
        ) from trouble
    if trouble is not None:
        log.warning("the Prefect server was not told how the flow run ended error=%s", type(trouble).__name__)
    return caller.prepared
