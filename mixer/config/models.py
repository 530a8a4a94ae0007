"""A config: fields that are right by themselves, and that go together."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from mixer.config.between import between_fields
from mixer.config.fields import MixFields

PROBLEMS = "mixer_problems"
"""Type of the error that holds, as ``problems`` in its context, a message for each of several fields."""


class MixConfig(MixFields):
    """A mix: which datasets, in which proportions, cut into which batches and shards, written where."""

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if problems := list(between_fields(self)):
            text = "; ".join(f"{place[-1]}: {problem}" for place, problem in problems)
            raise PydanticCustomError(PROBLEMS, "{text}", {"text": text, "problems": problems})
        return self
