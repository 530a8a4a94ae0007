"""Many files' schemas to one output schema, with every problem told at once."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import pyarrow as pa
from pyarrow import types as kinds

from mixer.errors import SchemaError
from mixer.schemas.advice import LEAVE_OUT, MOST_TAKEN, about_clash, about_size, in_columns, in_flow
from mixer.schemas.casting import never, plain
from mixer.schemas.choosing import View
from mixer.schemas.features import common_features
from mixer.schemas.types import Found, NoCommonTypeError, changes, common_leaf, family, is_list, unwrapped

Schemas = Sequence[tuple[str, pa.Schema]]
"""Where the files of a dataset are, and their columns as stored."""

LINEAGE_COLUMNS = ("_dataset", "_row", "_epoch", "_batch")
"""Columns that a run adds, unless its config says `lineage: false`."""

MISSING = "missing"
"""What a promotion says a dataset stores of a column that is filled with null."""
_MAX_SHOWN = 20
_MAX_DISTINCT = 64
"""Up to how many different schemas of a dataset are told apart; beyond, equal ones are merged again, only slower."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """A column (or a part of one) that comes out as another type than a dataset stores it."""

    dataset: str
    file: str
    """The first file of the dataset that stores it so."""
    column: str
    """`name`, `struct.field` or `list[]`."""
    stored: str
    """A type, or `missing`."""
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
    raw: pa.Schema
    """As stored."""
    view: View
    schema: pa.Schema
    """As seen."""
    names: frozenset[str]
    """Of the columns seen."""
    taken: tuple[tuple[str, str], ...]
    """See `Found`."""

    @property
    def where(self) -> str:
        return f"dataset {self.dataset!r} ({self.file})"

    @property
    def doubled(self) -> list[str]:
        """Columns that are there more than once, by their names in the run."""
        return [name for name, times in Counter(self.schema.names).items() if times > 1]

    def found(self, name: str) -> Found:
        """Return what stands here as the run's column `name`."""
        stored = self.view.stored_name(name)
        cast_from = self.raw.field(stored).type if name in self.view.casts else None
        called = stored if stored is not None and stored != name else ""
        kind = self.schema.field(name).type
        return Found(self.dataset, self.file, kind, name, called, cast_from, fill=self.view.fill, taken=self.taken)


def merge(
    schemas: Mapping[str, Schemas],
    *,
    lineage: bool = True,
    views: Mapping[str, View] | None = None,
) -> Merged:
    """Return the one output schema of datasets whose files have the given schemas.

    Args:
        schemas: For each dataset, in order, its files in order: where each is, and its schema as stored.
        lineage: Whether lineage columns will be added, so that their names are taken.
        views: How datasets are seen; of those that are not named, every column is taken as it is.

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
    views = {name: (views or {}).get(name, View()) for name in schemas}
    distinct = [stored for name, files in schemas.items() for stored in _distinct(name, files, views[name])]
    if not distinct:
        raise SchemaError("no dataset has a file, so there are no columns")
    unknown, problems = _unknown(distinct)
    problems += [problem for stored in distinct for problem in _name_problems(stored, unknown, lineage=lineage)]
    problems += [problem for stored in distinct for problem in _cast_problems(stored)]
    doubled = {name for stored in distinct for name in stored.doubled}
    fields = []
    for name in dict.fromkeys(name for stored in distinct for name in stored.schema.names):
        found = [stored.found(name) for stored in distinct if name in stored.names and name not in doubled]
        fields.append(pa.field(name, _common(name, found, problems)))
    problems += _column_problems(distinct, unknown)
    labels = common_features(_seen(schemas, views), [field.name for field in fields], problems)
    if problems:
        raise SchemaError("\n".join(dict.fromkeys(problems)))
    schema = pa.schema(fields, metadata=labels.metadata)
    lost = (
        Promotion(dataset, file, column, stored, str(schema.field(column).type))
        for dataset, file, column, stored in labels.lost
    )
    return Merged(schema, (*_promotions(distinct, schema), *lost))


def _seen(schemas: Mapping[str, Schemas], views: Mapping[str, View]) -> list[tuple[str, str, pa.Schema]]:
    """Return every dataset's files with their schemas as seen; those that share one are looked at once."""
    seen: dict[tuple[str, int], pa.Schema] = {}
    files = []
    for name, stored in schemas.items():
        for file, schema in stored:
            key = (name, id(schema))
            if key not in seen:
                seen[key] = views[name].of(schema)
            files.append((name, file, seen[key]))
    return files


