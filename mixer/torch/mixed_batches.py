"""The batches of a run for a trainer: tensors, in the run's order, with an exact state.

A state is the number of the next batch and the run's fingerprint, whatever the ranks and workers that it was saved
with. What a `DataLoader` with workers has fetched is more than what the trainer has got, and the dataset cannot see
how much more: `MixedBatches.loader` can, as it hands the batches to the trainer. Its workers share the row groups, so
each is decoded once on each rank; those of a plain `DataLoader` must take turns at batches, and decode all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from mixer.core.arguments import rank_of, whole_number
from mixer.core.serving import Part, Turn
from mixer.errors import ChangedError, ConfigError, OutputError
from mixer.readable import THREADS, Ahead, Piece, look
from mixer.reading import checked, following
from mixer.torch.batch_tensors import Column, Options, column_of
from mixer.torch.seeds import rank_and_world_size

Batch = dict[str, Any]
"""What a batch has of each column: a `mixer.torch.batch_tensors.Value`."""
State = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Chunk:
    """The batches of one row group, in few tensors: so they are sent from a worker at little cost."""

    batches: range
    """Their numbers."""
    edges: list[int]
    """Where each begins, and the last one ends."""
    columns: dict[str, Column]

    def __iter__(self) -> Iterator[tuple[int, Batch]]:
        for number, start, stop in zip(self.batches, self.edges, self.edges[1:], strict=False):
            yield number, {name: column.rows(start, stop) for name, column in self.columns.items()}

    def pin_memory(self, *_: Any) -> Chunk:
        """Return the same in pinned memory; a `DataLoader` asks for it."""
        return replace(self, columns={name: column.pinned() for name, column in self.columns.items()})


class MixedBatches(IterableDataset[Batch]):
    """The batches of the run at an output, or one rank's part of each, in order; an item is a batch.

    Take them by `loader`, or by ``DataLoader(dataset, batch_size=None, num_workers=n)``, or iterate over it. A batch is
    a dict by column: numbers and lists are tensors, see `mixer.torch.batch_tensors`, all else lists.

    The first pass begins at `start_batch`, or where a loaded state says; each further pass at `start_batch`.

    Args:
        output: Where the run is.
        start_batch: Where a pass begins.
        stop_batch: Where it ends; see `mixer.read`.
        rank: Which trainer this is; with `world_size` as `torch.distributed` says if left out, else 0 of 1.
        world_size: How many trainers there are.
        columns: Columns to read; all if left out.
        binary: Types of the numbers in binary columns, such as ``{"input_ids": "uint16"}``; little-endian.
        ragged: Columns of lists whose lengths may differ within a batch.
        follow: Wait for batches that are not committed yet.
        timeout_s: How long to wait for the next commit; for ever if left out.

    Attributes:
        fingerprint: The hash of what the run is made from.
        batch_size: Rows of a whole batch, of all ranks together.
        rank: Which rank this is.
        world_size: How many ranks there are.
    """

    def __init__(  # noqa: PLR0913 -- each is one independent choice
        self,
        output: str,
        *,
        start_batch: int = 0,
        stop_batch: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        columns: Sequence[str] | None = None,
        binary: Mapping[str, str] | None = None,
        ragged: Sequence[str] = (),
        follow: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Look at the run; rows are read by whoever iterates, be it this process or a worker.

        Raises:
            ConfigError, OutputError, CorruptionError, StoreError, ValueError: As `mixer.read`.

        Warns:
            UserWarning: As `mixer.read`.
        """
        super().__init__()
        self.rank, self.world_size = rank_and_world_size(rank, world_size)
        self._options = Options.of(binary, ragged)
        readable = look(output)
        wanted = checked(
            readable,
            start_batch,
            stop_batch,
            Part(self.rank, self.world_size),
            columns=columns,
            follow=follow,
            stacklevel=3,
        )
        self._options.check(readable.schema_of(wanted))
        self._output, self._wanted = output, wanted
        self._following = following(timeout_s, follow=follow)
        self.fingerprint = readable.fingerprint
        self.batch_size = readable.batch_size
        self._planned = readable.batches
        # As `checked` does it for the first batch.
        self._is_open = not (readable.finished or follow) and stop_batch is None
        self._next = wanted.batches.start
        self._loaded: _Position | None = None
        # Both are written to by workers, wherever they run.
        self._read_ahead = torch.zeros(1, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call] # PyTorch has none
        """1: others than this object have iterated."""
        self._went_on = torch.zeros(1, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call] # PyTorch has none
        """Which iteration of a `DataLoader` went on from the state that was loaded; 0: none has yet."""

    @property
    def stop_batch(self) -> int:
        """Before which batch a pass ends, as far as it is known."""
        return min(self._wanted.batches.stop, self._planned)

    def __iter__(self) -> Iterator[Batch]:
        info = get_worker_info()
        position = self._begin(info)
        self._next = position.next_batch
        for chunk in self._chunks(position.batches(self._wanted.batches), Turn()):
            for number, batch in chunk:
                # Before it is handed out: asked in between, the state is that after this batch.
                self._next = number + position.step
                yield batch

    def _begin(self, info: Any) -> _Position:
        """Return where an iteration begins, in this process or as one of several workers."""
        loaded, self._loaded = self._loaded, None
        if info is None:
            if loaded is not None and loaded.worker is not None:
                raise ConfigError(
                    "state: it is that of one worker of several, and this process reads alone; load it where it was "
                    "saved, or save a state of `MixedBatches.loader`, which can be loaded anywhere"
                )
            self._read_ahead.zero_()
            return loaded or _Position(self._wanted.batches.start)
        # The same for all workers of one iteration, and no other's.
        iteration = int(info.seed - info.id) or 1
        self._read_ahead.fill_(1)
        if loaded is not None and loaded.worker is not None:
            if loaded.worker != (info.id, info.num_workers):
                raise ConfigError(
                    f"state: saved by worker {loaded.worker[0]} of {loaded.worker[1]}, loaded in worker {info.id} of "
                    f"{info.num_workers}; a state of `MixedBatches.loader` can be loaded with any number of workers"
                )
            return loaded
        start = self._wanted.batches.start
        # Each worker has a copy of what was loaded, also those of the next pass, which must not go on from there.
        if loaded is not None and int(self._went_on[0]) in {0, iteration}:
            self._went_on.fill_(iteration)
            start = loaded.next_batch
        return _Position(start + info.id, (info.id, info.num_workers))

    def _chunks(self, batches: range, turn: Turn) -> Iterator[Chunk]:
        """Yield wanted batches by row group, read in this process."""
        readable = look(self._output)
        if readable.fingerprint != self.fingerprint:
            raise _other_run(self._output, self.fingerprint, readable.fingerprint)
        wanted = replace(self._wanted, batches=batches, turn=turn)
        # Also for the calling process: it may have less than a core, and rows are there before it is asked for them.
        threads = THREADS if get_worker_info() is None else 1
        for piece in readable.pieces(wanted, Ahead(threads=threads), self._following):
            yield self._chunk(piece)

    def _chunk(self, piece: Piece) -> Chunk:
        table: pa.Table = piece.table
        columns = {name: column_of(name, table[name], self._options) for name in table.column_names}
        return Chunk(piece.batches, piece.edges, columns)

    def loader(self, *, num_workers: int = 0, **options: Any) -> MixedLoader:
        """Return what hands the batches to a trainer, and knows which one comes next.

        Args:
            num_workers: Processes that read; 0 reads in this one, in threads.
            options: More of the `DataLoader`'s, such as ``pin_memory``, ``prefetch_factor`` (in row groups) or
                ``multiprocessing_context``.

        Raises:
            ValueError: An option is not one that a loader of batches can have.
        """
        return MixedLoader(self, num_workers=num_workers, **options)

    def state_dict(self, next_batch: int | None = None) -> State:
        """Return the state: the next batch, and the run's fingerprint.

        Args:
            next_batch: The batch that comes next, for who knows it better: with a plain `DataLoader` and workers it is
                the first batch plus those that the trainer has got. Without it, what this object has iterated to.

        Raises:
            RuntimeError: Workers have iterated, so this process cannot know it.
        """
        if next_batch is not None:
            return self._state(whole_number("next_batch", next_batch, least=0))
        info = get_worker_info()
        if info is not None:
            return {**self._state(self._next), "worker": [info.id, info.num_workers]}
        if int(self._read_ahead[0]):
            raise RuntimeError(
                "MixedBatches.state_dict: others have read ahead, and this object does not know how many batches the "
                "trainer has got; iterate over dataset.loader(num_workers=...) and ask that for its state_dict, or "
                "pass next_batch"
            )
        return self._state(self._next if self._loaded is None else self._loaded.next_batch)

    def _state(self, next_batch: int) -> State:
        return {"run": self.fingerprint, "next_batch": next_batch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass begin where `state` says, saved with whatever ranks and workers.

        Raises:
            ChangedError: It is of another run.
            ConfigError: It is no state.
            OutputError: The run is under way, has not come to that batch, and is not followed.
        """
        self._loaded = self._position(state)
        self._read_ahead.zero_()
        self._went_on.zero_()

    def _position(self, state: Mapping[str, Any]) -> _Position:
        if not isinstance(state, Mapping):
            raise ConfigError(f"state: expected `run` and `next_batch`, as state_dict gives them, found {state!r}")
        run, worker = state.get("run"), state.get("worker")
        if not isinstance(run, str) or set(state) - {"worker"} != {"run", "next_batch"}:
            raise ConfigError(f"state: expected `run` and `next_batch`, as state_dict gives them, found {dict(state)}")
        if run != self.fingerprint:
            raise _other_run(self._output, run, self.fingerprint)
        try:
            next_batch = whole_number("state: next_batch", state["next_batch"], least=0)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if next_batch > self._planned and worker is None:
            raise ConfigError(
                f"state: next_batch {next_batch}: the run has batches 0 to {self._planned - 1}; extend it first"
            )
        if self._is_open and next_batch >= self._wanted.batches.stop and worker is None:
            raise OutputError(
                f"{self._output}: state: batch {next_batch} was not committed yet when this dataset was made, so far "
                f"there were {self._wanted.batches.stop}; go on with `mixer run` and make it again, or wait with "
                f"follow=True"
            )
        return _Position(next_batch, None if worker is None else _worker(worker))


@dataclass(frozen=True, slots=True)
class _Position:
    """Where an iteration is."""

    next_batch: int
    worker: tuple[int, int] | None = None
    """Which worker of how many; None if it is no worker's."""

    @property
    def step(self) -> int:
        """How many batches further the next one is, as workers take turns."""
        return 1 if self.worker is None else self.worker[1]

    def batches(self, wanted: range) -> range:
        """Return the batches from here on that are wanted."""
        return range(self.next_batch, max(self.next_batch, wanted.stop), self.step)


class _Chunks(IterableDataset[Chunk]):
    """The chunks of one pass, for workers that take turns at row groups."""

    def __init__(self, dataset: MixedBatches, batches: range) -> None:
        """Read `batches` of `dataset`."""
        super().__init__()
        self._dataset, self._batches = dataset, batches

    def __iter__(self) -> Iterator[Chunk]:
        info = get_worker_info()
        turn = Turn() if info is None else Turn(info.id, info.num_workers)
        return self._dataset._chunks(self._batches, turn)  # noqa: SLF001 -- its own part


class MixedLoader:
    """Hands the batches of a `MixedBatches` to a trainer, in order, whatever its workers have read ahead.

    Each ``iter()`` is a pass. Only the newest one counts for the state.
    """

    def __init__(self, dataset: MixedBatches, *, num_workers: int = 0, **options: Any) -> None:
        """See `MixedBatches.loader`."""
        taken = {"batch_size", "sampler", "batch_sampler", "shuffle", "collate_fn", "drop_last", "dataset"} & set(
            options
        )
        if taken:
            raise ValueError(f"{', '.join(sorted(taken))}: batches are those of the run; expected other options")
        if options.get("persistent_workers") or options.get("in_order") is False:
            raise ValueError("persistent_workers, in_order: a pass has workers of its own, which keep the order")
        self.dataset = dataset
        self._num_workers = whole_number("num_workers", num_workers, least=0)
        self._options = options
        self._start = dataset._wanted.batches.start  # noqa: SLF001 -- made by it
        self._loaded = dataset._loaded  # noqa: SLF001 -- as above
        """What the next pass goes on from; None: nothing, it begins at the start."""
        self._next = self._first
        self._pass: object = None
        """The newest one."""

    @property
    def _first(self) -> int:
        """The batch that the next pass begins with."""
        return self._start if self._loaded is None else self._loaded.next_batch

    def __len__(self) -> int:
        """Return how many batches the next pass has, as far as it is known."""
        return max(0, self.dataset.stop_batch - self._first)

    def __iter__(self) -> Iterator[Batch]:
        self._next, self._pass = self._first, object()
        loaded, self._loaded = self._loaded, None
        if loaded is not None and self.dataset._loaded is loaded:  # noqa: SLF001 -- it made this
            # Used up: passes of other loaders begin at the start again.
            self.dataset._loaded = None  # noqa: SLF001 -- as above
        return self._batches(_Position(self._next), self._pass)

    def _batches(self, start: _Position, this: object) -> Iterator[Batch]:
        chunks = _Chunks(self.dataset, start.batches(self.dataset._wanted.batches))  # noqa: SLF001 -- made by it
        # What the dataset says of its state is not this pass's.
        self.dataset._read_ahead.fill_(1)  # noqa: SLF001 -- as above
        for chunk in DataLoader(chunks, batch_size=None, num_workers=self._num_workers, **self._options):
            for number, batch in chunk:
                if this is self._pass:
                    # Before it is handed out: asked in between, the state is that after this batch.
                    self._next = number + 1
                yield batch

    def state_dict(self) -> State:
        """Return the state after the batch that was handed out last: the next batch, and the run's fingerprint."""
        return self.dataset.state_dict(self._next)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass begin where `state` says, saved with whatever ranks and workers.

        Raises:
            ChangedError: It is of another run.
            ConfigError: It is no state, or one of a single worker.
            OutputError: As `MixedBatches.load_state_dict`.
        """
        position = self.dataset._position(state)  # noqa: SLF001 -- made by it
        if position.worker is not None:
            raise ConfigError("state: it is that of one worker of several; load one that a loader has saved")
        self._next, self._loaded, self._pass = position.next_batch, position, None


def _worker(value: object) -> tuple[int, int]:
    """Return which worker of how many a state says.

    Raises:
        ConfigError: It says neither.
    """
    match value:
        case [number, workers]:
            with suppress(ValueError):
                return rank_of(number, workers)
    raise ConfigError(f"state: worker: expected a worker's number and how many there are, found {value!r}")


def _other_run(output: str, wanted: str, found: str) -> ChangedError:
    return ChangedError(
        f"{output}: expected the run with the fingerprint {wanted[:12]}, found {found[:12]}; a state goes on only in "
        f"the run that it was saved in: give its output, or begin at a batch of this one (start_batch)"
    )
