"""The words of treaps: ordered trees of tuples in arrays, which the loops of several operators keep (`treaps_loops`).

A treap orders tuples by an order key (`order_keys`); its nodes are also in a list in that order. Inserting, removing and searching
cost the logarithm of the tree's size, on average.
"""

from __future__ import annotations

__all__ = ["FIRST", "HEAD", "LEFT", "NEXT", "NONE", "PARENT", "PREVIOUS", "RIGHT", "ROOT", "SHORT"]

NONE = -1
HEAD, LEFT, RIGHT, PARENT, PREVIOUS, NEXT = range(6)
"""The first words of a node: the first bytes of its key, its place in the treap and in the list; others may follow."""
ROOT, FIRST = range(2)
"""The first words of a tree; others may follow."""
SHORT = 8
"""The number of bytes in HEAD. A key that is not longer has no bytes elsewhere."""
