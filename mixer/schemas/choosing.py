"""What a dataset gives to a run: which of its stored columns, under which names, and as which types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from mixer.core.type_names import TypeName, parse_type
from mixer.schemas.features import renamed_features


@dataclass(frozen=True, slots=True)
class Column:
    """A column that is taken."""

    stored: str
    """Its name in the files."""
    name: str
    """Its name in the run."""
    cast: str | None = None
    """The type it is brought to before anything else, as `parse_type` reads it."""

    def to_json(self) -> dict[str, str]:
        """Return the column as texts."""
        return {"stored": self.stored, "name": self.name, **({"cast": self.cast} if self.cast else {})}


@dataclass(frozen=True, slots=True)
class View:
    """How a dataset is seen.

    >>> View((Column("content", "text"),)).of(pa.schema({"id": pa.int8(), "content": pa.string()}))
    text: string
    """

    columns: tuple[Column, ...] | None = None
    """What is taken, in this order; None for every column as it is."""
    ordered: bool = True
    """Whether the order of `columns` counts; else they stand as in the files."""
    fill: bool = False
    """Whether a column that the dataset lacks, or one of its files, is null."""
    casts: Mapping[str, pa.DataType] = field(init=False, compare=False, repr=False)
    """By name in the run, what columns are brought to before anything else."""

    _stored: Mapping[str, str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        casts = {column.name: arrow_type(parse_type(column.cast)) for column in self.columns or () if column.cast}
        object.__setattr__(self, "casts", casts)
        object.__setattr__(self, "_stored", {column.name: column.stored for column in self.columns or ()})

    def to_json(self) -> dict[str, Any]:
        """Return what decides rows as plain values: nothing, if every column is taken as it is."""
        columns = {} if self.columns is None else {"columns": [column.to_json() for column in self.columns]}
        return columns | ({"ordered": False} if columns and not self.ordered else {})

    def stored_name(self, name: str) -> str | None:
        """Return how the files call the run's column `name`; None if nothing is taken for it."""
        return name if self.columns is None else self._stored.get(name)

    def taken(self, stored: Sequence[str]) -> Iterator[Column]:
        """Yield what is taken of a file with the columns `stored`, in the order of the run."""
        if self.columns is None:
            yield from (Column(name, name) for name in stored)
            return
        places = {name: place for place, name in enumerate(stored)}
        there = [column for column in self.columns if column.stored in places]
        yield from there if self.ordered else sorted(there, key=lambda column: places[column.stored])

    def of(self, schema: pa.Schema) -> pa.Schema:
        """Return what a file of `schema` gives. A doubled column stays doubled, for `merge` to refuse."""
        if self.columns is None:
            return schema
        fields, names = [], {}
        for column in self.taken(schema.names):
            cast = self.casts.get(column.name)
            if cast is None:
                names[column.stored] = column.name
            fields += [
                pa.field(column.name, cast or schema.field(place).type)
                for place in schema.get_all_field_indices(column.stored)
            ]
        return pa.schema(fields, metadata=renamed_features(schema.metadata, names))


def arrow_type(name: TypeName) -> pa.DataType:
    """Return the type that `name` stands for.

    >>> arrow_type(parse_type("list<timestamp[us, UTC]>"))
    ListType(list<element: timestamp[us, tz=UTC]>)
    """
    if name.name == "list":
        return pa.list_(pa.field("element", arrow_type(name.inner[0][1])))
    if name.name == "struct":
        return pa.struct([pa.field(inner, arrow_type(kind)) for inner, kind in name.inner])
    make = getattr(pa, {"bool": "bool_"}.get(name.name, name.name))
    kind: pa.DataType = make(*name.parameters)
    return kind


def type_name(kind: pa.DataType) -> str | None:
    """Return how a config names `kind`; None if it has no name there.

    >>> type_name(pa.timestamp("us", "UTC")), type_name(pa.large_list(pa.float32())), type_name(pa.map_("int8", "int8"))
    ('timestamp[us, UTC]', None, None)
    """
    try:
        name = parse_type(str(kind))
    except ValueError:
        return None
    return str(name)
