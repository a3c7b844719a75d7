"""Jobs: continuous MapReduce over groups of tuples (paper 5). A group is a stream that is consumed, or a table.

The function of a step emits tuples: plain (key, value) pairs, or dicts typed by a schema. `to` sends a tuple to a group by its
name.
"""

from hayase.jobs.emitted_tuples import Emitted, to

__all__ = ["Emitted", "to"]
