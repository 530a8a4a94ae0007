from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixer.core.commits import FORMAT, Slot, chain_hash, commit_from, decode_slot, encode_slot, sealed, unsealed
from mixer.core.fingerprint import canonical_json
from mixer.errors import CorruptionError

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
contents = st.dictionaries(st.text(max_size=5).filter(lambda key: key not in {"sha256", "format"}), values, max_size=4)


@given(contents)
def test_what_is_sealed_comes_out_as_it_was(content: dict[str, object]) -> None:
    assert unsealed(sealed(content), "here") == content


@given(contents, st.data())
def test_any_changed_bit_is_found(content: dict[str, object], data: st.DataObject) -> None:
    whole = bytearray(sealed(content))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptionError, match="here: "):
        unsealed(bytes(whole), "here")


@given(contents, st.data())
def test_what_is_cut_short_is_found(content: dict[str, object], data: st.DataObject) -> None:
    whole = sealed(content)
    with pytest.raises(CorruptionError, match="here: "):
        unsealed(whole[: data.draw(st.integers(0, len(whole) - 1))], "here")


@given(values)
def test_equal_values_have_one_spelling_in_plain_ascii(value: object) -> None:
    data = canonical_json(value)  # type: ignore[arg-type]  # drawn from what JSON can say
    assert data.isascii()
    assert canonical_json(json.loads(data)) == data


@pytest.mark.parametrize("value", [1.5, {"a": [float("nan")]}, {1: 2}, {"a": {2}}, b"x"])
def test_what_has_no_one_spelling_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        canonical_json(value)  # type: ignore[arg-type]  # that is the point


def test_another_spelling_of_the_same_content_is_found() -> None:
    with pytest.raises(CorruptionError, match="here: its content has sha256"):
        unsealed(sealed({"a": 1}).replace(b",", b", "), "here")


def test_a_newer_format_is_told_from_damage() -> None:
    with pytest.raises(CorruptionError, match=f"written in format {FORMAT + 1}.*upgrade mixer"):
        unsealed(sealed({"format": FORMAT + 1}), "here")


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"null", b"\xff", b"[" * 100_000])
def test_what_is_no_sealed_object_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="here: "):
        unsealed(data, "here")


def test_a_slot_lies_under_its_own_number_only() -> None:
    slot = Slot(7, "shard", {"owner": "x"}, {"prev": "0"})
    data = encode_slot(slot)
    assert decode_slot(data, 7, "here") == slot
    with pytest.raises(CorruptionError, match="expected slot 8, found slot 7"):
        decode_slot(data, 8, "here")


def test_a_kind_that_is_not_known_is_refused() -> None:
    with pytest.raises(CorruptionError, match="found kind 'party'"):
        decode_slot(encode_slot(Slot(0, "party", {}, {})), 0, "here")


def test_a_payload_that_is_no_commit_is_refused() -> None:
    with pytest.raises(CorruptionError, match="here: not a commit"):
        commit_from({"shard": 1}, "here")


def test_the_chain_head_depends_on_the_payload_alone() -> None:
    assert chain_hash({"a": 1, "b": 2}) == chain_hash({"b": 2, "a": 1})
    assert chain_hash({"a": 1}) != chain_hash({"a": 2})
