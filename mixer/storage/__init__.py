"""The seam to disks and object stores: the only part of mixer that imports fsspec."""

from mixer.storage.base import ObjectInfo, Store
from mixer.storage.local import LocalStore
from mixer.storage.opening import open_store
from mixer.storage.probing import RISK, CheckThenPutStore, fit_to_write, probe_create_only

__all__ = [
    "RISK",
    "CheckThenPutStore",
    "LocalStore",
    "ObjectInfo",
    "Store",
    "fit_to_write",
    "open_store",
    "probe_create_only",
]
