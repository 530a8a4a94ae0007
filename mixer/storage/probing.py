"""The proof that a store can do what a run needs."""

from __future__ import annotations

import logging
import uuid

from mixer.errors import OutputError
from mixer.storage.base import Store

logger = logging.getLogger(__name__)


def probe_create_only(store: Store) -> None:
    """Make sure that `store` lets a name be created once only, by trying it; leaves nothing behind.

    A store that is merely racy cannot be told by this, as the two tries come one after the other.

    Raises:
        OutputError: The second create went through: two runs could overwrite each other's work.
    """
    nonce = uuid.uuid4().hex
    name = f".mixer/probe/{nonce}"
    first, second = f"first {nonce}".encode(), f"second {nonce}".encode()
    created = store.create(name, first)
    try:
        created_again = store.create(name, second)
        found = store.get(name)
    finally:
        store.delete(name)
    if created and not created_again and found == first:
        logger.debug("event=probe store=%s create_only=true", store.url)
        return
    raise OutputError(
        f"output {store.url}: expected the store to refuse a second create of {name}, found that it"
        f" {'accepted it' if created_again else 'does not keep what was created'}; without create-only writes (on S3:"
        " If-None-Match on PutObject) two runs at once would harm each other; choose a store that has them"
    )
