"""Mix datasets by exact integer weights into Parquet shards, and resume to the same bytes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mixer.batcher import DataBatcher
    from mixer.building import build, fork, plan, prepare, status
    from mixer.config import MixConfig
    from mixer.core.commits import Commit
    from mixer.core.plan import Plan
    from mixer.errors import (
        ChangedError,
        ConfigError,
        CorruptionError,
        DatasetError,
        ExhaustedError,
        FencedError,
        InputError,
        MixerError,
        NotEnoughDataError,
        NotPreparedError,
        OutputError,
        SchemaError,
        StoppedError,
        StoreError,
        StoreUnavailableError,
    )
    from mixer.locating import where
    from mixer.reading import read
    from mixer.verifying import verify

__all__ = [
    "ChangedError",
    "Commit",
    "ConfigError",
    "CorruptionError",
    "DataBatcher",
    "DatasetError",
    "ExhaustedError",
    "FencedError",
    "InputError",
    "MixConfig",
    "MixerError",
    "NotEnoughDataError",
    "NotPreparedError",
    "OutputError",
    "Plan",
    "SchemaError",
    "StoppedError",
    "StoreError",
    "StoreUnavailableError",
    "build",
    "fork",
    "plan",
    "prepare",
    "read",
    "status",
    "verify",
    "where",
]

_HOMES = {
    "Commit": "mixer.core.commits",
    "DataBatcher": "mixer.batcher",
    "MixConfig": "mixer.config",
    "Plan": "mixer.core.plan",
    "build": "mixer.building",
    "fork": "mixer.building",
    "plan": "mixer.building",
    "prepare": "mixer.building",
    "read": "mixer.reading",
    "status": "mixer.building",
    "verify": "mixer.verifying",
    "where": "mixer.locating",
}
"""Where the public names that are no errors live."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: `import mixer` and `mixer --help` need not wait for Arrow."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES.get(name, "mixer.errors")), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
