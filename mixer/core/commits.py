"""The commit log as values: numbered slots, the payloads in them, and the chain that the payloads form.

Slot ``n`` lies at ``.mixer/log/<n, 12 digits>.json``, is created once and never changed. Two layers on purpose:

- the *payload* says what became part of the run; it is the same in every run of one definition over the same data,
  whoever wrote it and however often it was interrupted. Every payload but an ``open``'s holds the sha256 of the one
  before it, so the last one's sha256, the chain head, stands for all that came before it.
- the *envelope* says who wrote the slot and when, with a fresh nonce, so that no two writes are ever equal. Once a run
  has been extended it also names the slot of the newest ``amend``, so that nobody need look for it.

Kinds: ``open`` (a process takes the run over), ``shard`` (a commit), ``amend`` (the run gets longer from here on),
``final``, after which only an ``amend`` may follow. Only a process that wrote slot ``n - 1`` may write slot ``n``, or
may create an ``open`` there; `open` payloads are outside the chain.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mixer.core.fingerprint import canonical_json, fingerprint
from mixer.core.plan import State
from mixer.errors import CorruptionError

FORMAT = 1
"""Of run definitions and slots. A reader refuses a greater one."""

RUN_NAME = ".mixer/run.json"
LOG_PREFIX = ".mixer/log/"
CHECKPOINT_PREFIX = ".mixer/checkpoints/"
MANIFEST_NAME = "manifest.json"
CARD_NAME = "README.md"

SHARD_BYTES_MAX = 5 << 30
"""Longest shard: what S3 takes in one upload. No longer one is written, and none is believed in."""

KINDS = ("open", "shard", "amend", "final")
_MOST_DIGITS = 18


def slot_name(number: int) -> str:
    """Return the name of a slot's object, relative to the output.

    >>> slot_name(42)
    '.mixer/log/000000000042.json'
    """
    return f"{LOG_PREFIX}{number:012d}.json"


def slot_number(name: str) -> int | None:
    """Return the number of the slot whose object is called `name`; None if it is none's.

    >>> slot_number(".mixer/log/000000000042.json"), slot_number(".mixer/log/42.json")
    (42, None)
    """
    return _numbered(name, LOG_PREFIX, slot_name)


def checkpoint_name(stop: int) -> str:
    """Return the name of the object that holds copies of the slots before `stop`.

    >>> checkpoint_name(1000)
    '.mixer/checkpoints/000000001000.json'
    """
    return f"{CHECKPOINT_PREFIX}{stop:012d}.json"


def checkpoint_stop(name: str) -> int | None:
    """Return the slot that the checkpoint called `name` ends before; None if no checkpoint is called so.

    >>> checkpoint_stop(".mixer/checkpoints/000000001000.json"), checkpoint_stop(".mixer/checkpoints/notes.txt")
    (1000, None)
    """
    return _numbered(name, CHECKPOINT_PREFIX, checkpoint_name)


def _numbered(name: str, prefix: str, name_of: Callable[[int], str]) -> int | None:
    text = name.removeprefix(prefix).removesuffix(".json")
    # No longer number was ever given, and Python refuses to read one of thousands of digits.
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        return None
    return int(text) if name_of(int(text)) == name else None


@dataclass(frozen=True, slots=True)
class Commit:
    """What makes a shard part of the run: the payload of a ``shard`` slot."""

    shard: int
    path: str
    """Name of the shard's object, relative to the output."""
    rows: int
    bytes: int
    """Length of the shard's object."""
    sha256: str
    """Of the shard's object, in hexadecimal digits."""
    first_batch: int
    batches: int
    counts: Mapping[str, int]
    """Items of each dataset in the shard."""
    state: State
    """The state after the shard."""
    prev: str
    """The chain head before this commit."""

    def payload(self) -> dict[str, Any]:
        """Return the payload that this commit is in a slot."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Amendment:
    """What makes a run longer: the payload of an ``amend`` slot. The newest one and ``run.json`` are the whole plan."""

    number: int
    """1 for a run's first, and so on."""
    run: str
    """The run's id from here on: the hash of its definition, which later shards name."""
    asked: Mapping[str, Any]
    """The fields of the config that are not as in ``run.json``, as they are now."""
    cuts: Sequence[int]
    """All batches before which a shard ends short, see `mixer.core.plan.Plan.cuts`."""
    shards: int
    """Shards that were committed before it."""
    batches: int
    """Batches of these shards."""
    prev: str
    """The chain head before it."""

    def payload(self) -> dict[str, Any]:
        """Return the payload that this amendment is in a slot."""
        return {**asdict(self), "cuts": list(self.cuts)}


