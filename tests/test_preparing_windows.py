"""What is wrong with a tokenizer is told before the stages that come first have taken their hours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import mixer
from mixer.config import MixConfig, config_from
from mixer.errors import ConfigError
from tests.preparing import values


@pytest.mark.parametrize("verb", [mixer.prepare, mixer.build, mixer.plan])
def test_a_tokenizer_that_cannot_be_used_is_told_before_anything_is_prepared(
    tmp_path: Path, verb: Callable[[MixConfig], object]
) -> None:
    asked = values(tmp_path)
    asked["datasets"]["web"]["window"] = {"context_length": 4, "tokenizer": str(tmp_path / "misspelt.json")}
    with pytest.raises(ConfigError, match=r"datasets\.web\.window\.tokenizer: .*misspelt\.json"):
        verb(config_from(asked))
    assert not list(tmp_path.rglob("begun.json"))
