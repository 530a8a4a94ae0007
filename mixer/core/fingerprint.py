"""Canonical JSON and its sha256: equal values give equal bytes, in any process, on any machine.

Keys are sorted, there is no space, text is ASCII, and the only number is the integer: a float has no one
spelling, so it is refused rather than written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

JSON: TypeAlias = "None | bool | int | str | Sequence[JSON] | Mapping[str, JSON]"
"""What canonical JSON can say."""


def canonical_json(value: JSON) -> bytes:
    r"""Return the one spelling of `value`.

    Raises:
        TypeError: Somewhere in `value` stands something else than a mapping with text keys, a list, a text, an
            integer, a truth value or None.

    >>> canonical_json({"b": [1, True, None], "a": "ü"})
    b'{"a":"\\u00fc","b":[1,true,null]}'
    """
    _check(value, "$")
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def _check(value: object, where: str) -> None:
    if value is None or isinstance(value, (bool, int, str)):
        return
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where}: expected a text as key, found {key!r}")
            _check(inner, f"{where}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            _check(inner, f"{where}[{index}]")
    else:
        raise TypeError(f"{where}: canonical JSON has no {type(value).__name__}, found {value!r}")


def sha256_hex(data: bytes) -> str:
    """Return the sha256 of `data` as 64 hexadecimal digits.

    >>> sha256_hex(b"")[:16]
    'e3b0c44298fc1c14'
    """
    return hashlib.sha256(data).hexdigest()


def fingerprint(value: JSON) -> str:
    """Return the sha256 of the canonical JSON of `value`.

    >>> fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    True
    """
    return sha256_hex(canonical_json(value))
