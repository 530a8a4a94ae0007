"""The fields of a config, what each may be, and what must hold between them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

MAX_NAME_CHARACTERS = 200
MAX_ROW_GROUPS_PER_SHARD = 32_767
"""A Parquet file numbers its row groups in 16 bits."""
MAX_SHARD_ROWS = 2**31 - 1
MAX_RUN_ROWS = 2**63 - 1
"""Positions of rows are 64-bit integers in the shards."""
MAX_WEIGHT_BITS = 4096
PROBLEM = "mixer_problem"
"""Type of the errors whose message is ours and complete."""
PROBLEMS = "mixer_problems"
"""Type of the error that holds, as ``problems`` in its context, a message for each of several fields."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)", re.DOTALL)
_SECRET_IN_QUERY = re.compile(
    r"[?&;](?:[^=&;/]*(?:signature|credential|token|secret|passwo?r?d|access_?key|api_?key)[^=&;/]*|sig|key)=",
    re.IGNORECASE,
)
_USER_IS_CONTAINER = {"abfs", "abfss", "az", "wasb", "wasbs"}
"""Protocols in which ``container@account`` is an address."""


def _problem(text: str) -> PydanticCustomError:
    # A message is a template to pydantic, so it goes in as a value: it may hold braces.
    return PydanticCustomError(PROBLEM, "{text}", {"text": text})


def holds_secret(url: str) -> bool:
    """Tell whether `url` names a user, a password or a signature.

    >>> holds_secret("s3://key:sec/ret@bucket/a"), holds_secret("https://host/a?X-Amz-Signature=1")
    (True, True)
    >>> holds_secret("hdfs://host:8020/a"), holds_secret("s3://bucket/a@b.parquet"), holds_secret("/data/a?b.parquet")
    (False, False, False)
    """
    match = _URL.search(url)
    if not match:
        return False
    protocol, host, rest = match.groups()
    user, at, _ = host.rpartition("@")
    if at:
        return ":" in user or protocol.lower() not in _USER_IS_CONTAINER
    # A slash in a password ends the host early; what stands after the colon is then no port.
    port = "" if host.startswith("[") else host.partition(":")[2]
    if port and "@" in rest and not port.isdecimal():
        return True
    return _SECRET_IN_QUERY.search(rest) is not None


def _location(value: str) -> str:
    if not value.strip():
        raise _problem("expected a path or URL, found an empty text")
    if value != value.strip():
        raise _problem("expected a path or URL, found one with space around it; take the space out")
    if not value.isprintable():
        raise _problem("expected a path or URL, found one with control characters or broken Unicode")
    if holds_secret(value):
        raise _problem(
            "holds a user, password or signature (not shown here); take it out, and give credentials through the "
            "environment, ~/.aws or fsspec's configuration"
        )
    return value


