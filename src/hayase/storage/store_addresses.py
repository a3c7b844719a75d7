"""Where a store is: a path, or an address such as `s3://bucket/prefix`."""

from __future__ import annotations

from pathlib import Path

from hayase.storage.directory_store import DirectoryStore
from hayase.storage.object_store import ObjectStore
from hayase.storage.obstore_requests import ENDPOINTS, ObstoreRequests
from hayase.storage.verbs import Store

__all__ = ["divide_address", "is_address", "open_store"]


def is_address(path: str) -> bool:
    """Return whether a path is the address of an object store.

    >>> is_address("s3://bucket/shop"), is_address("./shop")
    (True, False)
    """
    return path.partition("://")[0] in ENDPOINTS and "://" in path


def divide_address(address: str) -> tuple[str, str]:
    """Return the bucket of an address, with its scheme, and the rest.

    >>> divide_address("s3://bucket/backups/shop/")
    ('s3://bucket', 'backups/shop')
    """
    scheme, _, rest = address.partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key.strip("/")


def open_store(place: str) -> Store:
    """Return the store at a path or an address; nothing is asked of it yet."""
    if is_address(place):
        return ObjectStore(ObstoreRequests(*divide_address(place)))
    return DirectoryStore(Path(place))
