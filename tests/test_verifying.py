from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mixer import building
from mixer.core import commits
from mixer.core.commits import Slot
from mixer.core.fingerprint import sha256_hex
from mixer.errors import CorruptionError, OutputError
from mixer.verifying import Checked, verify
from tests.mixes import SHARDS, mix_config

FINAL = SHARDS + 1
"""Slot 0 opens the run, a slot for each shard follows."""


def slot_path(out: Path, number: int) -> Path:
    return out / commits.slot_name(number)


def rewrite(out: Path, number: int, change: Callable[[Slot], Slot]) -> None:
    """Replace a slot by another that is whole in itself, as only a forger or a bug could."""
    path = slot_path(out, number)
    slot = commits.decode_slot(path.read_bytes(), number, "slot")
    path.write_bytes(commits.encode_slot(change(slot)))


def payload(**changes: Any) -> Callable[[Slot], Slot]:
    return lambda slot: replace(slot, payload={**slot.payload, **changes})


def writer(**changes: Any) -> Callable[[Slot], Slot]:
    return lambda slot: replace(slot, writer={**slot.writer, **changes})


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def problems(out: Path) -> list[tuple[str, str]]:
    """Return object and problem of everything that is wrong, objects relative to the output."""
    return [(p.object.removeprefix(f"{out}/"), p.problem) for p in verify(str(out)).problems]


def only_problem(out: Path) -> tuple[str, str]:
    (problem,) = problems(out)
    return problem


def test_a_finished_run_is_whole_and_counted(out: Path) -> None:
    heard: list[Checked] = []
    report = verify(str(out), on_object=heard.append)
    summary = building.status(str(out))
    assert report.ok
    assert (report.problems, report.orphans) == ((), ())
    assert (report.run, report.head, report.finished) == (summary.run, summary.head, True)
    assert (report.slots, report.shards, report.rows, report.bytes) == (SHARDS + 2, SHARDS, 48, summary.bytes)
    assert [(c.path, c.done, c.shards) for c in heard] == [
        (f"data/shard-{shard:08d}.parquet", shard + 1, SHARDS) for shard in range(SHARDS)
    ]


def test_a_run_that_was_stopped_and_started_again_is_whole_at_each_step(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    for shards in (1, 3):
        with building.start(config) as run:
            run.write(shards)
        report = verify(config.output)
        assert (report.ok, report.finished, report.shards, report.orphans) == (True, False, shards, ())
    building.build(config)
    assert verify(config.output).ok


def test_a_start_that_has_committed_nothing_is_whole(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    building.start(config).close()
    report = verify(config.output)
    assert (report.ok, report.shards, report.slots) == (True, 0, 1)


@pytest.mark.parametrize("place", [4, 1000, -10], ids=["first page", "middle", "footer"])
def test_a_flipped_bit_in_a_shard_is_found(out: Path, place: int) -> None:
    flip(out / "data/shard-00000002.parquet", place)
    name, problem = only_problem(out)
    assert name == "data/shard-00000002.parquet"
    assert "expected sha256" in problem


def test_a_truncated_and_a_missing_shard_are_both_found(out: Path) -> None:
    shard = out / "data/shard-00000001.parquet"
    length = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[:-1])
    (out / "data/shard-00000003.parquet").unlink()
    assert problems(out) == [
        ("data/shard-00000001.parquet", f"expected {length} bytes, found {length - 1}; restore it from a copy"),
        ("data/shard-00000003.parquet", "missing, though the log names it; restore it from a copy"),
    ]


def test_shards_that_changed_places_are_found(out: Path) -> None:
    one, two = out / "data/shard-00000001.parquet", out / "data/shard-00000002.parquet"
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    assert [name for name, _ in problems(out)] == [f"data/shard-0000000{shard}.parquet" for shard in (1, 2)]


def test_a_flipped_bit_in_a_slot_is_found_and_the_rest_is_still_checked(out: Path) -> None:
    flip(slot_path(out, 2), 100)
    (out / "data/shard-00000003.parquet").unlink()
    (slot, _), (shard, _) = problems(out)
    assert (slot, shard) == (commits.slot_name(2), "data/shard-00000003.parquet")
    assert verify(str(out)).head is None


def test_a_missing_slot_in_the_middle_is_found(out: Path) -> None:
    slot_path(out, 3).unlink()
    assert only_problem(out) == (
        commits.slot_name(3),
        "missing, though later slots exist; restore it from a copy",
    )


def test_slots_that_changed_places_are_found(out: Path) -> None:
    two, three = slot_path(out, 2), slot_path(out, 3)
    first, second = two.read_bytes(), three.read_bytes()
    two.write_bytes(second)
    three.write_bytes(first)
    assert [(name, "mixed up" in problem) for name, problem in problems(out)] == [
        (commits.slot_name(2), True),
        (commits.slot_name(3), True),
    ]


def test_a_commit_of_another_run_is_found(out: Path, tmp_path: Path) -> None:
    building.build(mix_config(tmp_path, output=str(tmp_path / "other"), batches=13))
    slot_path(out, 2).write_bytes(slot_path(tmp_path / "other", 2).read_bytes())
    found = problems(out)
    assert {name for name, _ in found} >= {commits.slot_name(2)}
    assert any("expected the chain head" in problem for _, problem in found)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"rows": 13}, "the plan says rows 12, the commit says 13"),
        ({"path": "data/shard-00000000.parquet"}, "the plan says path"),
        ({"state": {"offsets": {}, "remainder_carry": {}}}, "the plan says state"),
        ({"shard": 9}, "names shard 9"),
        ({"unknown": 1}, "not a commit"),
    ],
)
def test_a_commit_that_says_otherwise_than_the_plan_is_found(out: Path, change: dict[str, Any], expected: str) -> None:
    rewrite(out, 2, payload(**change))
    # Not the next slot, which is linked to what lay there before.
    name, problem = only_problem(out)
    assert name == commits.slot_name(2)
    assert expected in problem


