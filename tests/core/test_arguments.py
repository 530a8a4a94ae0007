from __future__ import annotations

import operator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mixer.core.arguments import MOST_PROCESSES, rank_of, truth_value, whole_number


@given(st.integers(), st.one_of(st.none(), st.integers()))
def test_whole_numbers_from_the_least_on_are_taken_as_they_are(value: int, least: int | None) -> None:
    if least is None or value >= least:
        assert whole_number("size", value, least=least) == value
    else:
        with pytest.raises(ValueError, match=f"^size: expected a whole number from {least}, found {value}$"):
            whole_number("size", value, least=least)


@pytest.mark.parametrize("value", [np.int32(7), np.uint64(7), np.array(7), torch.tensor(7)], ids=repr)
def test_whole_numbers_of_other_libraries_become_pythons_own(value: object) -> None:
    number = whole_number("size", value)
    assert type(number) is int
    assert number == operator.index(7)


@pytest.mark.parametrize("value", [True, np.True_, 7.0, np.float64(7), "7", None, [7]], ids=repr)
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"^size: expected a whole number, found "):
        whole_number("size", value)


@pytest.mark.parametrize(("value", "expected"), [(True, True), (False, False), (np.True_, True), (np.False_, False)])
def test_truth_values_become_pythons_own(value: object, expected: bool) -> None:
    assert truth_value("padded", value) is expected


@pytest.mark.parametrize("value", [None, 0, 1, "x", [], np.array([True])], ids=repr)
def test_anything_else_is_no_truth_value(value: object) -> None:
    with pytest.raises(ValueError, match=r"^padded: expected True or False, found "):
        truth_value("padded", value)


def test_processes_are_fewer_than_products_with_them_hold() -> None:
    assert rank_of(7, MOST_PROCESSES) == (7, 2**31 - 1)
    for processes in (2**31, 2**63, 2**70):
        with pytest.raises(ValueError, match=f"^world_size: expected at most 2147483647, found {processes}$"):
            rank_of(0, processes)
