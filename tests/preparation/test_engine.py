"""A copy is made once, whatever dies on the way and whoever else is at it, and ends in the same bytes."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer.core.commits import sealed, unsealed
from mixer.errors import ChangedError, CorruptionError
from mixer.preparation import engine, record
from mixer.preparation.engine import Place, find_copy, inventory_of
from mixer.preparation.record import Copy, PartFile, PartRecord, key_of, log_name, part_name, quarantine_name
from mixer.sources.parquet import ParquetSource
from mixer.storage import LocalStore, Store
from mixer.storage.inputs import stat_input
from mixer.testing import MOMENTS, WRITES, CrashingStore, MemoryStore, by_sigkill, count_operations, die_at_every_step
from mixer.testing import sample as sampled
from tests.e2e.runs import objects
from tests.figures import Note
from tests.preparation.stages import SCHEMA, Numbers, bad_bytes, link_of, make, make_numbers
from tests.profiles import sized

KEY = key_of(Numbers())
NAMES = [
    "begun.json",
    *(part_name(n) for n in range(4)),
    *(log_name(n) for n in range(4)),
    record.PREPARED_NAME,
    *(quarantine_name(n) for n in (1, 2)),
]


def whole() -> dict[str, bytes]:
    """Return the objects of the copy that nothing has interrupted."""
    store = MemoryStore()
    make(store)
    return store.objects


def rows_of(store: MemoryStore, key: str = KEY) -> list[int]:
    names = sorted(name for name in store.objects if name.startswith(f"{key}/data/"))
    return [n for name in names for n in pq.read_table(pa.BufferReader(store.objects[name])).column("n").to_pylist()]


def test_a_copy_holds_the_rows_and_says_what_it_is() -> None:
    store = MemoryStore()
    copy = make(store)
    assert copy is not None
    assert sorted(store.objects) == sorted(f"{KEY}/{name}" for name in NAMES)
    assert rows_of(store) == [0, 1, 2, 4, 5, 6, 8, 9]
    assert (copy.key, copy.rows, copy.bad, dict(copy.facts)) == (KEY, 8, 2, {"numbers": 10})
    assert [file.row_group_rows for file in copy.files] == [(2, 1), (2,), (2,), (1,)]
    assert find_copy(Place(store), KEY) == copy


def test_what_was_put_aside_stands_beside_it_line_by_line() -> None:
    lines = whole()[f"{KEY}/{quarantine_name(1)}"].splitlines()
    assert [json.loads(line) for line in lines] == [
        {"file": "numbers.txt", "line": 4, "problem": "bad", "data_base64": bad_bytes(3)}
    ]


def test_parts_have_small_row_groups_that_check_themselves_and_nothing_that_differs_from_place_to_place() -> None:
    data = whole()[f"{KEY}/{part_name(0)}"]
    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    assert file.schema_arrow.equals(SCHEMA)
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [2, 1]
    assert set(file.metadata.metadata) == {b"ARROW:schema"}
    moved = MemoryStore()
    engine.make_copy(Place(moved, "elsewhere/"), link_of(Numbers()), should_stop=lambda: False)
    assert {name.removeprefix("elsewhere/"): value for name, value in moved.objects.items()} == whole()


# Deaths


def left_behind(store: Store) -> None:
    """Whatever a death has left: each record is of a part that is there and whole, and so for the whole copy."""
    found = objects(store)
    for name, data in found.items():
        if "/log/" in name or name.endswith(record.PREPARED_NAME):
            content = unsealed(data, name)
            for file in content.get("files", [content.get("file")]):
                if file is not None:
                    part = found[f"{KEY}/{file['path']}"]
                    assert len(part) == file["bytes"]


def test_a_death_at_every_operation_changes_nothing(figures: Note) -> None:
    steps = die_at_every_step(make_numbers, MemoryStore, objects, left_behind=left_behind)
    figures("deaths", {"by exception while preparing": len(steps.deaths)})
    assert len(steps.deaths) == len(MOMENTS) * len(steps.operations)
    assert sum(operation.verb in WRITES for operation in steps.operations) == len(NAMES)


def test_a_second_death_while_a_dead_one_is_completed_changes_nothing() -> None:
    dead = MemoryStore()
    make(dead, should_stop=iter([False, True]).__next__)
    steps = die_at_every_step(
        make_numbers, lambda: MemoryStore(dead.objects), objects, left_behind=left_behind, choose=sampled(40)
    )
    assert steps.deaths
    make(dead)
    assert dead.objects == whole()


@pytest.mark.crash
def test_a_process_that_is_killed_at_an_operation_changes_nothing(tmp_path: Path, figures: Note) -> None:
    numbers = itertools.count()
    steps = die_at_every_step(
        make_numbers,
        lambda: LocalStore(tmp_path / str(next(numbers))),
        objects,
        left_behind=left_behind,
        die=by_sigkill(in_delay_s=0.008),
        choose=sampled(sized(short=6, long=10_000), verbs=WRITES),
    )
    figures("deaths", {"by SIGKILL while preparing on disk": len(steps.deaths)})


@given(st.lists(st.integers(1, 5), max_size=6), st.integers(0, 25), st.integers(1, 7), st.none() | st.integers(2, 5))
def test_wherever_it_is_stopped_the_copy_is_the_same(
    stops: list[int], rows: int, part_rows: int, bad_every: int | None
) -> None:
    def stage() -> Numbers:
        return Numbers(rows, part_rows, bad_every)

    unbroken, stopped = MemoryStore(), MemoryStore()
    make(unbroken, stage())
    for parts in stops:
        left = itertools.count(1)
        make(stopped, stage(), lambda left=left, parts=parts: next(left) >= parts)  # type: ignore[misc]  # mypy infers no type for a lambda with a default
    last = stage()
    make(stopped, last)
    assert stopped.objects == unbroken.objects
    # And nothing was made twice.
    done = min(-(-rows // part_rows), sum(stops))
    assert last.begun == [None if not done else {"next": min(done * part_rows, rows)} | _seen(done, part_rows, rows)]


def _seen(parts: int, part_rows: int, rows: int) -> dict[str, list[int]]:
    return {"seen": [(parts - 1) * part_rows, min(parts * part_rows, rows)]}


# Two at once


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_two_at_once_end_well_and_in_the_same_bytes(where: str, tmp_path: Path) -> None:
    store: Store = MemoryStore() if where == "memory" else LocalStore(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        copies = list(pool.map(lambda _: make(store, Numbers(rows=30)), range(4)))
    alone = MemoryStore()
    assert copies == [make(alone, Numbers(rows=30))] * 4
    assert objects(store) == alone.objects


@given(st.lists(st.integers(0, 1), max_size=40))
@settings(deadline=None)
def test_two_that_take_turns_in_any_order_end_in_the_same_bytes(turns: list[int]) -> None:
    """One goes on with its own parts while the other one, which began from other records, does the same."""
    store = MemoryStore()
    links = [link_of(Numbers(rows=20)), link_of(Numbers(rows=20))]
    makers = [_stepwise(store, link) for link in links]
    for turn in [*turns, *[0] * 12, *[1] * 12]:
        next(makers[turn], None)
    alone = MemoryStore()
    make(alone, Numbers(rows=20))
    assert store.objects == alone.objects


def _stepwise(store: MemoryStore, link: engine.Link):  # type: ignore[no-untyped-def]  # noqa: ANN202 -- a generator of this test alone
    """Do as `make_copy` does, and pause after each part: not between calls, but within one."""
    place = Place(store)
    schema = engine._begun(place, link)
    done = engine._records(place, link.key)
    last = done[-1] if done else None
    for part in link.stage.parts(schema, last.cursor if last else None):
        last = engine._put_part(place, link, schema, part, last)
        yield
    engine.make_copy(place, link, should_stop=lambda: False)


# Done already, and trouble


def test_a_copy_that_is_there_is_found_by_one_look() -> None:
    store = CrashingStore(MemoryStore(whole()))
    assert find_copy(Place(store), KEY) is not None
    assert [operation.verb for operation in store.operations] == ["get_range", "list"]


@pytest.mark.parametrize("lost", [0, 2, 3])
@pytest.mark.parametrize("complete", [True, False])
def test_a_part_that_somebody_has_deleted_is_made_again(lost: int, *, complete: bool) -> None:
    store = MemoryStore(whole())
    del store.objects[f"{KEY}/{part_name(lost)}"]
    if not complete:
        del store.objects[f"{KEY}/{record.PREPARED_NAME}"]
    assert find_copy(Place(store), KEY) is None
    stage = Numbers()
    make(store, stage)
    assert store.objects == whole()
    assert stage.begun == [{"next": lost * 3, "seen": [(lost - 1) * 3, lost * 3]} if lost else None]


def test_making_what_is_there_writes_nothing() -> None:
    operations = count_operations(make_numbers, MemoryStore(whole()))
    assert [operation.verb for operation in operations if operation.verb in WRITES] == []


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("data/part-00000003")])
def test_other_bytes_under_a_name_are_an_error_that_names_them(name: str) -> None:
    store = MemoryStore()
    make(store, should_stop=iter([False, False, True]).__next__)
    data = store.objects.get(f"{KEY}/{name}", whole()[f"{KEY}/{name}"])
    spoilt = bytearray(data)
    spoilt[len(data) // 2] ^= 1
    if name in {part_name(0), part_name(1), part_name(2), quarantine_name(1), quarantine_name(2)}:
        # Its record is there, so it would not be looked at any more.
        store.objects = {other: value for other, value in store.objects.items() if "/log/" not in other}
    store.objects[f"{KEY}/{name}"] = bytes(spoilt)
    with pytest.raises(CorruptionError, match=name):
        make(store)


def test_what_to_do_about_a_damaged_record_is_told() -> None:
    with pytest.raises(CorruptionError, match=r"not JSON .*; or delete this prepared copy, and prepare it again"):
        record.copy_from(b"{", KEY, "here")


def test_a_stage_that_gives_other_rows_for_one_key_is_an_error() -> None:
    store = MemoryStore()
    make(store, should_stop=lambda: True)
    del store.objects[f"{KEY}/{log_name(0)}"]
    with pytest.raises(CorruptionError, match=part_name(0)):
        make(store, Numbers(salt="!"))


def test_records_with_a_gap_are_an_error() -> None:
    store = MemoryStore(whole())
    del store.objects[f"{KEY}/{log_name(1)}"]
    del store.objects[f"{KEY}/{record.PREPARED_NAME}"]
    with pytest.raises(CorruptionError, match="without a gap"):
        make(store)


def test_a_record_that_does_not_follow_the_one_before_it_is_an_error() -> None:
    store = MemoryStore()
    make(store, should_stop=iter([False, False, True]).__next__)
    other = MemoryStore()
    make(other, Numbers(rows=11))
    # Whole in itself, and of the same number.
    store.objects[f"{KEY}/{log_name(1)}"] = other.objects[f"{key_of(Numbers(rows=11))}/{log_name(1)}"]
    with pytest.raises(CorruptionError, match=r"00000001\.json: does not follow the record before it"):
        make(store)


def test_records_of_another_copy_are_an_error() -> None:
    store = MemoryStore()
    make(store, Numbers(rows=11))
    other = key_of(Numbers(rows=11))
    renamed = MemoryStore({name.replace(other, KEY): data for name, data in store.objects.items()})
    with pytest.raises(CorruptionError, match="expected the copy"):
        find_copy(Place(renamed), KEY)
    del renamed.objects[f"{KEY}/{record.PREPARED_NAME}"]
    with pytest.raises(CorruptionError, match="not the beginning of the copy"):
        make(renamed)


@pytest.mark.parametrize("moment", ["before a part", "at the end"])
def test_a_file_that_changes_while_it_is_read_leaves_nothing_of_what_it_became(tmp_path: Path, moment: str) -> None:
    path = tmp_path / "numbers.txt"
    path.write_text("1")
    file = stat_input(str(path))
    assert file is not None
    parts = itertools.count()

    def change() -> None:
        if next(parts) == (1 if moment == "before a part" else 3):
            path.write_text("22")

    store = MemoryStore()
    with pytest.raises(ChangedError, match=r"numbers\.txt: it has changed while it was being prepared"):
        engine.make_copy(Place(store), link_of(Numbers(on_part=change), [file]), should_stop=lambda: False)
    kept = {name for name in store.objects if "/data/" in name}
    assert kept == {f"{KEY}/{part_name(n)}" for n in range(1 if moment == "before a part" else 3)}
    assert f"{KEY}/{record.PREPARED_NAME}" not in store.objects
    # Put back as it was, it is gone on with.
    path.write_text("1")
    os.utime(path, ns=(int(file.version), int(file.version)))
    engine.make_copy(Place(store), link_of(Numbers(), [file]), should_stop=lambda: False)
    assert store.objects == whole()


def test_a_file_that_changes_after_the_last_part_completes_no_copy(tmp_path: Path) -> None:
    path = tmp_path / "numbers.txt"
    path.write_text("1")
    file = stat_input(str(path))
    assert file is not None
    store = MemoryStore()
    told: list[engine.Progress] = []

    def hear(part: engine.Progress) -> None:
        told.append(part)
        if part.number == 3:
            path.write_text("22")

    with pytest.raises(ChangedError, match="while it was being prepared"):
        engine.make_copy(Place(store), link_of(Numbers(), [file]), on_part=hear, should_stop=lambda: False)
    assert len(told) == 4
    assert f"{KEY}/{record.PREPARED_NAME}" not in store.objects


def test_a_stage_without_a_row_makes_a_copy_without_a_file() -> None:
    store = MemoryStore()
    copy = make(store, Numbers(rows=0))
    assert copy is not None
    assert (copy.rows, copy.files, dict(copy.facts)) == (0, (), {"numbers": 0})
    inventory = inventory_of(Place(store), copy)
    assert ParquetSource("numbers", inventory, copy.schema).read(0, 0).num_rows == 0


def test_a_part_of_bad_lines_alone_has_a_record_and_no_file() -> None:
    store = MemoryStore()
    copy = make(store, Numbers(rows=4, part_rows=1, bad_every=2))
    assert copy is not None
    assert (copy.rows, copy.bad, len(copy.files)) == (2, 2, 2)
    assert [file.path for file in copy.files] == [part_name(0), part_name(2)]
    assert f"{copy.key}/{quarantine_name(1)}" in store.objects


@pytest.mark.parametrize("table", [SCHEMA.empty_table(), pa.table({"n": [1]})], ids=["empty", "other columns"])
def test_row_groups_that_break_the_contract_are_refused(table: pa.Table) -> None:
    stage = Numbers()
    stage._table = lambda _: table  # type: ignore[method-assign,assignment]  # a stage with a mistake
    with pytest.raises(ValueError, match="expected row groups with rows"):
        make(MemoryStore(), stage)


def test_progress_is_told_part_by_part() -> None:
    told: list[engine.Progress] = []
    engine.make_copy(Place(MemoryStore()), link_of(Numbers()), on_part=told.append, should_stop=lambda: False)
    assert [(part.dataset, part.kind, part.number, part.rows) for part in told] == [
        ("numbers", "numbers", number, rows) for number, rows in enumerate([3, 2, 2, 1])
    ]
    assert told[0].path == f"{KEY}/{part_name(0)}"


# Records


TEXTS = st.text(max_size=8)
FILES = st.builds(
    lambda groups, path, size, hashes: PartFile(path, size, hashes, sum(groups), tuple(groups), size, hashes),
    st.lists(st.integers(1, 10**12), max_size=4),
    TEXTS,
    st.integers(0, 2**60),
    TEXTS,
)
CURSORS = st.dictionaries(TEXTS, st.integers() | TEXTS | st.lists(st.integers(), max_size=3), max_size=3)


@given(st.integers(0, 10**9), st.none() | FILES, st.integers(0, 10**9), CURSORS, TEXTS)
def test_a_record_says_what_it_was_made_of(
    number: int, file: PartFile | None, bad: int, cursor: dict[str, object], prev: str
) -> None:
    made = PartRecord(number, file, bad, cursor, prev)  # type: ignore[arg-type]  # JSON, by construction
    assert record.part_record(made.encoded(), number, prev, "here") == made


@given(st.lists(FILES, max_size=3), st.integers(0, 10**9), CURSORS)
def test_the_record_of_a_copy_says_what_it_was_made_of(files: list[PartFile], bad: int, facts: dict[str, str]) -> None:
    made = Copy("k", {"kind": "numbers"}, SCHEMA, tuple(files), bad, facts)
    found = record.copy_from(made.encoded(), "k", "here")
    assert found == made
    assert found.content == made.content


DAMAGED: list[Callable[[dict[str, object]], object]] = [
    lambda content: content.pop("file"),
    lambda content: content.update(file={**_part(content), "rows": -1}),
    lambda content: content.update(file={**_part(content), "rows": 4}),
    lambda content: content.update(file={**_part(content), "bytes": "4"}),
    lambda content: content.update(file={**_part(content), "more": 1}),
    lambda content: content.update(cursor=3),
]


def _part(content: dict[str, object]) -> dict[str, object]:
    part = content["file"]
    assert isinstance(part, dict)
    return part


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_record_that_says_something_impossible_is_refused(damage: Callable[[dict[str, object]], object]) -> None:
    content = unsealed(whole()[f"{KEY}/{log_name(0)}"], "here")
    damage(content)
    with pytest.raises(CorruptionError, match="here: not the record of a part"):
        record.part_record(sealed(content), 0, KEY, "here")