def test_a_slot_by_one_who_did_not_own_the_log_is_found(out: Path) -> None:
    rewrite(out, 3, writer(owner="somebody"))
    name, problem = only_problem(out)
    assert name == commits.slot_name(3)
    assert "written by 'somebody'" in problem


def test_a_slot_by_an_owner_who_had_lost_the_log_is_found(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    with building.start(config) as run:
        run.write(1)
        former = run.owner
    with building.start(config) as run:
        run.write(2)
    assert verify(config.output).ok
    rewrite(tmp_path / "out", 3, writer(owner=former, open=0))
    name, problem = only_problem(tmp_path / "out")
    assert name == commits.slot_name(3)
    assert "slot 2 had given the run to" in problem


def test_a_commit_that_skips_a_shard_is_found(out: Path, tmp_path: Path) -> None:
    """Every link and every state is right, but shard 1 is not there."""
    slots = [commits.decode_slot(slot_path(out, number).read_bytes(), number, "slot") for number in range(4)]
    third = replace(slots[3], number=2, payload={**slots[3].payload, "prev": commits.chain_hash(slots[1].payload)})
    for number in range(3, FINAL + 1):
        slot_path(out, number).unlink()
    (out / commits.MANIFEST_NAME).unlink()
    slot_path(out, 2).write_bytes(commits.encode_slot(third))
    assert only_problem(out) == (commits.slot_name(2), "expected the commit of shard 1, found that of shard 2")


def test_a_slot_behind_the_end_is_found(out: Path) -> None:
    final = commits.decode_slot(slot_path(out, FINAL).read_bytes(), FINAL, "slot")
    again = replace(final, number=FINAL + 1, payload={**final.payload, "prev": commits.chain_hash(final.payload)})
    slot_path(out, FINAL + 1).write_bytes(commits.encode_slot(again))
    assert only_problem(out) == (commits.slot_name(FINAL + 1), "a slot of kind 'final' after the run was finished")


def test_an_open_that_names_another_one_is_found(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    for _ in range(2):
        building.start(config).close()
    rewrite(tmp_path / "out", 1, writer(open=0))
    name, problem = only_problem(tmp_path / "out")
    assert (name, problem) == (
        commits.slot_name(1),
        "expected an `open` that names itself, found one that names slot 0",
    )


def test_an_open_of_another_run_is_found(out: Path) -> None:
    rewrite(out, 0, payload(genesis="0" * 64))
    name, problem = only_problem(out)
    assert name == commits.slot_name(0)
    assert "opens run" in problem


def test_a_final_that_comes_too_early_is_found(out: Path) -> None:
    final = slot_path(out, FINAL)
    shard = slot_path(out, SHARDS)
    last = commits.decode_slot(final.read_bytes(), FINAL, "slot")
    before = commits.decode_slot(shard.read_bytes(), SHARDS, "slot").payload["prev"]
    final.unlink()
    shard.write_bytes(commits.encode_slot(replace(last, number=SHARDS, payload={**last.payload, "prev": before})))
    name, problem = problems(out)[0]
    assert name == commits.slot_name(SHARDS)
    assert "finishes the run of 4 shards after shard 2" in problem


def test_a_final_with_another_state_is_found(out: Path) -> None:
    rewrite(out, FINAL, payload(rows=47))
    name, problem = problems(out)[0]
    assert name == commits.slot_name(FINAL)
    assert "the plan ends with" in problem


def test_a_foreign_file_in_the_log_is_found(out: Path) -> None:
    (out / ".mixer/log/notes.txt").write_text("hello")
    name, problem = only_problem(out)
    assert name == ".mixer/log/notes.txt"
    assert "slots only" in problem


@pytest.mark.parametrize("data", [b"{}", None], ids=["changed", "missing"])
def test_a_manifest_that_is_not_what_the_log_gives_is_found(out: Path, data: bytes | None) -> None:
    path = out / commits.MANIFEST_NAME
    path.unlink() if data is None else path.write_bytes(data)
    name, problem = only_problem(out)
    assert name == commits.MANIFEST_NAME
    assert "`mixer run` writes it again" in problem


def test_a_manifest_of_an_unfinished_run_is_found(out: Path) -> None:
    slot_path(out, FINAL).unlink()
    assert only_problem(out)[0] == commits.MANIFEST_NAME


def checkpoint(out: Path, stop: int, **changes: Any) -> None:
    """Write a checkpoint of the first slots."""
    slots = [commits.decode_slot(slot_path(out, number).read_bytes(), number, "slot") for number in range(stop)]
    content = {
        "format": commits.FORMAT,
        "first_slot": 0,
        "head": "",
        "slots": [{"kind": slot.kind, "payload": dict(slot.payload)} for slot in slots],
    }
    path = out / f"{commits.CHECKPOINT_PREFIX}{stop:012d}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(commits.sealed({**content, **changes}))


def test_a_checkpoint_is_held_to_the_log(out: Path) -> None:
    checkpoint(out, 3)
    assert verify(str(out)).ok
    checkpoint(out, 3, slots=[{"kind": "open", "payload": {}}] * 3)
    assert "says otherwise than the log" in only_problem(out)[1]
    checkpoint(out, 3, first_slot=100)
    assert "not a checkpoint of this log" in only_problem(out)[1]
    flip(out / f"{commits.CHECKPOINT_PREFIX}{3:012d}.json", 30)
    assert "not a checkpoint of this log" in only_problem(out)[1]


def forge_last_shard(out: Path, table_change: Callable[[Any], Any], **footer: str) -> None:
    """Replace the last shard of an unfinished run by other Parquet, and commit just that."""
    path = out / "data/shard-00000003.parquet"
    table = table_change(pq.read_table(BytesIO(path.read_bytes())))
    pq.write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), **footer}), path)
    slot_path(out, FINAL).unlink()
    (out / commits.MANIFEST_NAME).unlink()
    data = path.read_bytes()
    rewrite(out, SHARDS, payload(bytes=len(data), sha256=sha256_hex(data)))


