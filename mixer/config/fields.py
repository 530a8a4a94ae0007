"""The fields of a config, and what each may be by itself."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from mixer.config.columns import kind, normal_columns
from mixer.core.weights import parse_share

MAX_NAME_CHARACTERS = 200
MAX_SHARD_ROWS = 2**31 - 1
MAX_RUN_ROWS = 2**63 - 1
"""Positions of rows are 64-bit integers in the shards."""
MAX_WEIGHT_BITS = 4096
PROBLEM = "mixer_problem"
"""Type of the errors whose message is ours and complete."""

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
        kinds = f"a list that holds {_not_text(value)}" if isinstance(value, list) else kind(value)
        raise _problem(f"expected a path or URL, or a list of them, found {kinds}")
    if not value:
        raise _problem("expected a path or URL, or a list of them, found an empty list")
    return value


def _not_text(values: list[Any]) -> str:
    return kind(next(value for value in values if not isinstance(value, str)))


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


def _share(value: str) -> str:
    try:
        parse_share(value)
    except ValueError as error:
        raise _problem(str(error)) from None
    return value


def _number(value: Any) -> Any:
    """Take a number as it is written: 0.7 in YAML is the text 0.7, and not the float next to it."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _temperature(value: str) -> str:
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value, re.ASCII) or not float(value):
        raise _problem(f"expected a positive number such as 2 or 0.7, found {value[:40]!r}")
    return value


def _columns(value: Any) -> Any:
    """Check before pydantic tries list and mapping in turn and reports both."""
    if value is None:
        return None
    if isinstance(value, dict):
        value = {
            name: entry.model_dump() if isinstance(entry, ColumnConfig) else entry for name, entry in value.items()
        }
    try:
        return normal_columns(value)
    except ValueError as error:
        raise _problem(str(error)) from None


def _missing(value: Any) -> Any:
    """Take YAML's null for the word: nobody quotes it."""
    return "null" if value is None else value


def _column_name(value: str) -> str:
    if not value or "\0" in value:
        raise _problem(f"expected the name of a column, found {'one with a NUL' if value else 'an empty text'}")
    return value


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)


Weight = Annotated[int, Field(ge=1), AfterValidator(_weight)]
Share = Annotated[str, AfterValidator(_share)]


class ColumnConfig(_Model):
    """What becomes of a stored column."""

    name: str | None = Field(default=None, description="Its name in the run; as stored, if left out.")
    cast: str | None = Field(
        default=None,
        description="The type to cast it to, exactly or not at all: `int32`, `string`, `timestamp[us, UTC]`, "
        "`decimal128(10, 2)`, `list<int32>` and so on.",
    )


class DatasetConfig(_Model):
    """A named dataset: where its rows are, how many of them go into each batch, and in which order."""

    path: Annotated[str | list[str], BeforeValidator(_paths), AfterValidator(_each_location)] = Field(
        description="A Parquet file, a glob, a folder, or a list of these: a local path or any URL that fsspec opens.",
    )
    weight: Weight | None = Field(
        default=None,
        description="This dataset's share of every batch, in proportion to the other weights: a positive whole number.",
    )
    share: Share | None = Field(
        default=None,
        description="Instead of a weight: a percentage such as `12.5%` or a fraction such as `1/3`, taken exactly. The "
        "shares of all datasets make 100 %.",
    )
    shuffle: Literal["block"] | None = Field(
        default=None,
        description="Order of the rows: as stored if left out; `block` takes blocks of whole row groups in a random "
        "order, and the rows of each block in a random order.",
    )
    columns: Annotated[list[str] | dict[str, str | ColumnConfig] | None, BeforeValidator(_columns)] = Field(
        default=None,
        description="Columns to take, and no others: a list of names, or a mapping from each stored name to its name "
        "in the run, or to a `name` and a `cast`. All columns if left out.",
    )
    max_rows: int | None = Field(
        default=None, ge=1, le=MAX_RUN_ROWS, description="Most rows to take of this dataset, in all passes together."
    )
    max_epochs: int | None = Field(
        default=None,
        ge=1,
        le=MAX_RUN_ROWS,
        description="With `on_exhausted: repeat`: how often the dataset may be gone through; any number if left out.",
    )


