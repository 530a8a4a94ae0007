"""The command `mixer`, with parts of a few lines, on a disk that takes a fifth of a second for each."""

from __future__ import annotations

import time

from mixer.cli import main
from mixer.storage.local import LocalStore
from tests.preparing import small_parts

put = LocalStore.put


def slow_put(self: LocalStore, name: str, data: bytes) -> None:
    if "/data/part-" in name:
        time.sleep(0.2)
    put(self, name, data)


if __name__ == "__main__":
    setattr(LocalStore, "put", slow_put)  # noqa: B010 -- a plain assignment is refused by the type checker
    with small_parts():
        main()
