"""The command `mixer`, on a disk that takes a fifth of a second for each shard."""

from __future__ import annotations

import time

from mixer.cli import main
from mixer.storage.local import LocalStore

create = LocalStore.create


def slow_create(self: LocalStore, name: str, data: bytes) -> bool:
    if name.startswith("data/"):
        time.sleep(0.2)
    return create(self, name, data)


if __name__ == "__main__":
    setattr(LocalStore, "create", slow_create)  # noqa: B010 -- a plain assignment is refused by the type checker
    main()
