"""The command `mixer`: arguments into one call of a verb, and its result onto stdout."""

from __future__ import annotations

from mixer.cli.app import app, main

__all__ = ["app", "main"]
