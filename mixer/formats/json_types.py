"""Which columns a lot of JSON objects have: learnt value by value, told as an Arrow schema.

Integers are int64, or uint64 once one needs it; with a fraction or an exponent anywhere in the column they are doubles.
Everything else that differs within a column is an error that names both lines. Objects are merged field by field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from mixer.errors import SchemaError
from mixer.formats.base import BAD

MAX_FIELDS = 10_000
MAX_INT64 = 2**63 - 1
_KINDS = {bool: "true or false", int: "an integer", float: "a number", str: "a text", list: "a list", dict: "an object"}
_LEAVES = {"true or false": pa.bool_(), "a number": pa.float64(), "a text": pa.string()}


@dataclass(slots=True)
class Node:
    """What is known of the values of one column, list or field."""

    kind: str | None = None
    where: tuple[str, int] = ("", 0)
    """File and line that the kind was first seen in."""
    is_unsigned: bool = False
    inner: dict[str, Node] = field(default_factory=dict)
    """Fields of an object; a list's elements under the empty name."""

    def type(self) -> pa.DataType:
        """Return the type that holds all values so far; null if there are none."""
        if self.kind is None:
            return pa.null()
        if self.kind == "an integer":
            return pa.uint64() if self.is_unsigned else pa.int64()
        if self.kind == "a list":
            return pa.list_(pa.field("element", self.inner[""].type() if self.inner else pa.null()))
        if self.kind == "an object":
            return pa.struct([pa.field(name, node.type()) for name, node in self.inner.items()])
        return _LEAVES[self.kind]


class Learner:
    """Learns columns from rows.

    Args:
        dataset: The dataset's name, for errors.
        unit: What is counted to tell where a row is, for errors.
    """

    def __init__(self, dataset: str, unit: str = "line") -> None:
        self._dataset, self._unit = dataset, unit
        self._root = Node("an object")
        self._fields = 0
        self._passed: Counter[str] = Counter()
        self._schema: pa.Schema | None = pa.schema([])

    def schema(self) -> pa.Schema:
        """Return the schema of all rows so far, its columns in the order in which they were first seen."""
        if self._schema is None:
            self._schema = pa.schema([pa.field(name, node.type()) for name, node in self._root.inner.items()])
        return self._schema

    def learn(self, row: dict[str, Any], where: tuple[str, int]) -> None:
        """Take note of a row.

        Raises:
            SchemaError: A value is of another kind than those before it.
        """
        self._learn(self._root, row, where, "")

    def note(self, counts: Counter[str]) -> None:
        """Take note of what was no row, by kind as a policy counts it: of use if nothing else is found."""
        self._passed.update(counts)

    def finished(self) -> pa.Schema:
        """Return the schema of all rows.

        Raises:
            SchemaError: There is no column, or one that can hold nothing.
        """
        if not self._root.inner:
            raise SchemaError(f"dataset {self._dataset!r}: expected rows with columns, found none; {self._instead()}")
        for path, node in _walk(self._root, ""):
            if node.kind == "an object" and not node.inner:
                raise SchemaError(
                    f"dataset {self._dataset!r} column {path!r}: expected objects with fields, found only empty ones "
                    f"({self._told(node.where)} is the first); Parquet has no such type: leave the key out"
                )
        return self.schema()

    def _instead(self) -> str:
        """Return what was found instead of rows."""
        bad = {kind.removeprefix(BAD): count for kind, count in self._passed.items() if kind.startswith(BAD)}
        if not bad:
            return "is it empty?"
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(bad.items()))
        return (
            f"{sum(bad.values()):,} bad {self._unit}s were passed over ({kinds}); mend the files, or check their "
            f"`format`: with `on_bad_line: error` the first of these is named"
        )

    def _told(self, where: tuple[str, int]) -> str:
        return f"{where[0]} {self._unit} {where[1]}"

    def _learn(self, node: Node, value: Any, where: tuple[str, int], path: str) -> None:
        kind = _KINDS[type(value)]
        if node.kind != kind:
            self._meet(node, kind, where, path)
        if kind == "an integer" and value > MAX_INT64 and not node.is_unsigned:
            node.is_unsigned, self._schema = True, None
        elif kind == "an object":
            for name, inner in value.items():
                child = node.inner.get(name) or self._new_field(node, name, where, path)
                if inner is not None:
                    self._learn(child, inner, where, f"{path}.{name}" if path else name)
        elif kind == "a list":
            child = node.inner.setdefault("", Node())
            for inner in value:
                if inner is not None:
                    self._learn(child, inner, where, f"{path}[]")

    def _meet(self, node: Node, kind: str, where: tuple[str, int], path: str) -> None:
        if {node.kind, kind} == {"an integer", "a number"}:
            if kind == "a number":
                node.kind, self._schema = kind, None
            return
        if node.kind is not None:
            raise SchemaError(
                f"dataset {self._dataset!r} column {path!r}: expected one kind of value, found {node.kind} in "
                f"{self._told(node.where)} and {kind} in {self._told(where)}; mend the file"
            )
        node.kind, node.where, self._schema = kind, where, None

    def _new_field(self, node: Node, name: str, where: tuple[str, int], path: str) -> Node:
        if not name or "\0" in name:
            raise SchemaError(
                f"dataset {self._dataset!r}: {self._told(where)}: expected a key that can name a column, found "
                f"{name!r}{' in ' + repr(path) if path else ''}; rename it"
            )
        self._fields += 1
        if self._fields > MAX_FIELDS:
            raise SchemaError(
                f"dataset {self._dataset!r}: {self._told(where)}: expected at most {MAX_FIELDS} different keys "
                f"in all objects, found more; are keys data here? Store such an object as a list of pairs"
            )
        self._schema = None
        child = node.inner[name] = Node(where=where)
        return child


def _walk(node: Node, path: str) -> Iterator[tuple[str, Node]]:
    for name, inner in node.inner.items():
        below = f"{path}[]" if node.kind == "a list" else f"{path}.{name}" if path else name
        yield below, inner
        yield from _walk(inner, below)


def leaves(kind: pa.DataType | pa.Schema) -> Iterator[pa.DataType]:
    """Yield the types of the values that `kind` is made of.

    >>> list(leaves(pa.struct({"a": pa.list_(pa.int64()), "b": pa.string()})))
    [DataType(int64), DataType(string)]
    """
    fields = kind if isinstance(kind, pa.Schema) else [kind.field(place) for place in range(kind.num_fields)]
    if not len(fields):
        if isinstance(kind, pa.DataType):
            yield kind
        return
    for inner in fields:
        yield from leaves(inner.type)
