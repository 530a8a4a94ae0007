"""One schema for a whole run: what the datasets' columns have in common, and tables brought to it.

The rules, all decided before a row is read:

* Columns are matched by name, case-sensitive, and stand in the order of the first file of the first dataset.
  Every file of every dataset has every column, or those that it lacks are null, if the config says so.
* A dataset may give only some columns, under other names, and cast. All of what follows is about what it gives.
* `string`, `large_string` and `string_view` are the same thing, and so are the binary types (a UUID is its 16 bytes),
  the list types, a dictionary and its values, JSON text and text, child names, and nullable or not.
* Numbers widen to the smallest type that holds every value of all: int8 and uint8 to int16, int32 and float to double.
  uint64 with a signed type, or a 64-bit integer with a float, is an error.
* Decimals widen up to 38 digits. Times, durations and timestamps take the finest unit; a value that is out of its range
  there stops the run when it is met. Zoned timestamps of different zones become UTC; zoned with unzoned is an error.
* A column without any value (the null type) takes the others' type; if it is null everywhere it becomes `string`.
* Structs merge field by field, by the same rules; missing fields are like missing columns.
* A type that a library has registered with Arrow, as `datasets` does for arrays, is what it is stored as.
* Maps, unions, other extension types, intervals and empty structs are refused: not every reader takes them.

What comes out are the types that Parquet itself has, all nullable (list elements too), with `element` as the child of
every list, and without metadata, except for what every file says alike under the key `huggingface` about a column.
"""

from __future__ import annotations

from mixer.schemas.choosing import Column, View
from mixer.schemas.conforming import conform
from mixer.schemas.merging import LINEAGE_COLUMNS, Merged, Promotion, Schemas, merge
from mixer.schemas.storing import schema_from_json, schema_to_json

__all__ = [
    "LINEAGE_COLUMNS",
    "Column",
    "Merged",
    "Promotion",
    "Schemas",
    "View",
    "conform",
    "merge",
    "schema_from_json",
    "schema_to_json",
]
