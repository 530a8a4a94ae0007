from __future__ import annotations

from pathlib import Path

import pytest

from mixer.errors import OutputError
from mixer.storage import LocalStore, open_store
from mixer.storage.s3 import S3Store


def test_paths_and_file_addresses_are_local(tmp_path: Path) -> None:
    for url in (str(tmp_path / "a"), f"file://{tmp_path}/a", f"{tmp_path}/a/", f"{tmp_path}/b/../a"):
        store = open_store(url)
        assert isinstance(store, LocalStore)
        assert store.url == str(tmp_path / "a")


@pytest.mark.parametrize(
    ("url", "bucket", "prefix"),
    [
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("s3a://bucket/a/b", "bucket", "a/b/"),
        ("S3://bucket/a/b/", "bucket", "a/b/"),
    ],
)
def test_s3_addresses_name_a_bucket_and_a_prefix(url: str, bucket: str, prefix: str) -> None:
    assert open_store(url) == S3Store(bucket, prefix)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", "expected a path on a local disk, file:///folder, or s3://bucket/prefix"),
        ("s3://", "expected a path"),
        ("s3:///a", "expected s3://bucket/prefix"),
        ("s3:/bucket/a", "mind the number of slashes"),
        ("file:/a", "mind the number of slashes"),
        ("file://a/b", "mind the number of slashes"),
        ("s3://arn:aws:s3:eu-west-1:1:accesspoint/x/a", "its alias"),
        ("s3://bucket/a//b", "non-empty parts"),
        ("s3://bucket/../other", "would leave the store"),
        ("s3://bucket/" + "x" * 600, "prefix of at most 512 bytes"),
        ("a\nb", "expected a path"),
        ("/a\0b", "expected a path"),
        ("gs://bucket/a", r"gs:// is not supported for outputs; expected .*s3://bucket/prefix"),
        ("az://container/a", "az:// is not supported for outputs"),
        ("https://host/a", "https:// is not supported for outputs"),
        ("memory://a", "mixer.testing.MemoryStore"),
        ("simplecache::s3://bucket/a", "expected a path"),
    ],
)
def test_an_address_that_is_none_is_refused(url: str, expected: str) -> None:
    with pytest.raises(OutputError, match=expected):
        open_store(url)


@pytest.mark.parametrize(
    "url",
    ["s3://AKIA7:hunter2@bucket/a", "s3://hunter2@bucket", "s3://bucket/a?secret=hunter2", "s3://bucket/a#hunter2"],
)
def test_secrets_in_an_address_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(OutputError, match="credentials come from the environment") as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)
    assert "AKIA7" not in str(caught.value)
