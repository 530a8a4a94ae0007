"""What a reader says of columns as tensors, before the run is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mixer.errors import ConfigError
from mixer.torch import MixedBatches
from mixer.torch.batch_tensors import Options

SCHEMA = pa.schema({"b": pa.binary(), "rag": pa.list_(pa.int8())})


@pytest.mark.parametrize("binary", [None, {}, {"b": "uint16"}, MappingProxyType({"b": "uint16"})])
@pytest.mark.parametrize("ragged", [(), ["rag"], ("rag", "b"), {"rag"}, np.array(["rag"]), {"rag": 1}.keys()])
def test_options_are_what_was_passed(binary: Mapping[str, str] | None, ragged: Iterable[str]) -> None:
    options = Options.of(binary, ragged)
    assert options == Options(dict(binary or {}), frozenset(ragged))


@pytest.mark.parametrize("binary", [5, 0, b"x", (1,), [], "x", [("b", "int8")]])
def test_types_of_binary_columns_that_are_no_mapping_are_refused(binary: Any) -> None:
    with pytest.raises(ConfigError) as refusal:
        MixedBatches("/no/run", binary=binary)
    expected = "expected the types of numbers in columns by name, such as {'input_ids': 'uint16'}"
    assert str(refusal.value) == f"binary: {expected}, found {binary!r}"


@pytest.mark.parametrize("ragged", [5, None, "x", b"x", [["rag"]], [5], {"rag": ["x"]}.values()])
def test_ragged_columns_that_are_no_names_are_refused(ragged: Any) -> None:
    with pytest.raises(ConfigError) as refusal:
        MixedBatches("/no/run", ragged=ragged)
    assert str(refusal.value) == f"ragged: expected a list of names of columns, found {ragged!r}"


@pytest.mark.parametrize("number", [["int8"], "int7", 5, None, np.uint16])
def test_a_type_of_numbers_that_is_none_is_refused(number: Any) -> None:
    with pytest.raises(ConfigError) as refusal:
        Options.of({"b": number}, ())
    assert str(refusal.value).startswith("binary: column 'b': expected one of int8, int16, ")
    assert str(refusal.value).endswith(f", found {number!r}")


@pytest.mark.parametrize("name", [5, None, ("b",), "c"])
def test_a_binary_column_that_is_not_there_is_refused(name: Any) -> None:
    with pytest.raises(ConfigError) as refusal:
        Options.of({name: "int8"}, ()).check(SCHEMA)
    assert str(refusal.value).startswith(f"binary: expected binary columns that are read, found {name!r}; there are b")
