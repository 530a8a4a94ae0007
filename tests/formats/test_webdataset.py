"""WebDataset tars: samples by name, bytes as stored, hostile names and members harmless, whole archives only."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mixer.errors import InputError, SchemaError
from mixer.formats import webdataset
from tests.formats.making import packed, read, tar, written
from tests.profiles import sized

SAMPLES = [(f"{n:03d}.{ending}", bytes([n]) * (n * 9)) for n in range(30) for ending in ("jpg", "seg.png")]


@pytest.mark.parametrize("tar_format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_members_of_one_name_up_to_the_first_dot_are_a_row(tmp_path: Path, tar_format: int) -> None:
    deep = "deep/" * 18 + "v1.0/"
    members = [
        ("a/1.jpg", b"\xff"),
        ("a/1.txt", "é".encode()),
        ("b/1.jpg", b""),
        (deep + "1.seg.png", b"s"),
        (deep + "1.jpg", b"j"),
    ]
    found = read(written(tmp_path, "a.tar", tar(members, tar_format)))
    assert found.rows == [
        {"__key__": "a/1", "jpg": b"\xff", "txt": "é", "seg.png": None},
        {"__key__": "b/1", "jpg": b"", "txt": None, "seg.png": None},
        {"__key__": deep + "1", "jpg": b"j", "txt": None, "seg.png": b"s"},
    ]
    assert found.schema == pa.schema(
        {"__key__": pa.string(), "jpg": pa.binary(), "txt": pa.string(), "seg.png": pa.binary()}
    )


def test_an_archive_of_the_tar_command_is_read(tmp_path: Path) -> None:
    for name, data in SAMPLES:
        (tmp_path / name).write_bytes(data)
    names = [name for name, _ in SAMPLES]
    subprocess.run(["/bin/tar", "-czf", "a.tgz", *names], cwd=tmp_path, check=True)
    assert [row["jpg"] for row in read(str(tmp_path / "a.tgz")).rows] == [
        data for name, data in SAMPLES if "jpg" in name
    ]


def test_names_are_only_names_and_nothing_is_unpacked_or_executed(tmp_path: Path) -> None:
    pickle = b"cos\nsystem\n(S'touch /tmp/executed'\ntR."
    members = [("../../etc/1.txt", b"up"), ("/etc/passwd.txt", b"root"), ("x.pyd", pickle), ("x.pickle", pickle)]
    found = read(written(tmp_path, "a.tar", tar(members)))
    assert [row["__key__"] for row in found.rows] == ["../../etc/1", "/etc/passwd", "x"]
    assert found.rows[2]["pyd"] == found.rows[2]["pickle"] == pickle
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar"]


def test_what_is_no_plain_file_or_has_no_ending_is_passed_over_and_counted(tmp_path: Path) -> None:
    out = io.BytesIO()
    kinds: list[tuple[str, Any]] = [
        ("l.txt", tarfile.SYMTYPE),
        ("h.txt", tarfile.LNKTYPE),
        ("f.txt", tarfile.FIFOTYPE),
        ("d.txt", tarfile.DIRTYPE),
    ]
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind in kinds:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        for name in ("README", ".hidden", "1.txt"):
            info = tarfile.TarInfo(name)
            info.size = 1
            archive.addfile(info, io.BytesIO(b"x"))
    found = read(written(tmp_path, "a.tar", out.getvalue()))
    assert found.rows == [{"__key__": "1", "txt": "x"}]
    assert found.facts["passed"] == {"members_passed_over": 5}


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        ([("2.txt", b"x"), ("2.txt", b"y")], "duplicate_key"),
        ([("2.txt", b"\xff")], "encoding"),
        ([("2\udcff.txt", b"x")], "encoding"),
    ],
)
def test_a_sample_that_is_no_row_is_for_the_policy(tmp_path: Path, members: list[tuple[str, bytes]], kind: str) -> None:
    data = tar([("1.txt", b"1"), *members, ("3.txt", b"3")], tarfile.GNU_FORMAT)
    path = written(tmp_path, "a.tar", data)
    with pytest.raises(InputError, match=r"a\.tar sample 2: .*expected .*found"):
        read(path)
    found = read(path, on_bad_line="quarantine")
    assert [row["txt"] for row in found.rows] == ["1", "3"]
    assert found.facts["bad_lines"] == {kind: 1}
    assert [(line.line, line.data) for line in found.bad] == [(2, members[-1][1])]


@pytest.mark.parametrize("ending", ["", ".gz"])
@given(cut=st.floats(0, 1, exclude_max=True))
@settings(max_examples=sized(short=20, long=500), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_archive_that_is_cut_short_anywhere_is_an_error(tmp_path: Path, ending: str, cut: float) -> None:
    whole = tar(SAMPLES).rstrip(b"\0")
    path = tmp_path / f"a.tar{ending}"
    path.write_bytes(packed(whole[: int(len(whole) * cut)], ending))
    with pytest.raises(InputError, match=r"a\.tar(\.gz)?[:,]"):
        read(str(path), on_bad_line="skip")


def test_a_broken_header_in_the_middle_is_no_end(tmp_path: Path) -> None:
    data = bytearray(tar(SAMPLES))
    place = data.index(b"015.jpg")
    data[place] ^= 1
    with pytest.raises(InputError, match=r"it has no end where one is expected: .* a header is broken"):
        read(written(tmp_path, "a.tar", bytes(data)), on_bad_line="skip")


def test_archives_one_after_the_other_are_an_error_and_not_the_first_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="more data follows its end; are these several archives in one file"):
        read(written(tmp_path, "a.tar", tar(SAMPLES) * 2))


def test_a_header_that_holds_for_all_members_is_refused(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"path": "all.txt"}) as archive:
        archive.addfile(tarfile.TarInfo("1.txt"))
    with pytest.raises(InputError, match="a global header changes all members"):
        read(written(tmp_path, "a.tar", out.getvalue()))


def test_members_and_samples_longer_than_the_limit_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webdataset, "MAX_VALUE_BYTES", 4000)
    with pytest.raises(InputError, match=r"member '1\.bin' has 4,001 bytes, and at most 4,000 are read"):
        read(written(tmp_path, "a.tar", tar([("1.bin", bytes(4001))])), on_bad_line="skip")
    with pytest.raises(InputError, match=r"the sample '1' has more than 4,000 bytes"):
        read(written(tmp_path, "a.tar", tar([("1.a", bytes(3000)), ("1.b", bytes(3000))])), on_bad_line="skip")


def test_endings_that_are_data_and_archives_without_any_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webdataset, "MAX_FIELDS", 20)
    with pytest.raises(SchemaError, match="expected at most 20 endings, found more"):
        read(written(tmp_path, "a.tar", tar([(f"a.v{n}.jpg", b"") for n in range(30)])))
    with pytest.raises(SchemaError, match=r"expected members named as in 000\.jpg, found none"):
        read(written(tmp_path, "b.tar", tar([("README", b"x")])))
    with pytest.raises(InputError, match="expected a tar that is whole"):
        read(written(tmp_path, "c.tar", b""))
