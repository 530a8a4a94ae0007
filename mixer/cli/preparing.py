"""The command `mixer prepare`: the flow or the bare engine, shown while it goes, stopped where nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from mixer import building
from mixer.cli import prepare_view
from mixer.cli.console import Reply
from mixer.cli.progress import display
from mixer.cli.running import flow_of, show_part, stopped_before
from mixer.cli.stopping import StopRequest
from mixer.config import MixConfig, load_config
from mixer.errors import MixerError, StoppedError
from mixer.preparation.engine import Progress
from mixer.preparing import Preparation

FLOW_NAME = "prepare"
AGAIN = "What is prepared stays; the same command goes on from there."


class Prepare(Protocol):
    """What prepares: the engine itself, or the flow around it."""

    def __call__(
        self, config: MixConfig, *, on_part: Callable[[Progress], None], should_stop: Callable[[], bool]
    ) -> Preparation: ...


def prepare_inputs(path: str, *, with_prefect: bool, quiet: bool, debug: bool) -> Reply:
    """Answer `mixer prepare`."""
    config = load_config(path)
    # Here, too, so that no flow run fails for it.
    building.check_prepared_place(config)
    prepare: Prepare = flow_of(FLOW_NAME, debug=debug) if with_prefect else building.prepare
    before = "starting Prefect" if with_prefect else "starting"
    with StopRequest("part") as stop, display(quiet=quiet, before=before, unit="part") as shown:
        try:
            done = prepare(config, on_part=partial(show_part, shown, config), should_stop=stop)
        except StoppedError as error:
            return stopped_before(config.output, str(error), stop)
        except MixerError as error:
            if error.exit_code == MixerError.exit_code:
                error.add_note(AGAIN)
            raise
        except BaseException as error:
            # Prefect's own answer to a signal that came before the first part's edge.
            if stop.signal is None or isinstance(error, Exception):
                raise
            return stopped_before(config.output, AGAIN, stop)
    value = prepare_view.preparation_value(done)
    return Reply(value, partial(prepare_view.preparation_lines, value))
