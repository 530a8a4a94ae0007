"""Where Prefect is told to find its server, read as Prefect reads it but without importing it, which takes seconds.

First come environment variables, then ``.env``, ``prefect.toml`` and ``pyproject.toml`` of the working folder, then the
active profile.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z0-9_]+)\s*=\s*(.*?)\s*")
_QUOTED = re.compile(r"(['\"])(.*)\1")


def prefect_home() -> Path:
    """Return the folder in which Prefect keeps its own."""
    return Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()


def prefect_setting(name: str) -> tuple[str, str] | None:
    """Return a setting's value and where it comes from; None if it is nowhere set.

    Args:
        name: Its environment variable, such as ``PREFECT_API_URL``.
    """
    for where, values in _places(name):
        value = values.get(name)
        if value is not None and str(value):
            return str(value), where
    return None


def _places(name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield "the environment", os.environ
    yield ".env", dict(_dotenv(Path(".env")))
    path = name.removeprefix("PREFECT_").lower().split("_", maxsplit=1)
    yield "prefect.toml", {name: _inside(_toml(Path("prefect.toml")), path)}
    yield "pyproject.toml", {name: _inside(_toml(Path("pyproject.toml")), ["tool", "prefect", *path])}
    profiles = _toml(Path(os.environ.get("PREFECT_PROFILES_PATH") or prefect_home() / "profiles.toml"))
    active = os.environ.get("PREFECT_PROFILE") or profiles.get("active")
    yield f"the profile {active}", {name: _inside(profiles, ["profiles", str(active), name])}


def _inside(values: Mapping[str, Any], path: list[str]) -> Any:
    """Return what lies at a path of keys; None if nothing does."""
    found: Any = values
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return None if isinstance(found, Mapping) else found


def _toml(path: Path) -> Mapping[str, Any]:
    """Return what a file says; nothing if there is none, or none that can be read, as Prefect itself will tell."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _dotenv(path: Path) -> Iterator[tuple[str, str]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    for match in filter(None, map(_LINE.fullmatch, lines)):
        quoted = _QUOTED.fullmatch(match[2])
        yield match[1], quoted[2] if quoted else match[2]
