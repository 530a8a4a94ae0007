"""`mixer gc`: a look by default, deletions when asked for, and what it says of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from mixer import building
from mixer.cli import gc_view
from mixer.config import MixConfig
from mixer.core.plan import shard_path
from mixer.storage import LocalStore, open_store
from mixer.storage.urls import PROBE_FOLDER, TEMPORARY_FOLDER
from tests.cli.conftest import Mixer
from tests.e2e.runs import objects
from tests.mixes import SHARDS, mix_config
from tests.s3_server import ACCESS_KEY_ID, SECRET_ACCESS_KEY

PROBE = PROBE_FOLDER + "abcd" * 8
DEAD = TEMPORARY_FOLDER + "dead" * 8
BEYOND = shard_path(SHARDS)


def with_leftovers(config: MixConfig) -> dict[str, bytes]:
    """Make a finished run with something of every kind beside it; return the objects of the run."""
    building.build(config)
    store = open_store(config.output)
    before = objects(store)
    store.put(PROBE, b"first")
    store.put(BEYOND, b"PAR1")
    store.put("data/notes.txt", b"mine")
    return before


def test_a_look_shows_what_may_go_and_what_stays_and_deletes_nothing(mixer: Mixer, tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    with_leftovers(config)
    everything = objects(LocalStore(config.output))
    shown = mixer("gc", config.output)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.splitlines() == [
        f"Output   {config.output}",
        f"Run      {building.status(config.output).run}, finished, 4 shards committed",
        "Garbage  1 object, 5 B",
        "Kept     2 objects, 8 B",
        "",
        f"what becomes of it  bytes  {'name':<{len(PROBE)}}  why",
        f"may go                  5  {PROBE}  left by a probe of the store",
        f"kept                    4  {'data/notes.txt':<{len(PROBE)}}  not made by mixer",
        (
            f"kept                    4  {BEYOND:<{len(PROBE)}}  "
            f"a shard beyond the last one: an extension would use or replace it"
        ),
        "",
        "Nothing was deleted; `mixer gc --delete` with this output deletes what is marked `may go`.",
    ]
    assert objects(LocalStore(config.output)) == everything


def test_deleting_deletes_that_and_says_each(mixer: Mixer, tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    before = with_leftovers(config)
    (tmp_path / "out" / DEAD).write_bytes(b"12")
    done = mixer("gc", config.output, "--delete")
    assert done.code == 0
    assert done.err.splitlines() == [
        f"deleted {PROBE}, 5 B: left by a probe of the store",
        f"deleted {DEAD}, 2 B: unfinished: its writer was killed",
    ]
    assert "Deleted  2 objects, 7 B" in done.out
    assert objects(LocalStore(config.output)) == {**before, "data/notes.txt": b"mine", BEYOND: b"PAR1"}
    again = mixer("gc", config.output, "--delete", "--quiet", "--json")
    assert (again.code, again.err) == (0, "")
    assert again.json == {
        "output": config.output,
        "run": building.status(config.output).run,
        "committed": SHARDS,
        "finished": True,
        "delete": True,
        "found": [],
        "kept": [
            {"name": "data/notes.txt", "bytes": 4, "reason": "not made by mixer"},
            {
                "name": BEYOND,
                "bytes": 4,
                "reason": "a shard beyond the last one: an extension would use or replace it",
            },
        ],
        "deleted": [],
        "spared": [],
        "refused": [],
    }
    assert mixer("verify", config.output).code == 0


@pytest.mark.s3
def test_on_s3_it_does_the_same_and_shows_no_key(mixer: Mixer, tmp_path: Path, s3_url: str) -> None:
    config = mix_config(tmp_path, output=s3_url)
    before = with_leftovers(config)
    looked = mixer("gc", s3_url, "--json", "--debug")
    assert [item["name"] for item in looked.json["found"]] == [PROBE]
    done = mixer("gc", s3_url, "--delete", "--json", "--debug")
    assert (done.code, done.json["deleted"]) == (0, looked.json["found"])
    assert objects(open_store(s3_url)) == {**before, "data/notes.txt": b"mine", BEYOND: b"PAR1"}
    for answer in (looked, done):
        assert SECRET_ACCESS_KEY not in answer.out + answer.err
        assert ACCESS_KEY_ID not in answer.out + answer.err


def test_an_output_without_a_run_and_a_damaged_one_are_refused(mixer: Mixer, tmp_path: Path) -> None:
    nothing = mixer("gc", str(tmp_path / "nothing"), "--delete")
    assert nothing.code == 2
    assert "no run of mixer here" in nothing.err
    config = mix_config(tmp_path)
    with_leftovers(config)
    (tmp_path / "out/.mixer/log/000000000002.json").unlink()
    damaged = mixer("gc", config.output, "--delete", "--json")
    assert (damaged.code, damaged.json["error"]["type"]) == (4, "CorruptionError")
    assert (tmp_path / "out" / PROBE).exists()


def test_what_cannot_be_deleted_is_an_error_at_the_end(
    mixer: Mixer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = mix_config(tmp_path)
    with_leftovers(config)
    other = PROBE[:-1] + ("0" if PROBE[-1] != "0" else "1")
    LocalStore(config.output).put(other, b"PAR1")
    unlink = Path.unlink

    def refuse(self: Path, missing_ok: bool = False) -> None:  # noqa: FBT002 -- as it is in the standard library
        if self.name == Path(PROBE).name:
            raise PermissionError(13, "Permission denied", str(self))
        unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    done = mixer("gc", config.output, "--delete")
    assert done.code == 1
    assert "1 object could not be deleted" in done.err
    assert "access denied: check the owner and the permissions" in done.err
    assert "Garbage  2 objects, 9 B\nDeleted  1 object, 4 B\n" in done.out
    assert f"not deleted             5  {PROBE}" in done.out
    assert f"deleted                 4  {other}" in done.out


def test_very_many_objects_are_counted_and_not_all_shown() -> None:
    item = {"name": "x", "bytes": 1, "reason": "not made by mixer"}
    value = {"output": "o", "run": "r", "committed": 0, "finished": False, "delete": False, "found": []}
    value |= {"kept": [item] * 1500, "deleted": [], "spared": [], "refused": []}
    lines = list(gc_view.garbage_lines(value, None))
    assert "Kept     1,500 objects, 1.46 KiB" in lines
    assert lines[-1] == "and 500 more (`--json` lists all)"


def test_names_cannot_steer_the_terminal() -> None:
    item = {"name": "data/\x1b[2J", "bytes": 1, "reason": "not made by mixer"}
    value = {"output": "o", "run": "r", "committed": 0, "finished": False, "delete": False, "found": []}
    value |= {"kept": [item], "deleted": [], "spared": [], "refused": []}
    assert "\x1b" not in "".join(gc_view.garbage_lines(value, None))
