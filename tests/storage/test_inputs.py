from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mixer.errors import ChangedError, InputError
from mixer.storage.inputs import InputFile, difference, find_inputs, open_input, read_range, stat_input

AWKWARD_NAMES = ["a b", "ä-日本", "a#b", "a?b", "a%20b", "a[1]", "a*b", "a~", "a;b&c=d", "a'b\"c"]


def make(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())


def found(path: str | list[str], root: Path) -> list[str]:
    return [os.path.relpath(file.url, root) for file in find_inputs(path).files]


def test_a_folder_gives_its_parquet_files_at_any_depth_in_byte_order(tmp_path: Path) -> None:
    make(
        tmp_path, "part-2.parquet", "part-10.parquet", "a/z.pq", "a-b/z.parquet", "B.parquet", "é.parquet", "z.PARQUET"
    )
    assert found(str(tmp_path), tmp_path) == [
        "B.parquet",
        "a-b/z.parquet",
        "a/z.pq",
        "part-10.parquet",
        "part-2.parquet",
        "z.PARQUET",
        "é.parquet",
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(
    names=st.sets(st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), max_size=4), max_size=6)
)
def test_order_is_that_of_the_names_bytes(names: set[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("order")
    files = [f"x{name}.parquet" for name in names] or ["x.parquet"]
    make(root, *files)
    assert [file.url for file in find_inputs(str(root)).files] == sorted(
        (str(root / name) for name in files), key=os.fsencode
    )


def test_hidden_and_foreign_files_are_ignored_and_listed(tmp_path: Path) -> None:
    make(
        tmp_path,
        "0.parquet",
        "_SUCCESS",
        ".0.parquet.crc",
        "README.md",
        "_delta_log/0.parquet",
        ".git/a/b",
        "a/_metadata",
    )
    listing = find_inputs(str(tmp_path))
    assert [file.url for file in listing.files] == [str(tmp_path / "0.parquet")]
    assert [os.path.relpath(name, tmp_path) + "/" * name.endswith("/") for name in listing.ignored] == [
        ".0.parquet.crc",
        ".git/",
        "README.md",
        "_SUCCESS",
        "_delta_log/",
        "a/_metadata",
    ]


def test_a_glob_is_sorted_as_a_whole_and_a_list_keeps_its_order(tmp_path: Path) -> None:
    make(tmp_path, "b/1.parquet", "a/2.parquet", "a/10.parquet", "a/x/3.parquet", "a/no.txt")
    assert found(f"{tmp_path}/*/*.parquet", tmp_path) == ["a/10.parquet", "a/2.parquet", "b/1.parquet"]
    assert found(f"{tmp_path}/**/[23].parquet", tmp_path) == ["a/2.parquet", "a/x/3.parquet"]
    assert found([f"{tmp_path}/b/*", f"{tmp_path}/a/2.parquet", f"{tmp_path}/a/x"], tmp_path) == [
        "b/1.parquet",
        "a/2.parquet",
        "a/x/3.parquet",
    ]


@pytest.mark.parametrize("name", AWKWARD_NAMES)
def test_any_name_can_be_named_found_below_its_folder_and_opened(tmp_path: Path, name: str) -> None:
    make(tmp_path, f"{name}.parquet", f"{name}.d/0.parquet")
    for path in (f"{tmp_path}/{name}.parquet", f"file://{tmp_path}/{name}.parquet"):
        (file,) = find_inputs(path).files
        assert file.url == f"{tmp_path}/{name}.parquet"
        with open_input(file) as handle:
            assert handle.read() == f"{name}.parquet".encode()
        assert stat_input(file.url) == file
    assert found(f"{tmp_path}/{name}.d", tmp_path) == [f"{name}.d/0.parquet"]
    assert len(find_inputs(str(tmp_path)).files) == 2


def test_a_file_named_outright_is_taken_whatever_its_name(tmp_path: Path) -> None:
    make(tmp_path, "_hidden", "data.bin")
    assert found([f"{tmp_path}/_hidden", f"{tmp_path}/data.bin"], tmp_path) == ["_hidden", "data.bin"]


def test_paths_become_absolute_without_following_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "real/0.parquet")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "link.parquet").symlink_to("real/0.parquet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_inputs("real/../link").files[0].url == str(tmp_path / "link/0.parquet")
    assert find_inputs("~/link.parquet").files[0].url == str(tmp_path / "link.parquet")
    assert find_inputs("link.parquet").files[0].bytes == len("real/0.parquet")


def test_links_to_files_and_folders_are_followed(tmp_path: Path) -> None:
    make(tmp_path, "elsewhere/0.parquet", "data/1.parquet")
    (tmp_path / "data/0.parquet").symlink_to(tmp_path / "elsewhere/0.parquet")
    (tmp_path / "data/more").symlink_to(tmp_path / "elsewhere")
    assert found(f"{tmp_path}/data", tmp_path) == ["data/0.parquet", "data/1.parquet", "data/more/0.parquet"]


def test_a_link_that_leads_back_is_an_error(tmp_path: Path) -> None:
    make(tmp_path, "data/0.parquet")
    (tmp_path / "data/loop").symlink_to(tmp_path / "data")
    with pytest.raises(InputError, match="loop: a symbolic link leads back"):
        find_inputs(str(tmp_path / "data"))


def test_a_dangling_link_is_an_error_and_not_less_data(tmp_path: Path) -> None:
    make(tmp_path, "0.parquet")
    (tmp_path / "1.parquet").symlink_to(tmp_path / "gone")
    (tmp_path / "_2.parquet").symlink_to(tmp_path / "gone")
    with pytest.raises(InputError, match=r"1\.parquet: expected a file, found a symbolic link that leads nowhere"):
        find_inputs(str(tmp_path))


def test_what_is_no_file_is_ignored_in_a_folder_and_refused_by_name(tmp_path: Path) -> None:
    make(tmp_path, "0.parquet")
    os.mkfifo(tmp_path / "pipe.parquet")
    assert find_inputs(str(tmp_path)).ignored == (str(tmp_path / "pipe.parquet"),)
    with pytest.raises(InputError, match=r"pipe\.parquet: expected a file or a folder"):
        find_inputs(str(tmp_path / "pipe.parquet"))


@pytest.mark.parametrize("second", ["0.parquet", ".", "./a/../0.parquet", "*.parquet"])
def test_one_file_twice_is_an_error(tmp_path: Path, second: str) -> None:
    make(tmp_path, "0.parquet", "a/1.parquet")
    with pytest.raises(InputError, match=r"0\.parquet was found twice, by .* and by"):
        find_inputs([f"{tmp_path}/0.parquet", f"{tmp_path}/{second}"])


@pytest.mark.parametrize("path", ["none", "none/*.parquet", "none.parquet", "0.txt/below", "empty", "*.parquet"])
def test_nothing_found_says_what_was_looked_for(tmp_path: Path, path: str) -> None:
    make(tmp_path, "0.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"expected a file, a folder .*found nothing; check the path") as caught:
        find_inputs(f"{tmp_path}/{path}")
    assert f"{tmp_path}/{path}" in str(caught.value)


def test_nothing_found_says_what_was_ignored(tmp_path: Path) -> None:
    make(tmp_path, *(f"{number}.csv" for number in range(7)))
    with pytest.raises(InputError, match=r"only what is ignored \(7\): .*/0\.csv, .*/4\.csv, \.\.\.; check"):
        find_inputs(str(tmp_path))


@pytest.mark.parametrize("path", ["", [], "a\0b"])
def test_no_path_is_an_error(path: str | list[str]) -> None:
    with pytest.raises(InputError, match=r"expected (a path|at least one input path)"):
        find_inputs(path)


def test_a_name_that_is_not_utf8_is_an_error(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.parquet")).touch()
    with pytest.raises(InputError, match=r"\\xff\.parquet': expected a name in UTF-8"):
        find_inputs(str(tmp_path))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://key:hunter2@bucket/a", "expected no user or password"),
        ("s3://hunter2@bucket/a", "expected no user or password"),
        ("https://host/a.parquet?sig=hunter2", "expected no query"),
        ("s3://bucket/a.parquet?versionId=hunter2", "expected no query"),
        ("simplecache::s3://hunter2@bucket/a", "found several joined by '::'"),
        ("nosuch://bucket/a", "expected a protocol that fsspec knows"),
        ("s3://*/a.parquet", "expected a bucket's name"),
    ],
)
def test_urls_that_hold_secrets_or_cannot_be_read_are_refused_without_showing_them(
    s3_server: object, url: str, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        find_inputs(url)
    assert "hunter2" not in str(caught.value)


def _grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"+")


def _touch(path: Path) -> None:
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(1, 1))


