"""What `mixer verify` says to people, where that is more than a list."""

from __future__ import annotations

from pathlib import Path

from mixer import building
from mixer.core import commits
from mixer.core.plan import shard_path
from tests.cli.conftest import Mixer
from tests.mixes import mix_config


def test_a_shard_whose_slot_is_damaged_is_not_called_something_that_may_go(mixer: Mixer, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    building.build(mix_config(tmp_path))
    (tmp_path / "out/notes.txt").write_text("mine")
    assert "Objects that nothing names, and that harm nothing: 1\n  notes.txt\n" in mixer("verify", out, "--quiet").out
    (tmp_path / "out" / commits.slot_name(2)).write_bytes(b"{}")
    answer = mixer("verify", out, "--quiet")
    assert answer.code == 4
    assert "harm nothing" not in answer.out
    said = "Objects that what can be read of the log does not name; keep them until the log is mended: 2"
    assert f"{said}\n  {shard_path(1)}\n  notes.txt\n" in answer.out
