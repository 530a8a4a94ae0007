"""The public face is short, pinned and documented: adding to it, or taking from it, is a decision."""

from __future__ import annotations

import inspect

import pytest

import mixer
from mixer import errors

PINNED = [
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


def test_the_public_names_are_the_pinned_ones() -> None:
    assert list(mixer.__all__) == PINNED
    assert sorted(PINNED) == PINNED


def test_every_error_is_public() -> None:
    raised = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, Exception) and value.__module__ == "mixer.errors"
    }
    assert raised == {name for name in PINNED if name.endswith("Error")}


@pytest.mark.parametrize("name", PINNED)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(mixer, name)
    assert value.__name__ == name
    assert value.__module__.startswith("mixer.")
    # A dataclass without a docstring gets its signature as one.
    assert value.__doc__ is not None
    assert not value.__doc__.startswith(f"{name}(")


@pytest.mark.parametrize("name", ["build", "plan", "prepare", "read", "status", "verify", "where"])
def test_every_verb_says_what_it_takes_and_gives(name: str) -> None:
    signature = inspect.signature(getattr(mixer, name))
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(p.annotation is not inspect.Parameter.empty for p in signature.parameters.values())
    options = [p for p in signature.parameters.values() if p.default is not inspect.Parameter.empty]
    assert [p.name for p in options if p.kind is not inspect.Parameter.KEYWORD_ONLY] == []


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'mixer' has no attribute 'bild'"):
        mixer.bild  # noqa: B018 -- the look-up is what is tried


def test_names_are_listed_before_they_are_used() -> None:
    assert set(PINNED) <= set(dir(mixer))