@dataclass(frozen=True, slots=True)
class Parent:
    """The run whose first shards a forked run takes by reference."""

    output: str
    """Where it was when it was forked."""
    genesis: str
    """Its id when it began."""
    head: str
    """Its chain head after the last of these shards, which stands for all of them."""
    shards: int
    """How many shards are taken; the first ones of the whole mix."""
    batches: int
    """Batches of these shards."""

    def definition(self) -> dict[str, Any]:
        """Return what it adds to the definition of the forked run: all but where it is."""
        return {"genesis": self.genesis, "head": self.head, "shards": self.shards, "batches": self.batches}


@dataclass(frozen=True, slots=True)
class Slot:
    """One entry of the commit log."""

    number: int
    kind: str
    """One of `KINDS`."""
    writer: Mapping[str, Any]
    """Who wrote it: ``owner`` (this start of the run), ``open`` (its open slot), nonce, host, time, versions; and of a
    run that has been extended ``amend``, the slot of the newest amendment, itself if it is one."""
    payload: Mapping[str, Any]


def chain_hash(payload: Mapping[str, Any]) -> str:
    """Return the chain head after `payload`."""
    return fingerprint(payload)


def sealed(content: Mapping[str, Any]) -> bytes:
    """Return `content` as canonical JSON with its own sha256 inside, so that any changed bit is found.

    >>> sealed({"a": 1})[:22]
    b'{"a":1,"sha256":"015ab'
    """
    return canonical_json({**content, "sha256": fingerprint(content)})


def unsealed(data: bytes, where: str) -> dict[str, Any]:
    """Return what `sealed` made `data` of.

    Raises:
        CorruptionError: Some bit of `data` is not what was written, or its format is newer than this reader.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptionError(f"{where}: not JSON ({error}); the object is damaged, restore it from a copy") from error
    if not isinstance(content, dict) or "sha256" not in content:
        raise CorruptionError(f"{where}: expected an object with its own sha256; the object is damaged or foreign")
    claimed = content.pop("sha256")
    if type(content.get("format")) is int and content["format"] > FORMAT:
        raise CorruptionError(
            f"{where}: written in format {content['format']}, this mixer reads formats up to {FORMAT}; upgrade mixer"
        )
    try:
        actual = fingerprint(content)
        canonical = sealed(content) == data
    except (TypeError, RecursionError) as error:
        raise CorruptionError(f"{where}: {error}; the object is damaged, restore it from a copy") from error
    if actual != claimed or not canonical:
        raise CorruptionError(
            f"{where}: its content has sha256 {actual}, and it claims {claimed}; the object is damaged, "
            f"restore it from a copy"
        )
    return content


def encode_slot(slot: Slot) -> bytes:
    """Return the bytes of a slot's object."""
    return sealed(
        {
            "format": FORMAT,
            "slot": slot.number,
            "kind": slot.kind,
            "writer": slot.writer,
            "payload": slot.payload,
        }
    )


def decode_slot(data: bytes, number: int, where: str) -> Slot:
    """Return the slot that `data` is, checked to be undamaged and numbered `number`.

    Raises:
        CorruptionError: It is damaged, or another slot's.
    """
    content = unsealed(data, where)
    if type(content.get("slot")) is not int or content["slot"] != number:
        raise CorruptionError(
            f"{where}: expected slot {number}, found slot {content.get('slot')}; objects were mixed up"
        )
    kind, writer, payload = content.get("kind"), content.get("writer"), content.get("payload")
    if kind not in KINDS or not isinstance(writer, dict) or not isinstance(payload, dict):
        raise CorruptionError(f"{where}: expected a kind of {', '.join(KINDS)} with a payload, found kind {kind!r}")
    return Slot(number, kind, writer, payload)


