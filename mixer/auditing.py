"""Reading a whole log for what is wrong with it; `mixer.verifying` makes a report of it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from mixer import extending
from mixer.checking import check_amendment, check_commit, check_complete, check_final
from mixer.core import commits
from mixer.core.commits import Commit, Slot
from mixer.errors import CorruptionError
from mixer.planning import Planned
from mixer.records import read_record
from mixer.shard_checking import Problem
from mixer.storage import ObjectInfo, Store

_MOST_MISSING = 1000
"""Missing slots that are named one by one."""


@dataclass(slots=True)
class LogWalk:
    """A walk over the whole log that goes on after what is wrong."""

    store: Store
    run: Planned
    """What it began as."""
    until: int | None = None
    """Go no further than to the commit of the shard before this one; None to the end."""
    slots: dict[int, Slot] = field(default_factory=dict)
    """Every undamaged slot by number."""
    stop: int = 0
    """One past the last slot, damaged or not."""
    commits: list[Commit] = field(default_factory=list)
    plans: list[Planned | None] = field(default_factory=list)
    """What the run was at each of the commits; None if the amendment that says so cannot be read."""
    amended: dict[int | None, Planned] = field(default_factory=dict)
    """What the run is from each ``amend`` slot on; under None what it began as."""
    amend: int | None = None
    """The newest ``amend`` slot so far."""
    ends: list[tuple[Planned, int, str]] = field(default_factory=list)
    """For each ``final`` slot what the run was, how many commits it had, and its chain head."""
    problems: list[Problem] = field(default_factory=list)
    head: str | None = None
    """The chain head; None behind a slot that cannot be read."""
    finished: bool = False

    def read(self, objects: Mapping[str, ObjectInfo], readers: ThreadPoolExecutor) -> None:
        """Read and check every slot."""
        names = [name for name in objects if name.startswith(commits.LOG_PREFIX)]
        numbers = {name: commits.slot_number(name) for name in names}
        for name in (name for name in names if numbers[name] is None):
            self._report(name, "expected slots only in the commit log; remove what does not belong there")
        known = sorted(number for number in numbers.values() if number is not None)
        self.head = self.run.genesis
        self.amended[None] = self.run
        opening: Slot | None = None
        for number, slot in zip(known, readers.map(self._slot, known), strict=True):
            if number > self.stop:
                self._report_missing(self.stop, number)
            if number > self.stop or isinstance(slot, Problem):
                self.head = opening = None
            self.stop = number + 1
            if isinstance(slot, Problem):
                self.problems.append(slot)
                continue
            self.slots[number] = slot
            opening = self._check_owner(slot, opening)
            self._check_amended(slot)
            self._check_payload(slot)
            if self.until is not None and self.commits and self.commits[-1].shard >= self.until - 1:
                break
        self._check_definition()

    def _done(self) -> tuple[int, int]:
        """Return how many shards and batches of the mix there are so far."""
        return self.run.done(self.commits[-1] if self.commits else None)

    @property
    def newest(self) -> Planned:
        """What the run is by now, as far as that can be read."""
        return self.amended[max((number for number in self.amended if number is not None), default=None)]

    def _check_definition(self) -> None:
        """Report the definition if the whole log is another run's: one of the two was replaced, and who knows which."""
        opened = {str(slot.payload.get("genesis")) for slot in self.slots.values() if slot.kind == "open"}
        first = next((str(slot.payload.get("prev")) for slot in self.slots.values() if slot.kind != "open"), None)
        if opened == {first} and first != self.run.run:
            problem = f"is of run {self.run.run}, but the commit log is of run {first}; restore one of them from a copy"
            self.problems.insert(0, Problem(f"{self.store.url}/{commits.RUN_NAME}", problem))

    def _report(self, name: str, problem: str) -> None:
        self.problems.append(Problem(f"{self.store.url}/{name}", problem))

    def _report_missing(self, start: int, stop: int) -> None:
        """Report the slots ``[start, stop)``: each one, but of a gap as wide as no log has, the gap."""
        if stop - start > _MOST_MISSING:
            through = commits.slot_name(stop - 1)
            self._report(
                commits.slot_name(start),
                f"missing, and all to {through}, though a later slot exists; restore them from a copy, or remove it",
            )
            return
        for number in range(start, stop):
            self._report(commits.slot_name(number), "missing, though later slots exist; restore it from a copy")

    def _slot(self, number: int) -> Slot | Problem:
        name = commits.slot_name(number)
        where = f"{self.store.url}/{name}"
        try:
            data = read_record(self.store, name)
            if data is None:
                return Problem(where, "gone since it was listed; restore it from a copy")
            return commits.decode_slot(data, number, where)
        except CorruptionError as error:
            return Problem(where, str(error).removeprefix(f"{where}: "))

    def _check_owner(self, slot: Slot, opening: Slot | None) -> Slot | None:
        """Check who wrote `slot`; return the ``open`` slot that is in force after it, None if it is not known."""
        name = commits.slot_name(slot.number)
        opened, owner = slot.writer.get("open"), slot.writer.get("owner")
        if slot.kind == "open":
            if opened != slot.number or not isinstance(owner, str):
                self._report(name, f"expected an `open` that names itself, found one that names slot {opened!r}")
            elif slot.payload.get("genesis") != self.run.run:
                self._report(name, f"opens run {slot.payload.get('genesis')!r}, but this is run {self.run.run}")
            else:
                return slot
            # Whoever it gave the run to, what is said of those who write after it would be wrong.
            return None
        if opening is not None and (opened, owner) != (opening.number, opening.writer.get("owner")):
            self._report(
                name,
                f"written by {owner!r} of slot {opened!r}, though slot {opening.number} had given the run to "
                f"{opening.writer.get('owner')!r}",
            )
        return opening

    def _check_amended(self, slot: Slot) -> None:
        """Check that `slot` names the newest amendment, which says what it must be."""
        number = slot.writer.get("amend")
        known = slot.number if slot.kind == "amend" else self.amend
        if number != known and type(number) is int and 0 <= number < slot.number and number not in self.slots:
            # That it cannot be read was said; it has made the run longer.
            self.finished = False
        elif number != known:
            expected = "none" if known is None else f"slot {known}"
            self._report(
                commits.slot_name(slot.number), f"expected {expected} as the newest amendment, found {number!r}"
            )
        if slot.kind != "amend":
            self.amend = number if type(number) is int else None

    def _check_payload(self, slot: Slot) -> None:
        name = commits.slot_name(slot.number)
        if slot.kind == "open":
            return
        if self.finished and slot.kind != "amend":
            self._report(name, f"a slot of kind {slot.kind!r} after the run was finished")
        known, before = len(self.problems), self.head
        if before is not None and slot.payload.get("prev") != before:
            self._report(name, f"expected the chain head {before} before it, found {slot.payload.get('prev')!r}")
        if slot.kind == "final":
            self.finished = True
            self._check_final(name, slot, follows=before is not None)
        elif slot.kind == "amend":
            self.finished = False
            self._check_amendment(name, slot, follows=before is not None)
        else:
            self._check_shard(name, slot, follows=before is not None)
        # What comes after a slot that is wrong itself is not to be blamed for not being linked to it.
        self.head = commits.chain_hash(slot.payload) if len(self.problems) == known else None

    def _check_amendment(self, name: str, slot: Slot, *, follows: bool) -> None:
        before, self.amend = self.amended.get(self.amend), slot.number
        try:
            amendment = commits.amendment_from(slot.payload, "amend")
            self.amended[slot.number] = extending.amended(self.run, slot, "amend")
            if follows and before is not None:
                check_amendment(amendment, self._done(), before.extensions, "amend")
        except CorruptionError as error:
            self._report(name, str(error).removeprefix("amend: "))

    def _check_shard(self, name: str, slot: Slot, *, follows: bool) -> None:
        run = self.amended.get(self.amend)
        try:
            commit = commits.commit_from(slot.payload, "commit")
            if run is not None:
                check_commit(run.plan, commit, "commit")
        except CorruptionError as error:
            self._report(name, str(error).removeprefix("commit: "))
            return
        expected, _ = self._done()
        if commit.shard != expected and follows:
            self._report(name, f"expected the commit of shard {expected}, found that of shard {commit.shard}")
        self.commits.append(commit)
        self.plans.append(run)

    def _check_final(self, name: str, slot: Slot, *, follows: bool) -> None:
        run = self.amended.get(self.amend)
        if run is None:
            return
        self.ends.append((run, len(self.commits), commits.chain_hash(slot.payload)))
        try:
            check_final(run.plan, slot.payload, "final")
            if follows:
                check_complete(run.plan, self.commits[-1] if self.commits else None, "final")
        except CorruptionError as error:
            self._report(name, str(error).removeprefix("final: "))
