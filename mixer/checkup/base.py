"""What a check says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mixer.storage.urls import redact

State = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    area: str
    """What it is a part of: ``versions``, ``machine``, ``prefect``, ``inputs`` or ``output``."""
    name: str
    state: State
    """``failed`` is what keeps a run from going well, ``warning`` what may."""
    found: str
    """What was found, without secrets."""
    advice: str = ""
    """What to do about it; empty if nothing."""


@dataclass(frozen=True, slots=True)
class Checks:
    """Makes the checks of one area; takes what may be secret out of whatever they say."""

    area: str

    def ok(self, name: str, found: str) -> Check:
        """Return a check that went well."""
        return Check(self.area, name, "ok", redact(found))

    def warning(self, name: str, found: str, advice: str) -> Check:
        """Return a check that found what may do harm."""
        return Check(self.area, name, "warning", redact(found), redact(advice))

    def failed(self, name: str, found: str, advice: str = "") -> Check:
        """Return a check that found what keeps a run from going well."""
        return Check(self.area, name, "failed", redact(found), redact(advice))


@dataclass(frozen=True, slots=True)
class Checkup:
    """All that was looked at."""

    output: str | None
    """The output among it, without secrets; None if none was given."""
    checks: tuple[Check, ...]

    @property
    def counts(self) -> Mapping[str, int]:
        """How many checks there are of each state."""
        states: tuple[State, ...] = ("ok", "warning", "failed")
        return {state: sum(check.state == state for check in self.checks) for state in states}

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not self.counts["failed"]