def _replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"other")
    other.replace(path)


CHANGES = {"grown": _grow, "other bytes": _touch, "deleted": Path.unlink, "replaced": _replace}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_file_is_neither_opened_nor_read(tmp_path: Path, change: object) -> None:
    make(tmp_path, "0.parquet")
    (file,) = find_inputs(str(tmp_path)).files
    assert callable(change)
    change(tmp_path / "0.parquet")
    assert difference(file, stat_input(file.url)) is not None
    with pytest.raises(ChangedError, match=r"0\.parquet has changed since the run was planned: expected"):
        open_input(file)
    with pytest.raises(ChangedError, match=r"0\.parquet has changed"):
        read_range(file, 0, 1)


def test_a_range_is_read_exactly(tmp_path: Path) -> None:
    make(tmp_path, "0123456789.parquet")
    (file,) = find_inputs(str(tmp_path)).files
    assert read_range(file, 3, 7) == b"3456"
    assert read_range(file, 0, 0) == b""
    with pytest.raises(InputError, match="expected 5 bytes from 15, found 3"):
        read_range(file, 15, 20)


def test_what_is_no_file_has_no_status(tmp_path: Path) -> None:
    make(tmp_path, "a/0.parquet")
    assert stat_input(str(tmp_path / "a")) is None
    assert stat_input(str(tmp_path / "a/1.parquet")) is None
    assert stat_input(str(tmp_path / "a/0.parquet/below")) is None


def test_other_protocols_of_fsspec_are_found_and_read() -> None:
    # Memory stands for all that fsspec speaks: its file system is the one that needs no server.
    from mixer.storage.filesystems import filesystem_for  # noqa: PLC0415 - fsspec is the tested seam's business

    filesystem_for("memory").pipe({"/in/b.parquet": b"bb", "/in/a.parquet": b"a", "/in/_SUCCESS": b""})
    listing = find_inputs("memory://in")
    assert [(file.url, file.bytes) for file in listing.files] == [
        ("memory://in/a.parquet", 1),
        ("memory://in/b.parquet", 2),
    ]
    assert listing.ignored == ("memory://in/_SUCCESS",)
    assert find_inputs("memory://in/b*") == find_inputs("memory://in/b.parquet")
    with open_input(listing.files[1]) as handle:
        assert handle.read() == b"bb"


def test_a_difference_is_told_from_none() -> None:
    file = InputFile("/a", 3, "v")
    assert difference(file, file) is None
