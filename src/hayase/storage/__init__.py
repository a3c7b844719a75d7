"""Storage: a few verbs over named bytes, which a directory and an object store both have.

store = open_store("s3://bucket/shop")      # or a path
store.create("heads/main", data)            # only if there is none
store.replace("heads/main", new, version)   # only if it is unchanged
"""

from hayase.storage.directory_store import DirectoryStore
from hayase.storage.object_store import ObjectStore
from hayase.storage.store_addresses import is_address, open_store
from hayase.storage.verbs import Status, Store, Stored

__all__ = ["DirectoryStore", "ObjectStore", "Status", "Store", "Stored", "is_address", "open_store"]
