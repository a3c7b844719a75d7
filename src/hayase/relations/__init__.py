"""One reader over a home: every query, table and stream, dead letters and figures as relations, all from one set of manifests.

A home is read while its pipeline runs or not, without locks and without Spark. `HomeReader.statement` asks any SELECT of them.
"""

from hayase.relations.home_reader import HomeReader
from hayase.relations.statement_runs import Answer, Limits

__all__ = ["Answer", "HomeReader", "Limits"]
