"""The command `mixer doctor`: one call of the verb, and its result as values and as text."""

from __future__ import annotations

from functools import partial

from mixer.checkup import checkup
from mixer.cli import doctor_view
from mixer.cli.console import Failure, Reply, without_secrets
from mixer.errors import MixerError


def show_doctor(target: str | None) -> Reply:
    """Answer `mixer doctor`."""
    looked = checkup(target)
    value = doctor_view.checkup_value(looked)
    failure = None
    if not looked.ok:
        first = next(check for check in looked.checks if check.state == "failed")
        message = f"{doctor_view.result(looked.counts)}; the first: {first.area}, {first.name}: {first.found}"
        failure = Failure(MixerError.__name__, without_secrets(message), MixerError.exit_code)
    return Reply(value, partial(doctor_view.checkup_lines, value), failure)