def decode_checkpoint(data: bytes, where: str) -> tuple[int, list[tuple[str, Mapping[str, Any]]]]:
    """Return the number of the first slot in a checkpoint, and kind and payload of that one and those after it.

    Raises:
        CorruptionError: It is damaged, or something else.
    """
    content = unsealed(data, where)
    first, entries = content.get("first_slot"), content.get("slots")
    if type(first) is not int or not isinstance(entries, list):
        raise CorruptionError(f"{where}: expected a checkpoint with `first_slot` and `slots`; it is foreign, delete it")
    block: list[tuple[str, Mapping[str, Any]]] = []
    for entry in entries:
        kind, payload = (entry.get("kind"), entry.get("payload")) if isinstance(entry, dict) else (None, None)
        if kind not in KINDS or not isinstance(payload, dict):
            raise CorruptionError(f"{where}: expected a checkpoint's slots to have a kind and a payload; delete it")
        block.append((kind, payload))
    return first, block


def commit_from(payload: Mapping[str, Any], where: str) -> Commit:
    """Return the commit that the payload of a ``shard`` slot is.

    Raises:
        CorruptionError: It has other fields than a commit, or one of another type, or is of a shard longer than any;
            the message names them.
    """
    _check_fields(payload, _FIELDS, "a commit", where)
    if not 0 <= payload["bytes"] <= SHARD_BYTES_MAX:
        raise CorruptionError(
            f"{where}: not a commit: expected 0 to {SHARD_BYTES_MAX:,} bytes, found {payload['bytes']:,}"
        )
    return Commit(**payload)


_FIELDS: Mapping[str, type] = {
    "shard": int,
    "path": str,
    "rows": int,
    "bytes": int,
    "sha256": str,
    "first_batch": int,
    "batches": int,
    "counts": dict,
    "state": dict,
    "prev": str,
}


def amendment_from(payload: Mapping[str, Any], where: str) -> Amendment:
    """Return the amendment that the payload of an ``amend`` slot is.

    Raises:
        CorruptionError: It has other fields than an amendment, or one of another type; the message names them.
    """
    _check_fields(payload, _AMENDMENT_FIELDS, "an amendment", where)
    if not all(type(cut) is int for cut in payload["cuts"]):
        raise CorruptionError(f"{where}: not an amendment: expected cuts to be whole numbers")
    return Amendment(**payload)


_AMENDMENT_FIELDS: Mapping[str, type] = {
    "number": int,
    "run": str,
    "asked": dict,
    "cuts": list,
    "shards": int,
    "batches": int,
    "prev": str,
}


def parent_from(value: Mapping[str, Any], where: str) -> Parent:
    """Return the parent that a run's definition names.

    Raises:
        CorruptionError: It has other fields, or one of another type; the message names them.
    """
    _check_fields(value, _PARENT_FIELDS, "a parent", where)
    return Parent(**value)


_PARENT_FIELDS: Mapping[str, type] = {"output": str, "genesis": str, "head": str, "shards": int, "batches": int}


def _check_fields(payload: Mapping[str, Any], fields: Mapping[str, type], what: str, where: str) -> None:
    if set(payload) != set(fields):
        raise CorruptionError(f"{where}: not {what}: expected the fields {sorted(fields)}, found {sorted(payload)}")
    for name, value in payload.items():
        # `bool` is an `int` to Python, and none to a log.
        if not isinstance(value, fields[name]) or isinstance(value, bool):
            raise CorruptionError(
                f"{where}: not {what}: expected {name} to be {fields[name].__name__}, found {type(value).__name__}"
            )


def final_payload(*, prev: str, shards: int, batches: int, rows: int, state: State) -> dict[str, Any]:
    """Return the payload of the slot that completes a run."""
    return {"prev": prev, "shards": shards, "batches": batches, "rows": rows, "state": state}
