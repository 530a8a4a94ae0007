from __future__ import annotations

import fnmatch
from glob import glob
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixer.storage.patterns import Pattern, Verdict, split_pattern, whole_folder

plain_names = st.text("ab1-", min_size=1, max_size=3)
wild_parts = st.text("ab1-*?", min_size=1, max_size=3).filter(lambda part: "**" not in part)
plain_paths = st.lists(plain_names, min_size=1, max_size=4)


@given(st.lists(st.just("**") | wild_parts, min_size=1, max_size=4), plain_paths)
def test_a_pattern_takes_what_its_definition_says(parts: list[str], names: list[str]) -> None:
    names[-1] += ".parquet"
    # At the end, `**` stands for the files below the folders as well.
    reference = [*parts, "*"] if parts[-1] == "**" else parts
    taken = Pattern(tuple(parts)).judge(names) is Verdict.TAKEN
    assert taken == _matches_by_definition(reference, names)


def _matches_by_definition(parts: list[str], names: list[str]) -> bool:
    """Try every way to spell each `**` out as some number of `*`."""
    if "**" not in parts:
        return len(parts) == len(names) and all(map(fnmatch.fnmatchcase, names, parts))
    place = parts.index("**")
    return any(
        _matches_by_definition([*parts[:place], *["*"] * folders, *parts[place + 1 :]], names)
        for folders in range(len(names))
    )


@pytest.mark.parametrize(
    "pattern", ["*/*.parquet", "**/*.parquet", "a/**/b.parquet", "**/a/*.parquet", "[ab]/?.parquet"]
)
def test_a_pattern_takes_what_the_standard_library_globs(tmp_path: Path, pattern: str) -> None:
    for name in (
        "a/a.parquet",
        "a/b.parquet",
        "b/b.parquet",
        "c/b.parquet",
        "a/a/b.parquet",
        "b/a/c.parquet",
        "a.parquet",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    parts = Pattern(tuple(pattern.split("/")))
    files = [path.relative_to(tmp_path) for path in tmp_path.rglob("*.parquet")]
    taken = {str(file) for file in files if parts.judge(file.parts) is Verdict.TAKEN}
    assert taken == set(glob(pattern, root_dir=tmp_path, recursive=True))  # noqa: PTH207 - the reference


@given(st.lists(st.just("**") | wild_parts, min_size=1, max_size=4), plain_paths)
def test_a_folder_with_matches_is_always_entered(parts: list[str], names: list[str]) -> None:
    pattern = Pattern(tuple(parts))
    names[-1] += ".parquet"
    if pattern.judge(names) is Verdict.TAKEN:
        for depth in range(1, len(names)):
            assert pattern.may_hold(names[:depth]) is Verdict.TAKEN


@pytest.mark.parametrize(
    ("pattern", "path", "verdict"),
    [
        ("*", "_SUCCESS", Verdict.IGNORED),
        ("*", "part-0", Verdict.IGNORED),
        ("*", "part-0.PARQUET", Verdict.TAKEN),
        ("*", "part-0.pq", Verdict.TAKEN),
        ("*", ".part-0.parquet", Verdict.IGNORED),
        ("_*", "_0.parquet", Verdict.TAKEN),
        ("*.parq", "0.parq", Verdict.TAKEN),
        ("*.parquet", "0.parquet.crc", Verdict.OTHER),
        ("part-[0-9]", "part-1", Verdict.IGNORED),
        ("part-[!0-9].parquet", "part-x.parquet", Verdict.TAKEN),
        ("part-[0-9].parquet", "part-x.parquet", Verdict.OTHER),
        ("**/*.parquet", "_log/0.parquet", Verdict.IGNORED),
        ("**/_log/*.parquet", "a/_log/0.parquet", Verdict.TAKEN),
        ("**", "a/b/0.parquet", Verdict.TAKEN),
        ("a*", "A.parquet", Verdict.OTHER),
    ],
)
def test_hidden_and_foreign_files_are_ignored_unless_spelled_out(pattern: str, path: str, verdict: Verdict) -> None:
    assert Pattern(tuple(pattern.split("/"))).judge(path.split("/")) is verdict


def test_a_hidden_folder_is_entered_only_if_it_is_spelled_out() -> None:
    assert whole_folder().may_hold(["_log"]) is Verdict.IGNORED
    assert Pattern(("**", "_log", "*.parquet")).may_hold(["a", "_log"]) is Verdict.TAKEN
    assert Pattern(("_*", "*.parquet")).may_hold(["_log"]) is Verdict.TAKEN
    assert Pattern(("*", "*.parquet")).may_hold(["a", "b"]) is Verdict.OTHER


def test_the_fixed_part_of_a_pattern_is_its_folder() -> None:
    assert split_pattern("bucket/a/b*/c.parquet") == ("bucket/a", Pattern(("b*", "c.parquet")))
    assert split_pattern("/*.parquet") == ("", Pattern(("*.parquet",)))
