"""Preparing as a Prefect flow, and the task by which a flow that mixes prepares first.

What is done is known by the copies themselves. So a flow run that failed, crashed, was cancelled or killed is simply
run again, and goes on after the last part that was done.
"""

from __future__ import annotations

import logging
from typing import Any, get_type_hints

from flows.settings import apply_defaults

apply_defaults()

# Prefect reads its settings when it is imported, hence the order.
from prefect import flow, get_run_logger, task  # noqa: E402
from prefect.cache_policies import NO_CACHE  # noqa: E402
from prefect.client.schemas.objects import State  # noqa: E402
from prefect.states import Cancelled  # noqa: E402

from flows.artifacts import shown_bytes  # noqa: E402
from flows.caller import Caller, current_caller  # noqa: E402
from flows.running import called, entered, is_worth_a_retry, run_here  # noqa: E402
from flows.settling import GivenMix, mix_of  # noqa: E402
from mixer import building  # noqa: E402
from mixer.building import OnPart, ShouldStop  # noqa: E402
from mixer.config import MixConfig  # noqa: E402
from mixer.errors import MixerError, StoppedError  # noqa: E402
from mixer.preparation.engine import Progress  # noqa: E402
from mixer.preparing import Preparation  # noqa: E402

log = logging.getLogger(f"mixer.{__name__}")


@task(
    name="prepare",
    task_run_name="prepare",
    cache_policy=NO_CACHE,
    persist_result=False,
    retry_condition_fn=is_worth_a_retry,
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
        called(prepare_inputs, caller)(config)


@flow(name="prepare", persist_result=False, log_prints=False)
def prepare(config: GivenMix) -> Preparation | State[Any]:
    """Prepare the inputs of `config` that cannot be read from anywhere: copies in Parquet, made once.

    Args:
        config: What is to be mixed, and where the copies are to lie.
    """
    # Who serves a flow has it pickled, this function with all that it names: so it names one that is found by import.
    return _prepare(config)


# As types and not as their names: a pickled function has no module around it in which these could be looked up.
prepare.fn.__annotations__ = get_type_hints(prepare.fn, include_extras=True)


def _prepare(config: object) -> Preparation | State[Any]:
    """Carry the flow run out, for whoever called it."""
    caller = current_caller.get() or Caller()
    caller.prepared = caller.error = None
    flow_run, client = entered(caller, without="mixer.prepare")
    mix = mix_of(config)
    client.update_flow_run(flow_run.id, name=f"prepare {mix.output}")
    if caller.should_stop is not None:
        # Prefect has just installed a handler of SIGTERM; one who stops flows by signals gets to know of it here.
        caller.should_stop()
    try:
        caller.prepared = called(prepare_inputs, caller)(mix)
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
    return run_here(
        lambda: prepare(config, return_state=True),
        caller,
        lambda: caller.prepared,
        command="mixer prepare --no-prefect",
    )