def _distinct(dataset: str, files: Schemas, view: View) -> Iterator[_Stored]:
    """Yield the different schemas of a dataset, so that thousands of equal files cost next to nothing."""
    seen: list[pa.Schema] = []
    for file, schema in files:
        if any(schema.equals(other) for other in seen):
            continue
        if len(seen) < _MAX_DISTINCT:
            seen.append(schema)
        as_seen = view.of(schema)
        yield _Stored(dataset, file, schema, view, as_seen, frozenset(as_seen.names), _taken(schema, view))


def _taken(schema: pa.Schema, view: View) -> tuple[tuple[str, str], ...]:
    """Return the first columns that are taken of `schema`, each with what the option `columns` says of it."""
    return tuple(
        (
            column.stored,
            in_columns(column.name, column.cast and in_flow(column.cast), renamed=column.stored != column.name),
        )
        for column in islice(view.taken(schema.names), MOST_TAKEN)
    )


def _unknown(distinct: Sequence[_Stored]) -> tuple[set[tuple[str, str]], list[str]]:
    """Return what datasets are asked for and no file of theirs has, by the names in the run, and what to say of it."""
    unknown, problems = set(), []
    for dataset in dict.fromkeys(stored.dataset for stored in distinct):
        files = [stored for stored in distinct if stored.dataset == dataset]
        there = list(dict.fromkeys(name for stored in files for name in stored.raw.names))
        for column in files[0].view.columns or ():
            if column.stored in there:
                continue
            unknown.add((dataset, column.name))
            close = difflib.get_close_matches(column.stored, there, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ";"
            shown = ", ".join(map(repr, there[:_MAX_SHOWN])) + (", ..." if len(there) > _MAX_SHOWN else "")
            problems.append(
                f"column {column.stored!r}: in `columns` of dataset {dataset!r}, but in none of its files "
                f"({files[0].file}){hint} there are {shown or 'no columns'}"
            )
    return unknown, problems


def _name_problems(stored: _Stored, unknown: set[tuple[str, str]], *, lineage: bool) -> Iterator[str]:
    names = stored.schema.names
    if not stored.raw.names:
        yield f"{stored.where} has no columns; leave it out, or give every dataset the same columns"
    elif not names and not any(dataset == stored.dataset for dataset, _ in unknown):
        yield f"{stored.where} has none of the dataset's `columns`; leave the file out"
    for name in dict.fromkeys(names):
        if (times := names.count(name)) > 1:
            yield (
                f"column {stored.view.stored_name(name)!r} of {stored.where} is there {times} times; "
                f"give each column a name of its own, or {LEAVE_OUT}"
            )
        if not name or "\0" in name:
            yield (
                f"column {name!r} of {stored.where} has a name that is empty or holds a NUL; "
                f"rename it in the files, or {LEAVE_OUT}"
            )
        if lineage and name in LINEAGE_COLUMNS:
            yield (
                f"column {name!r} of {stored.where} has the name of a lineage column; rename it: "
                f"`columns: {{{in_flow(stored.view.stored_name(name) or name)}: {name[1:]}}}` at dataset "
                f"{stored.dataset!r}, or set `lineage: false`"
            )


def _cast_problems(stored: _Stored) -> Iterator[str]:
    """Yield the casts that no value survives."""
    for name, target in stored.view.casts.items():
        if name in stored.names and name not in stored.doubled:
            kind = stored.raw.field(stored.view.stored_name(name)).type
            if why := never(kind, target):
                yield (
                    f"column {stored.view.stored_name(name)!r}: {kind} in {stored.where}, to be cast to {target}: "
                    f"{why}; choose another `cast`, or {LEAVE_OUT}"
                )


def _column_problems(distinct: Sequence[_Stored], unknown: set[tuple[str, str]]) -> Iterator[str]:
    """Yield each column that is not everywhere, with the first file that has it and the first that has not."""
    for name in dict.fromkeys(name for stored in distinct for name in stored.schema.names):
        having = next(stored for stored in distinct if name in stored.names)
        lacking = next(
            (
                stored
                for stored in distinct
                if not (name in stored.names or stored.view.fill or (stored.dataset, name) in unknown)
            ),
            None,
        )
        if lacking:
            kind = having.schema.field(having.schema.names.index(name)).type
            yield (
                f"column {name!r}: {kind} in {having.where}, but missing in {lacking.where}; give every dataset the "
                f"same columns (`columns` selects and renames them), or set `missing: null`"
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
        inner = [replace(item, type=item.type.value_type) for item in valued]
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
        first.setdefault(kind, replace(item, type=kind))
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
        lacking = next((item for item in found if not item.fill and not item.type.get_all_field_indices(name)), None)
        if twice:
            problems.append(f"field {path!r} of {twice.where} is there twice; give each field a name of its own")
        elif not name or "\0" in name:
            problems.append(f"field {path!r} of {having[0].where} has a name that is empty or holds a NUL; rename it")
        elif lacking:
            problems.append(
                f"field {path!r}: {having[0].type.field(name).type} in {having[0].where}, "
                f"but missing in {lacking.where}; give every dataset the same fields, or set `missing: null`"
            )
        else:
            inner = [replace(item, type=item.type.field(name).type) for item in having]
            fields.append(pa.field(name, _common(path, inner, problems)))
    return pa.struct(fields)


def _refused(column: str, item: Found) -> str:
    return (
        f"column {column!r}: {item.type} in {item.where} cannot be written so that every reader takes it; "
        f"store it as a plain type (a map as a list of structs, a tensor as a list), or {LEAVE_OUT}"
    )


def _clash(column: str, first: Found, second: Found, why: str) -> str:
    if first is second:
        return f"column {column!r}: {first.type} in {first.where}: {why}; {about_size(column, first)}"
    return (
        f"column {column!r}: {first.type} in {first.where}, but {second.type} in {second.where}: {why}; "
        f"{about_clash(column, first, second)}"
    )


def _why(first: pa.DataType, second: pa.DataType) -> str:
    if {family(first), family(second)} == {"zoned timestamp", "unzoned timestamp"}:
        return "a time without a zone is no instant, and guessing its zone would move it"
    return f"{family(first)} and {family(second)} are never mixed"


def _promotions(distinct: Sequence[_Stored], schema: pa.Schema) -> Iterator[Promotion]:
    seen = set()
    for stored in distinct:
        for field in schema:
            for column, kind, output in _changes(stored, field):
                if (stored.dataset, column, kind) not in seen:
                    seen.add((stored.dataset, column, kind))
                    yield Promotion(stored.dataset, stored.file, column, kind, output)


def _changes(stored: _Stored, field: pa.Field) -> Iterator[tuple[str, str, str]]:
    if field.name not in stored.names:
        yield field.name, MISSING, str(field.type)
        return
    found = stored.found(field.name)
    if found.cast_from is None:
        for column, kind, output in changes(field.name, found.type, field.type):
            yield column, str(kind), str(output)
    elif plain(found.cast_from) != field.type:
        yield field.name, str(found.cast_from), str(field.type)
