"""Many files' schemas to one output schema, with every problem told at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types as kinds

from mixer.errors import SchemaError
from mixer.schemas.features import common_features
from mixer.schemas.types import Found, NoCommonTypeError, changes, common_leaf, family, is_list, unwrapped

LINEAGE_COLUMNS = ("_dataset", "_row", "_epoch", "_batch")
"""Columns that a run adds, unless its config says `lineage: false`."""

_MAX_DISTINCT = 64
"""Up to how many different schemas of a dataset are told apart; beyond, equal ones are merged again, only slower."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """A column (or a part of one) that comes out as another type than a dataset stores it, values unchanged."""

    dataset: str
    file: str
    """The first file of the dataset that stores it so."""
    column: str
    """`name`, `struct.field` or `list[]`."""
    stored: str
    output: str


@dataclass(frozen=True, slots=True)
class Merged:
    """The schema of a whole run, without lineage columns, and what changes its type on the way into it."""

    schema: pa.Schema
    promotions: tuple[Promotion, ...]


@dataclass(frozen=True, slots=True)
class _Stored:
    """A schema, and the first file of a dataset that has it."""

    dataset: str
    file: str
    schema: pa.Schema

    @property
    def where(self) -> str:
        return f"dataset {self.dataset!r} ({self.file})"


def merge(schemas: Mapping[str, Sequence[tuple[str, pa.Schema]]], *, lineage: bool = True) -> Merged:
    """Return the one output schema of datasets whose files have the given schemas.

    Args:
        schemas: For each dataset, in order, its files in order: where each is, and its schema as stored.
        lineage: Whether lineage columns will be added, so that their names are taken.

    >>> web = [("a.parquet", pa.schema({"text": pa.large_string(), "n": pa.int32()}))]
    >>> code = [("b.parquet", pa.schema({"n": pa.int64(), "text": pa.string()}))]
    >>> merged = merge({"web": web, "code": code})
    >>> merged.schema
    text: string
    n: int64
    >>> [(p.dataset, p.column, p.stored, p.output) for p in merged.promotions]
    [('web', 'n', 'int32', 'int64')]

    Raises:
        SchemaError: There is no such schema; names every column, dataset, file and type in the way.
    """
    distinct = [stored for name, files in schemas.items() for stored in _distinct(name, files)]
    if not distinct:
        raise SchemaError("no dataset has a file, so there are no columns")
    problems = [problem for stored in distinct for problem in _name_problems(stored, lineage=lineage)]
    _raise_any(problems)
    fields = []
    for name in distinct[0].schema.names:
        found = [Found(s.dataset, s.file, s.schema.field(name).type) for s in distinct if name in s.schema.names]
        fields.append(pa.field(name, _common(name, found, problems)))
    problems += _column_problems(distinct)
    labels = common_features(
        [(name, file, schema.metadata) for name, files in schemas.items() for file, schema in files],
        [field.name for field in fields],
        problems,
    )
    _raise_any(problems)
    schema = pa.schema(fields, metadata=labels.metadata)
    lost = (
        Promotion(dataset, file, column, stored, str(schema.field(column).type))
        for dataset, file, column, stored in labels.lost
    )
    return Merged(schema, (*_promotions(distinct, schema), *lost))


def _raise_any(problems: Sequence[str]) -> None:
    if problems:
        raise SchemaError("\n".join(dict.fromkeys(problems)))


def _distinct(dataset: str, files: Sequence[tuple[str, pa.Schema]]) -> Iterator[_Stored]:
    """Yield the different schemas of a dataset, so that thousands of equal files cost next to nothing."""
    seen: list[pa.Schema] = []
    for file, schema in files:
        if any(schema.equals(other) for other in seen):
            continue
        if len(seen) < _MAX_DISTINCT:
            seen.append(schema)
        yield _Stored(dataset, file, schema)


def _name_problems(stored: _Stored, *, lineage: bool) -> Iterator[str]:
    names = stored.schema.names
    if not names:
        yield f"{stored.where} has no columns; leave it out, or give every dataset the same columns"
    for name, times in Counter(names).items():
        if times > 1:
            yield f"column {name!r} of {stored.where} is there {times} times; give each column a name of its own"
        if not name or "\0" in name:
            yield f"column {name!r} of {stored.where} has a name that is empty or holds a NUL; rename it in the files"
        if lineage and name in LINEAGE_COLUMNS:
            yield (
                f"column {name!r} of {stored.where} has the name of a lineage column; "
                f"set `lineage: false`, or rename it in the files"
            )


def _column_problems(distinct: Sequence[_Stored]) -> Iterator[str]:
    """Yield each column that is not everywhere, with the first file that has it and the first that has not."""
    for name in dict.fromkeys(name for stored in distinct for name in stored.schema.names):
        having = next(stored for stored in distinct if name in stored.schema.names)
        lacking = next((stored for stored in distinct if name not in stored.schema.names), None)
        if lacking:
            kind = having.schema.field(name).type
            yield (
                f"column {name!r}: {kind} in {having.where}, but missing in {lacking.where}; "
                f"give every dataset the same columns"
            )


def _common(column: str, found: Sequence[Found], problems: list[str]) -> pa.DataType:
    """Return the output type of a column; where there is none add to `problems` and return any type."""
    valued = [item for item in _unwrapped(found) if not kinds.is_null(item.type)]
    if not valued:
        return pa.string()
    if problem := _family_problem(column, valued):
        problems.append(problem)
        return pa.null()
    first = valued[0]
    if is_list(first.type):
        inner = [Found(item.dataset, item.file, item.type.value_type) for item in valued]
        return pa.list_(pa.field("element", _common(f"{column}[]", inner, problems)))
    if kinds.is_struct(first.type):
        return _common_struct(column, valued, problems)
    try:
        return common_leaf([item.type for item in valued])
    except NoCommonTypeError as error:
        problems.append(_clash(column, *_clashing(valued), str(error)))
        return pa.null()


def _family_problem(column: str, found: Sequence[Found]) -> str | None:
    first = found[0]
    for item in found:
        if family(item.type) is None:
            return _refused(column, item)
        if family(item.type) != family(first.type):
            return _clash(column, first, item, _why(first.type, item.type))
    return None


def _unwrapped(found: Sequence[Found]) -> list[Found]:
    """Return the first of each different type in `found`, as the type of its values."""
    first: dict[pa.DataType, Found] = {}
    for item in found:
        kind = unwrapped(item.type)
        first.setdefault(kind, Found(item.dataset, item.file, kind))
    return list(first.values())


def _clashing(found: Sequence[Found]) -> tuple[Found, Found]:
    """Return the first two of `found` that have no common type; one that has no output type clashes with itself."""
    for second in range(len(found)):
        for first in range(second + 1):
            try:
                common_leaf([found[first].type, found[second].type])
            except NoCommonTypeError:
                return found[first], found[second]
    raise AssertionError("several types clash only if two of them do")


def _common_struct(column: str, found: Sequence[Found], problems: list[str]) -> pa.DataType:
    fields = []
    for name in dict.fromkeys(field.name for item in found for field in item.type):
        path = f"{column}.{name}"
        having = [item for item in found if item.type.get_field_index(name) >= 0]
        twice = next((item for item in found if len(item.type.get_all_field_indices(name)) > 1), None)
        lacking = next((item for item in found if not item.type.get_all_field_indices(name)), None)
        if twice:
            problems.append(f"field {path!r} of {twice.where} is there twice; give each field a name of its own")
        elif not name or "\0" in name:
            problems.append(f"field {path!r} of {having[0].where} has a name that is empty or holds a NUL; rename it")
        elif lacking:
            problems.append(
                f"field {path!r}: {having[0].type.field(name).type} in {having[0].where}, "
                f"but missing in {lacking.where}; give every dataset the same fields"
            )
        else:
            inner = [Found(item.dataset, item.file, item.type.field(name).type) for item in found]
            fields.append(pa.field(name, _common(path, inner, problems)))
    return pa.struct(fields)


def _refused(column: str, item: Found) -> str:
    return (
        f"column {column!r}: {item.type} in {item.where} cannot be written so that every reader takes it; "
        f"store it as a plain type (a map as a list of structs, a tensor as a list)"
    )


def _clash(column: str, first: Found, second: Found, why: str) -> str:
    if first is second:
        return f"column {column!r}: {first.type} in {first.where}: {why}; store it as a smaller type"
    return (
        f"column {column!r}: {first.type} in {first.where}, but {second.type} in {second.where}: {why}; "
        f"store both as one type"
    )


def _why(first: pa.DataType, second: pa.DataType) -> str:
    if {family(first), family(second)} == {"zoned timestamp", "unzoned timestamp"}:
        return "a time without a zone is no instant, and guessing its zone would move it"
    return f"{family(first)} and {family(second)} are never mixed"


def _promotions(distinct: Sequence[_Stored], schema: pa.Schema) -> Iterator[Promotion]:
    seen = set()
    for stored in distinct:
        for field in stored.schema:
            for column, kind, output in changes(field.name, field.type, schema.field(field.name).type):
                if (stored.dataset, column, kind) not in seen:
                    seen.add((stored.dataset, column, kind))
                    yield Promotion(stored.dataset, stored.file, column, str(kind), str(output))
