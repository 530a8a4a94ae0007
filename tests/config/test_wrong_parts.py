"""Mistakes in the parts of a config that are mappings themselves: told with their place, and never a bug."""

from __future__ import annotations

import pytest

from tests.config.said import GOOD, message

BARE = GOOD.replace(", weight: 3", "").replace(", weight: 1", "")


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ("fork: {run: a}\n", "fork.shards: missing; expected a positive whole number"),
        ("fork: a\n", "fork: expected a mapping with run and shards, found the text 'a'"),
        ("fork: {runs: a, shards: 2}\n", "fork.runs: unknown key; did you mean 'run'? known keys are run, shards"),
        ("weights_by: {temprature: 2}\n", "weights_by.temprature: unknown key; did you mean 'temperature'?"),
        ("weights_by: {temperature: hot}\n", "weights_by.temperature: expected a positive number such as 2 or 0.7"),
        ("weights_by: {max_share: 30%}\n", "weights_by.max_share: expected at least 1/2 with 2 datasets"),
        (
            "phases: [{batches: 2, weights: {web: 0}}]\n",
            "phases[0].weights.web: expected a positive whole number, found 0",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(added: str, said: str) -> None:
    assert f"mix.yaml:8: {said}" in message(BARE + added)
