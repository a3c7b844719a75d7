"""The relations of a home by name: what a statement may ask for.

In the schema `public`: queries, each with a second relation NAME_history, streams, tables, and `dead_letters`. In the schema
`hayase`: figures of the pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import UnknownName
from hayase.core.times import BEGINNING
from hayase.engine.logs import index_of
from hayase.engine.results.committed_results import CommittedResults, committed_index
from hayase.relations import pipeline_figures
from hayase.relations.relation import Lifetimes, PresentRows, Records, Relation
from hayase.relations.table_rows import TableRows
from hayase.relations.versions import Versions
from hayase.streams import Index, StreamLog
from hayase.streams.dead_letters import DEAD

__all__ = ["LETTERS", "OWN", "PUBLIC", "Catalogue", "catalogue_of"]

PUBLIC, OWN = "public", "hayase"
"""The schema of what the pipeline declares, and that of its figures."""
LETTERS = "dead_letters"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The relations at one set of manifests, by schema and name in lower case."""

    versions: Versions
    relations: Mapping[tuple[str, str], Relation]

    def find(self, name: str, schema: str | None = None) -> Relation:
        """Return a relation by its name in any case; UnknownName if there is none."""
        schemas = (schema.lower(),) if schema else (PUBLIC, "pg_catalog")
        found = next((self.relations[of, name.lower()] for of in schemas if (of, name.lower()) in self.relations), None)
        if found is None:
            named = schema.lower() if schema else PUBLIC
            known = [each.name for (of, _), each in self.relations.items() if of == named]
            raise UnknownName("relation", name, known or [f"{of}.{each}" for of, each in self.relations])
        return found


def catalogue_of(versions: Versions) -> Catalogue:
    """Return all relations at a set of manifests; tables only if they were opened with it."""
    home, definition = versions.home, versions.definition
    found: dict[tuple[str, str], Relation] = {}

    def add(relation: Relation, schema: str = PUBLIC) -> None:
        found.setdefault((schema, relation.name.lower()), relation)

    for stream in definition.declaration.streams:
        add(_declared(StreamLog(home.path, stream)))
    histories = []
    for name, record in versions.stages.items():
        if name.startswith("_"):
            continue
        if not isinstance(record.output, StreamDeclaration):
            if name in versions.tables:
                add(TableRows(versions.tables[name], versions.clock(name)))
            continue
        log = StreamLog(home.path, record.output)
        index = committed_index(log, record, versions.manifest_of(name))
        results = CommittedResults(log, index)
        if record.output.lifetimes:
            present = PresentRows(results)
            add(present)
            histories.append(Lifetimes(present))
        else:
            add(Records(log, index, results.final_us()))
    for history in histories:  # behind all others, whose names come first
        add(history)
    dead = StreamLog(home.path, DEAD)
    letters = Records(dead, _present(dead), None, "letters", LETTERS)
    add(letters)
    add(letters, OWN)
    for figures in pipeline_figures.relations(versions, dict(found)):
        add(figures, OWN)
    return Catalogue(versions, found)


def _declared(log: StreamLog) -> Records:
    index = _present(log)
    return Records(log, index, CommittedResults(log, index).final_us())


def _present(log: StreamLog) -> Index:
    """Return the index of a log that others append to, an empty one if it does not exist yet."""
    return (index_of(log) if log.path.exists() else None) or Index((), 0, 0, BEGINNING, BEGINNING)
