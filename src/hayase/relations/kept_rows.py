"""Present rows of queries that are kept for the next statement, by the manifest that they belong to, in bounded memory.

The rows of a version never change, so what is kept is never stale; a newer version has another key.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

import pyarrow as pa

__all__ = ["KeptRows"]

_BYTES = 128 << 20
_TABLES = 64


class _Entry:
    """Rows that one thread computes while others that want the same wait for it."""

    __slots__ = ("lock", "rows")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rows: pa.Table | None = None


class KeptRows:
    """Tables of Arrow by what identifies them; those that were asked for least recently are dropped."""

    def __init__(self, most_bytes: int = _BYTES, most_tables: int = _TABLES):
        self._most_bytes, self._most_tables = most_bytes, most_tables
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._lock = threading.Lock()

    def rows(self, key: Hashable, compute: Callable[[], pa.Table]) -> pa.Table:
        """Return the rows of a key, computed once.

        >>> kept = KeptRows()
        >>> [kept.rows("a", lambda n=n: pa.table({"n": [n]}))["n"][0].as_py() for n in (1, 2)]
        [1, 1]
        """
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
        with entry.lock:
            if entry.rows is not None:
                return entry.rows
            rows = entry.rows = compute()
        self._trim()
        return rows

    def _trim(self) -> None:
        with self._lock:
            sizes = {key: entry.rows.nbytes for key, entry in self._entries.items() if entry.rows is not None}
            total = sum(sizes.values())
            while self._entries and (total > self._most_bytes or len(self._entries) > self._most_tables):
                key, _ = self._entries.popitem(last=False)
                total -= sizes.get(key, 0)
