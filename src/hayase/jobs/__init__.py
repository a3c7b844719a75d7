"""Jobs: continuous MapReduce over groups of tuples. A buffer group is a stream, a stored group is a table.

A step's function emits tuples, plain (key, value) or typed by a schema; `to` sends one to a group by its name.
"""

from hayase.jobs.emitted_tuples import Emitted, to

__all__ = ["Emitted", "to"]
