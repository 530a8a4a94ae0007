"""Versions are held to what the package itself asks for."""

from __future__ import annotations

import tomllib
from datetime import date
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixer.checkup.base import Check
from mixer.checkup.versions import NAMED_BY_MONTH, bounds_of, judge, numbers, version_checks

TODAY = date(2026, 11, 30)
VERSION = "mixer.checkup.versions.version"
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def found() -> dict[str, Check]:
    return {check.name: check for check in version_checks()}


def test_what_is_installed_here_is_new_enough() -> None:
    checks = found()
    assert {"python", "mixer", "pyarrow", "fsspec", "s3fs", "prefect", "numpy"} <= checks.keys()
    assert {check.state for check in checks.values()} == {"ok"}
    assert all("released" in checks[name].found for name in NAMED_BY_MONTH if name in checks)


def test_an_s3fs_whose_listings_can_be_short_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VERSION, lambda name: "2026.8.0" if name == "s3fs" else version(name))
    check = found()["s3fs"]
    assert (check.state, check.found) == ("failed", "2026.8.0, released 3 months ago")
    assert check.advice == (
        "expected >=2026.9; a listing of an older one can be short without an error: pip install 's3fs>=2026.9'"
    )


@pytest.mark.parametrize(("package", "state"), [("s3fs", "failed"), ("gcsfs", None)])
def test_what_is_not_installed_fails_unless_it_is_an_extra(
    monkeypatch: pytest.MonkeyPatch, package: str, state: str | None
) -> None:

    def without(name: str) -> str:
        if name == package:
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(VERSION, without)
    check = found().get(package)
    assert (check.state if check else None) == state


def test_a_version_that_is_too_new_fails() -> None:
    bounds = bounds_of(["prefect<3.10,>=3.9.1"])["prefect"]
    states = [judge("prefect", text, bounds, TODAY).state for text in ("3.9.0", "3.9.1", "3.9.12", "3.10", "3.10.1")]
    assert states == ["failed", "ok", "ok", "failed", "failed"]


def test_the_bounds_are_those_of_the_project() -> None:
    asked = bounds_of(tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"])
    known = bounds_of(requires("mixer") or [])
    assert asked["s3fs"] == [(">=", "2026.9")]
    assert {name: sorted(known[name]) for name in asked} == {name: sorted(bounds) for name, bounds in asked.items()}


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=4), st.lists(st.integers(0, 3000), min_size=1, max_size=4))
def test_versions_compare_by_their_numbers(one: list[int], other: list[int]) -> None:
    texts = [".".join(map(str, parts)) for parts in (one, other)]
    assert (numbers(texts[0]) < numbers(texts[1])) == (one < other)
    assert numbers(texts[0] + "rc1") == tuple(one)
