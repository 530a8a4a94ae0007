"""Values that fields of a config hold, and what each may be."""

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
MAX_CONTEXT = 2**24
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


def _sizes(value: Any) -> Any:
    """Take lengths as they are written: the keys of YAML and of JSON are texts."""
    if not isinstance(value, dict):
        return value
    wrong = next((key for key in value if not re.fullmatch(r"0|[1-9][0-9]{0,9}", str(key), re.ASCII)), None)
    if wrong is not None:
        raise _problem(f"expected lengths as keys, whole numbers from 0, found {str(wrong)[:40]!r}")
    return {int(key): size for key, size in value.items()}


def _token(value: Any) -> Any:
    """Check before pydantic tries text and number in turn and reports both."""
    if isinstance(value, bool) or not isinstance(value, str | int | None):
        raise _problem(f"expected a token, or its id, found {kind(value)}")
    if isinstance(value, int) and not 0 <= value <= MAX_SHARD_ROWS:
        raise _problem(f"expected a token, or its id from 0 to {MAX_SHARD_ROWS:,}, found another number")
    return value


def _column_name(value: str) -> str:
    if not value or "\0" in value:
        raise _problem(f"expected the name of a column, found {'one with a NUL' if value else 'an empty text'}")
    return value


class Model(BaseModel):
    """What every part of a config is: strict, closed and immutable."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)


class ColumnConfig(Model):
    """What becomes of a stored column."""

    name: str | None = Field(default=None, description="Its name in the run; as stored, if left out.")
    cast: str | None = Field(
        default=None,
        description="The type to cast it to, exactly or not at all: `int32`, `string`, `timestamp[us, UTC]`, "
        "`decimal128(10, 2)`, `list<int32>` and so on.",
    )


Location = Annotated[str, AfterValidator(_location)]
Paths = Annotated[str | list[str], BeforeValidator(_paths), AfterValidator(_each_location)]
Name = Annotated[str, AfterValidator(_name)]
Weight = Annotated[int, Field(ge=1), AfterValidator(_weight)]
Share = Annotated[str, AfterValidator(_share)]
Temperature = Annotated[
    str,
    BeforeValidator(_number),
    AfterValidator(_temperature),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}]}),
]
ColumnName = Annotated[str, AfterValidator(_column_name)]
Columns = Annotated[list[str] | dict[str, str | ColumnConfig] | None, BeforeValidator(_columns)]
Sizes = Annotated[dict[int, Annotated[int, Field(ge=1, le=MAX_SHARD_ROWS)]], BeforeValidator(_sizes)]
Token = Annotated[str | int | None, BeforeValidator(_token)]
Missing = Annotated[Literal["error", "null"], BeforeValidator(_missing)]
Format = Literal["parquet", "jsonl", "json", "csv", "tsv", "text", "arrow", "huggingface", "webdataset"]
