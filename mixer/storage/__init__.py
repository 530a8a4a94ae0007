"""The seam to disks and object stores: the only part of mixer that imports fsspec."""

from mixer.storage.base import ObjectInfo, Store

__all__ = ["ObjectInfo", "Store"]
