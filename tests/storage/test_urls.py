from __future__ import annotations

import string
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixer.errors import StoreError
from mixer.storage.urls import check_name, redact, redact_url, split_protocol

parts = st.sampled_from(["", ".", "..", "a", "data", "...", ".mixer", "tmp", "\0", "\n", "\u202e", "x" * 600, "~"])
# Up to five digits and a slash would be a port.
secrets = st.text(string.ascii_letters + string.digits + "+/=%", min_size=6).map("s".__add__)


@given(st.one_of(st.text(max_size=20), st.lists(parts, max_size=6).map("/".join)))
def test_a_name_is_refused_or_stays_inside(name: str) -> None:
    root = PurePosixPath("/root/of/store")
    try:
        check_name(name)
    except StoreError:
        return
    inside = root / name
    assert inside.is_relative_to(root)
    assert inside != root
    assert str(inside) == f"{root}/{name}"
    assert not {"..", "."} & set(inside.parts)
    assert name.isprintable()
    assert len(name.encode()) <= 1024


def test_the_prefix_counts_for_the_length() -> None:
    assert check_name("a" * 24, inside="p" * 1000)
    with pytest.raises(StoreError, match="expected at most 1024 bytes with its prefix, found 1025"):
        check_name("a" * 25, inside="p" * 1000)


def test_a_refusal_does_not_repeat_a_name_without_end() -> None:
    with pytest.raises(StoreError) as caught:
        check_name("x" * 1_000_000)
    assert len(str(caught.value)) < 300


@given(st.text(string.ascii_letters + string.digits, min_size=6), secrets)
def test_no_secret_of_an_address_is_shown(user: str, secret: str) -> None:
    for url in (
        f"s3://{user}:{secret}{secret}@bucket/key",
        f"https://host/path?X-Amz-Signature={secret}{secret}&X-Amz-Credential={user}",
        f"https://{user}:{secret}{secret}@host:9000/path#{secret}{secret}",
    ):
        shown = redact_url(url) + redact(f"cannot reach {url}")
        assert secret + secret not in shown
        assert "://" in shown


def test_secrets_of_the_environment_and_signatures_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    text = (
        "Invalid header b'AWS4-HMAC-SHA256 Credential=AKIA7/2026/s3, SignedHeaders=host, Signature=abc1' wJalrXUtnFEMI"
    )
    shown = redact(text)
    for secret in ("wJalrXUtnFEMI", "AKIA7", "abc1"):
        assert secret not in shown


def test_secrets_of_azure_and_google_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "AZURE_STORAGE_CONNECTION_STRING", "DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=c2Vj+/ret1=="
    )
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "?sv=2026&se=2027&sig=s1gn%2Bed")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "cl1ent")
    monkeypatch.setenv("FSSPEC_GS_TOKEN", "anon")
    for text in (
        "bad key c2Vj+/ret1== of acme",
        "AccountName=acme;AccountKey=c2Vj+/ret1==;EndpointSuffix=x",
        "GET https://acme.blob.core.windows.net/box/a?sv=2026&sig=s1gn%2Bed HTTP/1.1",
        "token s1gn%2Bed of acme",
        "cl1ent of acme",
        "acme: Authorization: SharedKey acme:c2Vj+/ret1==, Bearer c2Vj",
    ):
        shown = redact(text)
        assert "acme" in shown
        for secret in ("c2Vj", "s1gn", "cl1ent"):
            assert secret not in shown
    assert redact("Anonymous caller: anon") == "Anonymous caller: anon"
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING")
    assert redact("AccountKey=c2Vj+/ret1==;x=y") == "AccountKey=***;x=y"


SHORT = ["x", "test", "s3cr3t!"]


@pytest.mark.parametrize("secret", SHORT)
@pytest.mark.parametrize(
    "text",
    [
        "/data/s3{0}: no run",
        "{0}mix.yaml",
        "{0}.yaml: no such file",
        "s3://{0}/out",
        "/a/{0}/b",
        "my-{0}",
        "{0}_1",
        "é{0}",
    ],
)
def test_a_short_secret_leaves_words_and_paths_as_they_are(
    secret: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    assert redact(text.format(secret)) == text.format(secret)


@pytest.mark.parametrize("secret", SHORT)
@pytest.mark.parametrize(
    "text", ["{0}", "{0} of acme", "signed with {0}.", "key: '{0}'", 'k="{0}",', "k={0};", "me:{0}@host", "<K>{0}</K>"]
)
def test_a_short_secret_that_stands_alone_is_not_shown(secret: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    assert redact(text.format(secret)) == text.format("***")


@pytest.mark.parametrize("text", ["a{0}b", "/data/{0}/a", "{0}{0}", "{0}.yaml"])
def test_a_longer_secret_is_not_shown_anywhere(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter22")
    assert "hunter22" not in redact(text.format("hunter22"))


def test_a_container_is_shown_where_a_user_is_not() -> None:
    text = "get abfss://box@acme.dfs.core.windows.net/a: gone"
    assert redact(text) == text
    assert redact_url(text) == text
    assert redact("abfss://box:hunter2@acme.dfs.core.windows.net/a") == "abfss://acme.dfs.core.windows.net/a"
    assert redact("abfss://hunter2@acme.dfs.example.org/a") == "abfss://acme.dfs.example.org/a"


def test_what_is_no_secret_stays() -> None:
    text = "get s3://bucket/a/b-00001.parquet: HTTP 503 SlowDown at http://127.0.0.1:9000/bucket/a@b, user@example.org"
    assert redact(text) == text
    for url in ("https://host:9000/a@b", "s3://bucket/a@b/c:d@e", "/a/b?c", "abc://x/y"):
        assert redact_url(url) == url
    assert redact_url("https://host:9000?x=a@b") == "https://host:9000"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("S3://Bucket/Key", ("s3", "Bucket/Key")),
        ("file:///a", ("file", "/a")),
        ("/a://b", ("file", "/a://b")),
        ("a/b", ("file", "a/b")),
        ("abfss://c@account/x", ("abfss", "c@account/x")),
        ("", ("file", "")),
    ],
)
def test_a_protocol_is_what_stands_before_the_first_colon_and_two_slashes(url: str, expected: tuple[str, str]) -> None:
    assert split_protocol(url) == expected
