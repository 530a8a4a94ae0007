"""A dataset of Parquet files, read as if its files were one, decoding only what is asked for.

A row group is decoded whole and kept until the reader has passed it, unless it is large: then it is decoded in
pieces of a few MiB, and the place in it is kept between reads. Both cost the same CPU; a piece takes less
memory, and a whole group can be read backwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mixer.errors import ChangedError, CorruptionError, InputError, MixerError, SchemaError, StoreError
from mixer.schemas import View
from mixer.sources.base import check_range
from mixer.sources.files import OpenFiles
from mixer.sources.groups import Limits, RowGroup, Rows, StreamedGroup, WholeGroup, decodes, fixed_row_bytes
from mixer.sources.inventory import FileEntry, Inventory, damaged_part, read_planned_footer
from mixer.storage.inputs import difference, stat_input

_MANY_PIECES = 16


class ParquetSource:
    """Rows of a dataset's files, one after the other, in the columns and types of `schema`.

    Not thread-safe: one source is used by one thread at a time. Different sources may be used in different
    threads, also when they share `files`. Nothing is opened before the first read.
    """

    def __init__(  # noqa: PLR0913 - three may be left out
        self,
        name: str,
        inventory: Inventory,
        schema: pa.Schema,
        *,
        view: View = View(),  # noqa: B008 - a frozen value
        files: OpenFiles | None = None,
        limits: Limits = Limits(),  # noqa: B008 - a frozen value
    ) -> None:
        """Read the files of `inventory`.

        Args:
            name: The dataset's name, for messages.
            inventory: The files in order, as they must still be.
            schema: Columns and types of what is returned, from `mixer.schemas.merge`; no other columns are read.
            view: How the dataset was seen when they were merged.
            files: Open files to share with other sources, so that their number is bounded together.
            limits: How much is decoded at once.
        """
        self.name = name
        self.schema = schema
        self.rows = inventory.rows
        self.row_groups_decoded = 0
        """How often the first rows of a row group were decoded."""
        self._inventory = inventory
        self._in_copy = inventory.copy_key is not None
        self._files = files if files is not None else OpenFiles(limit=1)
        self._limits = limits
        self._places = _Places(inventory)
        self._footers: tuple[int, pq.FileMetaData, tuple[str, ...]] | None = None
        self._open: tuple[int, Rows] | None = None
        self._view = view
        # What is cast takes other memory before.
        self._fixed_row_bytes = None if view.casts else fixed_row_bytes(schema)
        self._row_bytes = self._fixed_row_bytes

    def read(self, start: int, stop: int) -> pa.Table:
        """Return the rows ``[start, stop)`` of the dataset, in `schema`.

        The table has a chunk for each row group or piece, and shares its memory with what is kept of them.

        Raises:
            ValueError: Not ``0 <= start <= stop <= rows``.
            ChangedError: A file is gone, or is not the one in the inventory.
            CorruptionError: A file's footer is the planned one, but what it tells of cannot be decoded; or a file of
                a prepared copy is gone, or is another one.
            InputError: A file needs something that this version of Arrow cannot decode.
            StoreError: A store refused, or did not answer; the same call may be made again.
        """
        check_range(self, start, stop)
        tables = [self.schema.empty_table()] if start == stop else []
        position = start
        while position < stop:
            place = self._places.of(position)
            first, last = self._places.rows_of(place)
            end = min(stop, last)
            with self._blaming(place):
                tables += self._rows_of(place).read(position - first, end - first)
            if end == last:
                # Passed: kept, it would take memory beside the next one.
                self._drop()
            position = end
        return pa.concat_tables(tables)

    def close(self) -> None:
        """Close files and give memory back. A later read opens them again."""
        self._drop()
        self._footers = None
        self._files.forget(self)

    def _rows_of(self, place: int) -> Rows:
        if self._open is not None:
            if self._open[0] == place:
                return self._open[1]
            self._drop()
        rows = self._opened(place)
        self._open = (place, rows)
        return rows

    def _opened(self, place: int) -> Rows:
        file, ordinal = self._places.address_of(place)
        entry = self._inventory.files[file]
        footer, columns = self._footer_of(file)
        group = RowGroup(entry.file, footer, ordinal, columns, self._view)
        piece_rows = self._limits.piece_rows(group.rows, group.stored_bytes, self._row_bytes)
        if self._row_bytes is None and piece_rows is not None and group.rows > _MANY_PIECES * piece_rows:
            # Worth decoding the first piece twice, so that the others get the right size.
            with closing(StreamedGroup(group, self.schema, piece_rows, self._learn)) as first:
                first.read(0, 1)
            piece_rows = self._limits.piece_rows(group.rows, group.stored_bytes, self._row_bytes)
        if piece_rows is not None:
            return StreamedGroup(group, self.schema, piece_rows, self._note_piece)
        with self._files.lend(self, entry.file, footer) as opened:
            return WholeGroup(group, self.schema, opened, self._note_piece)

    def _footer_of(self, file: int) -> tuple[pq.FileMetaData, tuple[str, ...]]:
        """Return a file's footer and which of the wanted columns it has; the last file's are kept."""
        if self._footers is None or self._footers[0] != file:
            entry = self._inventory.files[file]
            footer = self._inventory.footers.get(entry.url)
            if footer is None:
                footer = read_planned_footer(self.name, entry)
            # What rows take is learned anew: the next file's may be other texts.
            self._row_bytes = self._fixed_row_bytes
            there = set(footer.schema.to_arrow_schema().names)
            wanted = (self._view.stored_name(name) for name in self.schema.names)
            self._footers = (file, footer, tuple(name for name in wanted if name is not None and name in there))
        return self._footers[1], self._footers[2]

    def _note_piece(self, first: int, rows: int, nbytes: int) -> None:
        if first == 0:
            self.row_groups_decoded += 1
        self._learn(first, rows, nbytes)

    def _learn(self, _first: int, rows: int, nbytes: int) -> None:
        if self._fixed_row_bytes is None and rows:
            self._row_bytes = max(self._row_bytes or 0.0, nbytes / rows)

    def _drop(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened[1].close()

    @contextmanager
    def _blaming(self, place: int) -> Iterator[None]:
        """Turn what goes wrong into an error that names dataset, file and row group; the next read begins anew."""
        file, ordinal = self._places.address_of(place)
        entry = self._inventory.files[file]
        where = f"dataset {self.name!r}, file {entry.url}, row group {ordinal}"
        try:
            yield
        except (SchemaError, CorruptionError) as error:
            self._drop()
            if self._in_copy and isinstance(error, CorruptionError):
                raise damaged_part(where, entry, str(error)) from error
            raise type(error)(f"{where}: {error}") from error
        except ChangedError as error:
            self._drop()
            if not self._in_copy:
                raise
            raise damaged_part(where, entry) from error
        except MixerError:
            self._drop()
            raise
        except MemoryError as error:
            self._drop()
            raise InputError(
                f"{where}: does not fit into the memory that there is ({error}); give the process more, or write the "
                f"file with smaller pages and values"
            ) from error
        except (OSError, pa.ArrowException) as error:
            self._drop()
            raise self._judged(where, place, entry, error) from error

    def _judged(self, where: str, place: int, entry: FileEntry, error: Exception) -> MixerError:
        """Return what a failed decoding is: the file was changed, the disk failed, or the bytes are damaged."""
        if self._in_copy and not (isinstance(error, OSError) and error.errno is not None):
            return damaged_part(where, entry, f"its bytes do not decode: {error}")
        if changed := difference(entry.file, stat_input(entry.url)):
            return ChangedError(f"{where}: the file has changed since the run was planned: {changed}; put it back")
        if isinstance(error, pa.ArrowNotImplementedError):
            return InputError(
                f"{where}: this version of Arrow cannot decode it ({error}); write the file in another way"
            )
        if isinstance(error, OSError) and error.errno is not None:
            return StoreError(f"{where}: cannot be read: {error}; check the disk, then run again")
        return CorruptionError(
            f"{where}{self._damaged_columns(place)}: its bytes do not decode, although the footer is the planned one: "
            f"{error}; restore the file from a copy with the same modification time, or start a new output without it"
        )

    def _damaged_columns(self, place: int) -> str:
        """Return which columns of a row group do not decode by themselves, to be told; nothing if all do."""
        file, ordinal = self._places.address_of(place)
        footer, columns = self._footer_of(file)
        group = RowGroup(self._inventory.files[file].file, footer, ordinal, columns)
        damaged = [name for name in columns if not decodes(group, name)]
        return f", column {', '.join(map(repr, damaged))}" if damaged else ""


class _Places:
    """Where each row of a dataset is: its row groups, numbered over all files."""

    def __init__(self, inventory: Inventory) -> None:
        counts = [len(entry.row_group_rows) for entry in inventory.files]
        rows = [rows for entry in inventory.files for rows in entry.row_group_rows]
        self._files = np.repeat(np.arange(len(counts)), counts)  # (places,)
        self._first_places = np.cumsum([0, *counts])  # (files + 1,)
        self._starts = np.cumsum([0, *rows], dtype=np.int64)  # (places + 1,)

    def of(self, row: int) -> int:
        """Return the place of the dataset's row `row`."""
        # From the right: of places that begin at one row, only the last has any.
        return int(np.searchsorted(self._starts, row, side="right")) - 1

    def rows_of(self, place: int) -> tuple[int, int]:
        """Return the first of the dataset's rows in a place, and one past the last."""
        return int(self._starts[place]), int(self._starts[place + 1])

    def address_of(self, place: int) -> tuple[int, int]:
        """Return a place's file, and its row group within the file."""
        file = int(self._files[place])
        return file, place - int(self._first_places[file])