def test_a_committed_shard_without_the_right_rows_columns_or_footer_is_found(out: Path) -> None:
    forge_last_shard(out, lambda table: table.slice(1).drop_columns(["n"]))
    found = problems(out)
    assert {name for name, _ in found} == {"data/shard-00000003.parquet"}
    assert [problem.split(" ")[1] for _, problem in found] == ["12", "the", "the"]
    rows, columns, footer = (problem for _, problem in found)
    assert rows == "expected 12 rows, found 11"
    assert columns.startswith("expected the columns text string, n int64, _dataset")
    assert footer.startswith("expected the footer to say")


def test_a_committed_shard_that_is_not_parquet_is_found(out: Path) -> None:
    path = out / "data/shard-00000003.parquet"
    path.write_bytes(b"no Parquet")
    slot_path(out, FINAL).unlink()
    (out / commits.MANIFEST_NAME).unlink()
    rewrite(out, SHARDS, payload(bytes=10, sha256=sha256_hex(b"no Parquet")))
    assert "not readable as Parquet" in only_problem(out)[1]


def test_objects_that_nothing_names_are_listed_and_are_no_problem(out: Path) -> None:
    (out / "data/shard-00000099.parquet").write_bytes(b"left over")
    (out / "notes.txt").write_text("hello")
    report = verify(str(out))
    assert report.ok
    assert report.orphans == ("data/shard-00000099.parquet", "notes.txt")


def test_a_damaged_definition_ends_the_check(out: Path) -> None:
    flip(out / commits.RUN_NAME, 50)
    with pytest.raises(CorruptionError, match=r"run\.json"):
        verify(str(out))


def test_an_output_without_a_run_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="no run of mixer here"):
        verify(str(tmp_path))


def test_nothing_is_written(out: Path) -> None:
    def everything() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in out.rglob("*") if path.is_file()}

    before = everything()
    verify(str(out))
    assert everything() == before
    assert json.loads(before[str(out / commits.MANIFEST_NAME)])["rows"] == 48
