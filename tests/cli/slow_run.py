"""The command `mixer`, on a disk that takes a fifth of a second for each shard, and hangs at one if it is told to."""

from __future__ import annotations

import os
import sys
import time

from mixer.cli import main
from mixer.storage.local import LocalStore

STUCK_AT = "MIXER_TEST_STUCK_AT"
"""Names the object whose creation never ends."""

create = LocalStore.create


def slow_create(self: LocalStore, name: str, data: bytes) -> bool:
    if name.startswith("data/"):
        time.sleep(0.2)
    if name == os.environ.get(STUCK_AT):
        sys.stderr.write("stuck\n")
        sys.stderr.flush()
        time.sleep(600)
    return create(self, name, data)


if __name__ == "__main__":
    setattr(LocalStore, "create", slow_create)  # noqa: B010 -- a plain assignment is refused by the type checker
    main()
