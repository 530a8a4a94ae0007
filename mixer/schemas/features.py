"""What files say about their columns for the `datasets` library: images, sounds, names of classes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

_KEY = b"huggingface"


@dataclass(frozen=True, slots=True)
class Features:
    """Schema metadata that holds for every file, and what had to be left out of it."""

    metadata: dict[bytes, bytes] | None
    lost: tuple[tuple[str, str, str, str], ...]
    """Dataset, file, column and feature of each column that is more than its type in some file, but not in all."""


class _Said(NamedTuple):
    """What a file says, and which of the run's columns it says nothing of since it has none of them."""

    metadata: bytes | None
    absent: frozenset[str]


def common_features(
    files: Sequence[tuple[str, str, pa.Schema]], columns: Sequence[str], problems: list[str]
) -> Features:
    """Return what all `files` (dataset, file, schema) that have it say alike about each of `columns`.

    Class labels with different names are added to `problems`: one number would mean two things.
    """
    parsed: dict[_Said, dict[str, Any]] = {}
    first: dict[_Said, tuple[str, str]] = {}
    for dataset, file, schema in files:
        raw = _Said((schema.metadata or {}).get(_KEY), frozenset(columns).difference(schema.names))
        if raw not in parsed:
            parsed[raw] = _features(raw.metadata)
            first[raw] = (dataset, file)
    kept: dict[str, Any] = {}
    lost = []
    for column in columns:
        said = {raw: features.get(column) for raw, features in parsed.items() if column not in raw.absent}
        distinct = {json.dumps(feature, sort_keys=True) for feature in said.values()}
        if len(distinct) == 1:
            if (feature := next(iter(said.values()))) is not None:
                kept[column] = feature
            continue
        special = [(raw, feature) for raw, feature in said.items() if feature is not None and _special(feature)]
        lost += [(*first[raw], column, f"huggingface {feature['_type']}") for raw, feature in special]
        problems += _label_problems(column, [(first[raw], feature) for raw, feature in special])
    return Features(_as_metadata(kept), tuple(lost))


def renamed_features(metadata: Mapping[bytes, bytes] | None, names: Mapping[str, str]) -> dict[bytes, bytes] | None:
    """Return the schema metadata of a file whose columns have new `names` by old ones; of others it says nothing.

    >>> renamed_features({b"huggingface": b'{"info": {"features": {"a": {"_type": "Image"}, "b": 1}}}'}, {"a": "x"})
    {b'huggingface': b'{"info":{"features":{"x":{"_type":"Image"}}}}'}
    """
    features = _features((metadata or {}).get(_KEY))
    return _as_metadata({new: features[old] for old, new in names.items() if old in features})


def _as_metadata(features: Mapping[str, Any]) -> dict[bytes, bytes] | None:
    if not features:
        return None
    text = json.dumps({"info": {"features": features}}, sort_keys=True, separators=(",", ":"))
    return {_KEY: text.encode()}


def _features(raw: bytes | None) -> dict[str, Any]:
    """Return the features by column; metadata that cannot be read says nothing."""
    try:
        features = json.loads(raw or b"{}")["info"]["features"]
    except (ValueError, KeyError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


def _special(feature: Any) -> bool:
    """Tell whether a feature says more than the column's type does."""
    return isinstance(feature, dict) and isinstance(feature.get("_type"), str) and feature["_type"] != "Value"


def _label_problems(column: str, special: Sequence[tuple[tuple[str, str], Any]]) -> list[str]:
    labels = [(place, feature.get("names")) for place, feature in special if feature["_type"] == "ClassLabel"]
    for (dataset, file), names in labels[1:]:
        (first_dataset, first_file), first_names = labels[0]
        if names != first_names:
            problem = (
                f"column {column!r}: class labels {first_names} in dataset {first_dataset!r} ({first_file}), "
                f"but {names} in dataset {dataset!r} ({file}), so one number would mean two things; "
                f"store both with one list of names, or as text"
            )
            return [problem]
    return []