def _paths(value: Any) -> Any:
    """Check before pydantic tries text and list in turn and reports both."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not all(isinstance(path, str) for path in value):
        kinds = f"a list that holds {_not_text(value)}" if isinstance(value, list) else _kind(value)
        raise _problem(f"expected a path or URL, or a list of them, found {kinds}")
    if not value:
        raise _problem("expected a path or URL, or a list of them, found an empty list")
    return value


def _not_text(values: list[Any]) -> str:
    return _kind(next(value for value in values if not isinstance(value, str)))


def _kind(value: object) -> str:
    """Return what `value` is, for people, without saying what is in it."""
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "a mapping",
    }
    return "nothing" if value is None else names.get(type(value), type(value).__name__)


def _each_location(value: str | list[str]) -> str | list[str]:
    if isinstance(value, str):
        return _location(value)
    for number, path in enumerate(value, start=1):
        try:
            _location(path)
        except PydanticCustomError as error:
            raise _problem(f"entry {number} of the list: {error.message()}") from None
    return value


def _name(value: str) -> str:
    if not 1 <= len(value) <= MAX_NAME_CHARACTERS:
        raise _problem(f"expected a name of 1 to {MAX_NAME_CHARACTERS} characters, found {len(value)}")
    if not value.isprintable() or value != value.strip():
        raise _problem("expected a name of printable characters without space around it")
    if "/" in value or "\\" in value or value in {".", ".."}:
        raise _problem("expected a name without '/' and '\\' that is not '.' or '..'")
    return value


def _weight(value: int) -> int:
    if value.bit_length() > MAX_WEIGHT_BITS:
        raise _problem(f"expected a positive whole number of at most {MAX_WEIGHT_BITS} bits, found a longer one")
    return value


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)


class DatasetConfig(_Model):
    """A named dataset: where its rows are, and how many of them go into each batch."""

    path: Annotated[str | list[str], BeforeValidator(_paths), AfterValidator(_each_location)] = Field(
        description="A Parquet file, a glob, a folder, or a list of these: a local path or any URL that fsspec opens.",
    )
    weight: Annotated[int, Field(ge=1), AfterValidator(_weight)] = Field(
        description="This dataset's share of every batch, in proportion to the other weights: a positive whole number.",
    )


class MixConfig(_Model):
    """A mix: which datasets, in which proportions, cut into which batches and shards, written where."""

    output: Annotated[str, AfterValidator(_location)] = Field(
        description="Folder or URL prefix that the shards and the commit log are written to."
    )
    batch_size: int = Field(ge=1, le=MAX_SHARD_ROWS, description="Rows in every batch.")
    batches: int | None = Field(
        default=None,
        ge=1,
        le=MAX_RUN_ROWS,
        description="Batches of the whole run. With `on_exhausted: stop` it may be left out, and is at most so many.",
    )
    batches_per_shard: int = Field(
        ge=1, le=MAX_SHARD_ROWS, description="Batches in every Parquet file; the position is committed after each."
    )
    on_exhausted: Literal["error", "stop"] = Field(
        default="error",
        description="What if a dataset has fewer rows than the batches take: `error` before anything is written, or "
        "`stop` after the last batch that every dataset can fill.",
    )
    lineage: bool = Field(
        default=True, description="Whether columns say of each row its dataset, its place there and its batch."
    )
    compression: Literal["zstd", "snappy", "lz4", "none"] = Field(
        default="zstd", description="Codec of the Parquet files."
    )
    compression_level: int | None = Field(
        default=None, ge=1, le=22, description="Level of zstd, 1 (the default) to 22; other codecs have none."
    )
    batches_per_row_group: int | None = Field(
        default=None,
        ge=1,
        le=MAX_SHARD_ROWS,
        description="Batches in a row group, at most `batches_per_shard`; chosen by size if left out.",
    )
    datasets: dict[Annotated[str, AfterValidator(_name)], DatasetConfig] = Field(
        min_length=1,
        description="The datasets by name. Their order matters: rows stand in it inside a batch, and it breaks ties.",
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if problems := list(_between_fields(self)):
            text = "; ".join(f"{field}: {problem}" for field, problem in problems)
            raise PydanticCustomError(PROBLEMS, "{text}", {"text": text, "problems": problems})
        return self


def _between_fields(config: MixConfig) -> Iterator[tuple[str, str]]:
    """Yield each field that does not go with another one, and why."""
    if config.batches is None and config.on_exhausted == "error":
        yield (
            "batches",
            "missing; say how many batches to make, or set `on_exhausted: stop` to make as many as the data fills",
        )
    if config.compression_level is not None and config.compression != "zstd":
        yield "compression_level", f"only zstd has levels, and compression is {config.compression!r}; leave it out"
    shard_rows = config.batch_size * config.batches_per_shard
    if shard_rows > MAX_SHARD_ROWS:
        yield (
            "batches_per_shard",
            f"expected at most {MAX_SHARD_ROWS:,} rows a shard (batch_size x batches_per_shard), found {shard_rows:,}",
        )
    if config.batches is not None and config.batch_size * config.batches > MAX_RUN_ROWS:
        yield "batches", f"expected at most {MAX_RUN_ROWS:,} rows in all (batch_size x batches), found more"
    group = config.batches_per_row_group
    if group is not None and group > config.batches_per_shard:
        yield (
            "batches_per_row_group",
            f"expected at most batches_per_shard ({config.batches_per_shard:,}), found {group:,}",
        )
    elif group is not None and (groups := -(-config.batches_per_shard // group)) > MAX_ROW_GROUPS_PER_SHARD:
        yield (
            "batches_per_row_group",
            f"expected at most {MAX_ROW_GROUPS_PER_SHARD:,} row groups a shard, found {groups:,}; raise it",
        )