class PhaseConfig(_Model):
    """A stretch of the run with weights of its own."""

    batches: int | None = Field(
        default=None,
        ge=1,
        le=MAX_RUN_ROWS,
        description="Batches of this phase. The last phase may leave it out where the data ends the run.",
    )
    weights: dict[str, Weight] = Field(
        min_length=1, description="Weight of each dataset that takes part, by its name; the others rest."
    )


class WeightsBy(_Model):
    """Weights that follow from sizes."""

    sizes: Literal["rows", "bytes"] | dict[str, Annotated[int, Field(ge=1)]] = Field(
        default="rows",
        description="What the weights go by: the `rows` or `bytes` that each dataset holds, or a number for each.",
    )
    temperature: Annotated[
        str,
        BeforeValidator(_number),
        AfterValidator(_temperature),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}]}),
    ] = Field(
        default="1", description="Weights are sizes to the power of 1/temperature: 1 keeps sizes, more evens them out."
    )
    max_share: Share | None = Field(
        default=None, description="Most that one dataset gets, such as `40%`; what it loses goes to the others."
    )


class ForkConfig(_Model):
    """The run that a mix goes on from, and where."""

    run: Annotated[str, AfterValidator(_location)] = Field(description="Output of a run: a folder or URL prefix.")
    shards: int = Field(
        ge=1, le=MAX_RUN_ROWS, description="How many of its shards are the beginning of this mix, as they are there."
    )


class MixFields(_Model):
    """The fields of a mix, each right by itself."""

    output: Annotated[str, AfterValidator(_location)] = Field(
        description="Folder or URL prefix that the shards and the commit log are written to."
    )
    batch_size: int = Field(ge=1, le=MAX_SHARD_ROWS, description="Rows in every batch.")
    batches: int | None = Field(
        default=None,
        ge=1,
        le=MAX_RUN_ROWS,
        description="Batches of the whole run. With `on_exhausted: stop` or `redistribute` it may be left out, and is "
        "at most so many.",
    )
    rows: int | None = Field(
        default=None,
        ge=1,
        le=MAX_RUN_ROWS,
        description="Rows of the whole run, instead of `batches`: a multiple of `batch_size`.",
    )
    batches_per_shard: int = Field(
        ge=1, le=MAX_SHARD_ROWS, description="Batches in every Parquet file; the position is committed after each."
    )
    on_exhausted: Literal["error", "stop", "repeat", "redistribute"] = Field(
        default="error",
        description="What if a dataset has fewer rows than the batches take: `error` before anything is written, "
        "`stop` after the last batch that every dataset can fill, `repeat` it from its beginning, or `redistribute` "
        "its share among the others until all rows are used.",
    )
    seed: int = Field(
        default=0,
        ge=0,
        le=2**63 - 1,
        description="What random orders depend on; pass number k of a dataset has seed + k.",
    )
    phases: list[PhaseConfig] | None = Field(
        default=None,
        min_length=1,
        description="Instead of weights and `batches`: stretches of the run, one after the other, each with weights of "
        "its own. Datasets go on where they were.",
    )
    weights_by: WeightsBy | None = Field(
        default=None, description="Instead of weights: let them follow from the sizes of the datasets."
    )
    fork: ForkConfig | None = Field(
        default=None,
        description="The mix begins with the first shards of another run, which are taken by reference: `run` is its "
        "output, `shards` is how many. What the mix says of these batches must be what that run says of them.",
    )
    missing: Annotated[Literal["error", "null"], BeforeValidator(_missing)] = Field(
        default="error",
        description="What if a dataset, or one of its files, lacks a column that others have: an `error`, or `null` in "
        "every row of it.",
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
    length_column: Annotated[str, AfterValidator(_column_name)] | None = Field(
        default=None,
        description="For `mixer plan` only: the column that says how many tokens a row has, a whole number or a list. "
        "The plan then counts in tokens, too.",
    )
    datasets: dict[Annotated[str, AfterValidator(_name)], DatasetConfig] = Field(
        min_length=1,
        description="The datasets by name. Their order matters: rows stand in it inside a batch, and it breaks ties.",
    )
