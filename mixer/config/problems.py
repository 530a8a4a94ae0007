"""What is wrong with a config, in words: every problem, its place, what was expected, what was found."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from pydantic import BaseModel, ValidationError

from mixer.config import columns
from mixer.config.fields import BatchesConfig, DatasetConfig, ForkConfig, PhaseConfig, WeightsBy, WindowConfig
from mixer.config.models import PROBLEMS, MixConfig
from mixer.config.values import PROBLEM

Path: TypeAlias = tuple[str | int, ...]

_EXPECTED = {
    "batch_size": "a positive whole number",
    "batches": "a positive whole number",
    "batches_per_shard": "a positive whole number",
    "batches_per_row_group": "a positive whole number",
    "rows": "a positive whole number",
    "seed": "a whole number from 0",
    "weight": "a positive whole number",
    "share": "a percentage or a fraction, such as 12.5% or 1/3",
    "max_share": "a percentage or a fraction, such as 40% or 2/5",
    "max_rows": "a positive whole number",
    "max_epochs": "a positive whole number",
    "shuffle": "'block', 'full', or nothing",
    "format": "'parquet', 'jsonl', 'json', 'csv', 'tsv', 'text', 'arrow', 'huggingface' or 'webdataset'",
    "on_bad_line": "'error', 'skip' or 'quarantine'",
    "document": "'file', 'line' or 'paragraph'",
    "window": "a mapping with context_length, tokenizer and others",
    "context_length": "a positive whole number",
    "stride": "a positive whole number",
    "tokenizer": "a file, or module:function",
    "text": "the name of a column",
    "end_of_text": "a token, or its id",
    "pattern": "the name of an encoding, or a regular expression",
    "vocabulary": "a positive whole number",
    "version": "a text",
    "pad_id": "a whole number from 0",
    "store_as": "'list', 'uint16' or 'int32'",
    "documents": "true or false",
    "by": "the name of a column",
    "size": "a positive whole number",
    "max_length": "a positive whole number",
    "include_partial": "true or false",
    "prepared": "a path or URL",
    "temperature": "a positive number such as 2 or 0.7",
    "sizes": "'rows', 'bytes', or a mapping from each dataset's name to a positive whole number",
    "weights": "a mapping from names of datasets to positive whole numbers",
    "weights_by": "a mapping with sizes, temperature and max_share",
    "fork": "a mapping with run and shards",
    "run": "the output of a run: a folder or URL",
    "shards": "a positive whole number",
    "phases": "a list of phases, each with batches and weights",
    "compression_level": "a whole number from 1 to 22",
    "length_column": "the name of a column",
    "columns": columns.EXPECTED,
    "missing": "'error' or null",
    "lineage": "true or false",
    "on_exhausted": "'error', 'stop', 'repeat' or 'redistribute'",
    "compression": "'zstd', 'snappy', 'lz4' or 'none'",
    "output": "a path or URL",
    "path": "a path or URL, or a list of them",
    "datasets": "a mapping from names to a path and a weight each",
}
_EXPECTED_AT: dict[tuple[object, str], str] = {
    ("datasets", "batches"): "a mapping with by and size, and maybe sizes, max_length and include_partial",
    ("datasets", "sizes"): "a mapping from lengths to positive whole numbers",
}
"""Of fields that stand in several models, what is expected below some field of the config."""
_MODELS: dict[object, type[BaseModel]] = {
    "datasets": DatasetConfig,
    "phases": PhaseConfig,
    "weights_by": WeightsBy,
    "fork": ForkConfig,
}
_MODELS_OF_DATASETS: dict[object, type[BaseModel]] = {"window": WindowConfig, "batches": BatchesConfig}
_DATASET_FIELD = len(("datasets", "web", "path"))
_USER_IN_URL = re.compile(r"(?<=://)\S*@")
_QUERY_IN_URL = re.compile(r"(?<=://)([^\s?]*)\?\S*")
_MAX_SHOWN = 60
_MAX_SHOWN_BITS = 256


def problems_of(error: ValidationError) -> list[tuple[Path, str]]:
    """Return each problem in `error` as the path to it and what to say, never with a value that may be secret."""
    found: list[tuple[Path, str]] = []
    unknown: set[Path] = set()
    for item in error.errors(include_url=False):
        path = tuple(part for part in item["loc"] if part != "[key]")
        if item["type"] == PROBLEMS:
            found += [(place, text) for place, text in item["ctx"]["problems"]]
        elif item["type"] == "extra_forbidden":
            meant = _meant(path)
            unknown |= {(*path[:-1], meant)} if meant else set()
            found.append((path, _unknown(path, meant)))
        else:
            found.append((path, _text(path, item)))
    # A misspelt key is one mistake, not an unknown key and a missing one.
    return [(path, text) for path, text in found if not (path in unknown and text.startswith("missing"))]


def told(problems: Iterable[tuple[Path, str]]) -> str:
    """Return problems a line each, for a config that comes from no file.

    >>> told([(("datasets", "a.b", "weight"), "missing")])
    "datasets['a.b'].weight: missing"
    """
    return "\n".join(f"{dotted(path)}{text}" for path, text in problems)


def dotted(path: Path) -> str:
    """Return `path` as people write it, with a colon, or nothing for the whole config.

    >>> dotted(("datasets", "web", "path", 0))
    'datasets.web.path[0]: '
    """
    shown = ""
    for part in path:
        if isinstance(part, str) and re.fullmatch(r"[\w-]+", part):
            shown += f".{part}" if shown else part
        else:
            shown += f"[{part}]" if isinstance(part, int) else f"[{_short(part)}]"
    return f"{shown}: " if shown else ""


def _known(path: Path) -> Sequence[str]:
    if len(path) <= 1:
        return list(MixConfig.model_fields)
    inner = _MODELS_OF_DATASETS.get(path[2]) if path[0] == "datasets" and len(path) > _DATASET_FIELD else None
    return list((inner or _MODELS[path[0]]).model_fields)


def _meant(path: Path) -> str | None:
    near = difflib.get_close_matches(str(path[-1]).lower(), _known(path), n=1)
    return near[0] if near else None


def _unknown(path: Path, meant: str | None) -> str:
    hint = f" did you mean {meant!r}?" if meant else ""
    return f"unknown key;{hint} known keys are {', '.join(_known(path))}"


def _text(path: Path, item: Any) -> str:
    field = next((part for part in reversed(path) if part in _EXPECTED), None)
    if item["type"] == PROBLEM:
        return str(item["ctx"]["text"])
    if len(path) == 2 and path[0] == "datasets":  # noqa: PLR2004 - a dataset itself
        return f"expected a mapping with path and weight, found {_found(item['input'])}"
    if len(path) == 2 and path[0] == "phases":  # noqa: PLR2004 - a phase itself
        return f"expected a mapping with batches and weights, found {_found(item['input'])}"
    if not path:
        return f"expected a mapping with the keys {', '.join(_known(path))}; found {_found(item['input'])}"
    expected = _EXPECTED_AT.get((path[0], str(field)), _EXPECTED.get(str(field), "another value"))
    if len(path) > 1 and path[-2] in {"weights", "sizes"}:
        expected = "a positive whole number"
    if item["type"] == "missing":
        return f"missing; expected {expected}"
    if item["type"] == "less_than_equal":
        expected += f" of at most {item['ctx']['le']:,}" if field != "compression_level" else ""
    hint = (
        " (write plain digits, without quotes)" if "whole number" in expected and isinstance(item["input"], str) else ""
    )
    if field == "weight" and item["type"] == "greater_than_equal" and item["input"] == 0:
        hint = "; leave the dataset out to take nothing from it"
    return f"expected {expected}, found {_found(item['input'])}{hint}"


def _found(value: object) -> str:
    """Return `value` for people: short, and without what may be secret in a URL."""
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value) if value.bit_length() <= _MAX_SHOWN_BITS else f"a number of {value.bit_length():,} bits"
    if isinstance(value, str):
        return f"the text {_short(value)}" if value else "an empty text"
    if isinstance(value, dict | list):
        kind = "mapping" if isinstance(value, dict) else "list"
        return f"a {kind}" if value else f"an empty {kind}"
    return repr(value) if isinstance(value, float) else type(value).__name__


def _short(text: str) -> str:
    shown = _QUERY_IN_URL.sub(r"\1?...", _USER_IN_URL.sub("...@", text))
    return repr(shown if len(shown) <= _MAX_SHOWN else shown[:_MAX_SHOWN] + "...")
