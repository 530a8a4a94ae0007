"""The verb `verify`: read all of a run, log and shards, and report every object that is not what it must be.

Unlike resume, which looks at the end of the log and stops at the first thing that is wrong, this goes on: whoever
restores a run from a copy wants to know all that is damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat

from mixer.ancestry import Origin, Place, check_taken, parent_of
from mixer.auditing import LogWalk
from mixer.building import started
from mixer.checking import checkpoint_problem
from mixer.core import commits
from mixer.core.commits import Commit
from mixer.errors import CorruptionError
from mixer.planning import Planned
from mixer.preparation.leftovers import copy_key, other_copies
from mixer.publishing import manifest
from mixer.shard_checking import Problem, shard_problems
from mixer.sources.inventory import copy_keys
from mixer.storage import ObjectInfo, Store

READERS = 4
"""Objects that are read at once."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One more shard that was read."""

    path: str
    rows: int
    bytes: int
    done: int
    """Shards read so far."""
    shards: int
    """Shards to read."""
    output: str | None = None
    """Which other run's output it lies in, if it does."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What reading a whole run has shown."""

    output: str
    run: str
    """Short id of the run."""
    slots: int
    """Slots of the commit log."""
    shards: int
    """Shards that the log names."""
    rows: int
    """Rows of these shards, as the log says."""
    bytes: int
    """Bytes of these shards, as the log says."""
    head: str | None
    """The chain head; None if the log is damaged."""
    finished: bool
    problems: tuple[Problem, ...]
    orphans: tuple[str, ...]
    """Objects that nothing names: leftovers of killed processes, or files of others. They harm nothing.

    While the log is damaged, shards are among them that only a damaged or missing slot names.
    """
    parents: tuple[str, ...] = ()
    """The outputs of other runs that the first shards are in, if this one was forked; they were read as well."""

    @property
    def ok(self) -> bool:
        """Whether everything is what it must be."""
        return not self.problems


def verify(output: str, *, on_object: Callable[[Checked], None] | None = None) -> VerifyReport:
    """Return what is wrong with the run at `output`; everything in it is read, nothing is written.

    Checked are the log (no slot missing, each undamaged, written by its owner, linked to the one before, saying what
    the plan says), each shard (length, sha256, rows, schema and footer), the checkpoints and the manifest.

    Args:
        output: Where the run is.
        on_object: Hears of each shard, in order, in this thread.

    Raises:
        OutputError: There is no run there.
        CorruptionError: Its definition is damaged, so nothing else can be checked.
    """
    store, run = started(output)
    objects = {info.name: info for info in store.list("")}
    with ThreadPoolExecutor(READERS, thread_name_prefix="mixer-verify") as readers:
        log = LogWalk(store, run)
        log.read(objects, readers)
        walks, problems = _parents(Origin(store, run, None), readers)
        before = None if problems else [(walk.store.url, commit) for walk in walks for commit in walk.commits]
        problems = [*log.problems, *problems]
        walks.append(log)
        found = readers.map(
            _problems_of, (one for walk in walks for one in zip(repeat(walk.store), walk.commits, walk.plans))
        )
        total = sum(len(walk.commits) for walk in walks)
        places = [(None if walk is log else walk.store.url, commit) for walk in walks for commit in walk.commits]
        for done, ((at, commit), wrong) in enumerate(zip(places, found, strict=True), 1):
            problems += wrong
            if on_object is not None:
                on_object(Checked(commit.path, commit.rows, commit.bytes, done, total, at))
    problems += _checkpoint_problems(store, objects, log)
    problems += _manifest_problems(store, log, before)
    every = [commit for _, commit in places]
    return VerifyReport(
        output=output,
        run=log.newest.run[:12],
        slots=log.stop,
        shards=len(every),
        rows=sum(commit.rows for commit in every),
        bytes=sum(commit.bytes for commit in every),
        head=None if log.problems else log.head,
        finished=log.finished,
        problems=tuple(problems),
        orphans=_orphans(objects, log.commits, copy_keys(run.inventories)),
        parents=tuple(walk.store.url for walk in walks[:-1]),
    )


def _problems_of(one: tuple[Store, Commit, Planned | None]) -> list[Problem]:
    return shard_problems(*one)


def _parents(run: Origin, readers: ThreadPoolExecutor) -> tuple[list[LogWalk], list[Problem]]:
    """Return the logs of the runs that `run` has shards from, as far as it has, in the order of these shards.

    Besides, what is wrong with them: with none of them, if there is nothing.
    """
    walks: list[LogWalk] = []
    problems: list[Problem] = []
    try:
        while (parent := parent_of(run, started)) is not None:
            walk = LogWalk(parent.store, parent.began, until=parent.stop)
            walk.read({info.name: info for info in parent.store.list(commits.LOG_PREFIX)}, readers)
            walks.insert(0, walk)
            problems += walk.problems
            if not walk.problems:
                check_taken(run, walk.commits[-1] if walk.commits else None)
            run = parent
    except CorruptionError as error:
        where = f"{run.store.url}/{commits.RUN_NAME}"
        problems.append(Problem(where, str(error).removeprefix(f"{run.store.url}: ")))
    return walks, problems


def _checkpoint_problems(store: Store, objects: Iterable[str], log: LogWalk) -> Iterator[Problem]:
    """Yield the checkpoints that do not say what the log says."""
    for name in objects:
        if not name.startswith(commits.CHECKPOINT_PREFIX):
            continue
        wrong = checkpoint_problem(store, name, log.slots.get, stop=log.stop, every=True)
        if wrong is not None:
            yield Problem(f"{store.url}/{name}", f"{wrong}; delete it, readers then take the log itself")


def _manifest_problems(store: Store, log: LogWalk, taken: Sequence[Place] | None) -> Iterator[Problem]:
    """Yield why the manifest is not one that the log gives: of the end, or, of a run made longer, of a former end."""
    info, where = store.stat(commits.MANIFEST_NAME), f"{store.url}/{commits.MANIFEST_NAME}"
    if info is None:
        if log.finished:
            yield Problem(where, "missing, though the run is finished; `mixer run` writes it again")
        return
    if not log.finished and not log.ends:
        yield Problem(where, "there already, though the run is not finished; remove it")
        return
    if log.problems or taken is None:
        return
    found = store.get(commits.MANIFEST_NAME)
    said = [manifest(run, log.commits[:shards], head, taken) for run, shards, head in log.ends]
    if found not in said:
        yield Problem(where, "says otherwise than the log; remove it, then `mixer run` writes it again")
    elif log.finished and found != said[-1]:
        yield Problem(where, "of the run before it was extended; `mixer run` writes it again")


def _orphans(objects: Mapping[str, ObjectInfo], shards: Iterable[Commit], copies: set[str]) -> tuple[str, ...]:
    """Return the objects that nothing names; of prepared copies, but for those with the keys `copies`, the folders."""
    named = {commits.RUN_NAME, commits.MANIFEST_NAME, commits.CARD_NAME, *(commit.path for commit in shards)}
    folders = (commits.LOG_PREFIX, commits.CHECKPOINT_PREFIX)
    others = [copy.name for copy in other_copies(objects.values(), copies)]
    return (
        *(name for name in objects if name not in named and not name.startswith(folders) and copy_key(name) is None),
        *others,
    )
