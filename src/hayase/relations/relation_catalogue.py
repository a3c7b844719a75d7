"""The relations of a home by name: what a statement may ask for.

In the schema `public`: queries, each with a second relation NAME_history, streams, tables, and `dead_letters`. In the schema
`hayase`: figures of the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import UnknownName
from hayase.core.stages import is_build
from hayase.core.times import BEGINNING
from hayase.engine.home import Home
from hayase.engine.logs import index_of, logged
from hayase.engine.results.committed_results import CommittedResults, committed_index
from hayase.relations import pipeline_figures
from hayase.relations.kept_rows import KeptRows
from hayase.relations.relation import Lifetimes, PresentRows, Records, Relation
from hayase.relations.table_rows import TableRows
from hayase.relations.versions import Versions
from hayase.streams import Index, StreamLog
from hayase.streams.dead_letters import DEAD

__all__ = ["LETTERS", "OWN", "PUBLIC", "Catalogue", "Relations", "catalogue_of"]

PUBLIC, OWN = "public", "hayase"
"""The schema of what the pipeline declares, and that of its figures."""
LETTERS = "dead_letters"


Key = tuple[str, str]
"""Schema and name of a relation, in lower case."""
Build = Callable[["Relations"], Relation]
"""Builds a relation; it gets those of the same catalogue."""


class Relations(Mapping[Key, Relation]):
    """Relations by schema and name, each built when it is first asked for. Those in `moving`, which others append to, belong to one
    statement; the others are the same for all statements at a set of manifests."""

    def __init__(self, builds: Mapping[Key, Build], moving: frozenset[Key], built: dict[Key, Relation] | None = None):
        self._builds, self._moving = builds, moving
        self._built: dict[Key, Relation] = {} if built is None else built
        self._looked: dict[Key, Relation] = {}

    def __getitem__(self, key: Key) -> Relation:
        kept = self._looked if key in self._moving else self._built
        if key not in kept:
            kept.setdefault(key, self._builds[key](self))
        return kept[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._builds)

    def __len__(self) -> int:
        return len(self._builds)

    def __contains__(self, key: object) -> bool:
        return key in self._builds

    def anew(self) -> Relations:
        """Return the same relations for another statement."""
        return Relations(self._builds, self._moving, self._built)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The relations at one set of manifests, by schema and name in lower case."""

    versions: Versions
    relations: Mapping[Key, Relation]

    def find(self, name: str, schema: str | None = None) -> Relation:
        """Return a relation by its name in any case; UnknownName if there is none."""
        key = self._key(name, schema)
        if key is None:
            named = schema.lower() if schema else PUBLIC
            known = [self.relations[each].name for each in self.relations if each[0] == named]
            raise UnknownName("relation", name, known or [f"{of}.{each}" for of, each in self.relations])
        return self.relations[key]

    def has(self, name: str, schema: str | None = None) -> bool:
        """Return whether there is a relation of this name, in any case."""
        return self._key(name, schema) is not None

    def _key(self, name: str, schema: str | None) -> Key | None:
        schemas = (schema.lower(),) if schema else (PUBLIC, "pg_catalog")
        return next(((of, name.lower()) for of in schemas if (of, name.lower()) in self.relations), None)

    def anew(self) -> Catalogue:
        """Return the catalogue for another statement: streams that others append to are looked at again."""
        return Catalogue(self.versions, self.relations.anew()) if isinstance(self.relations, Relations) else self

    def looked_at(self) -> Catalogue:
        """Return this catalogue after a look at all streams, so that none of them changes from now on."""
        list(self.relations.values())
        return self


def catalogue_of(versions: Versions, kept: KeptRows) -> Catalogue:
    """Return all relations at a set of manifests; tables only if they were opened with it. Present rows of queries are kept."""
    home, definition = versions.home, versions.definition
    builds: dict[Key, Build] = {}
    moving: set[Key] = set()

    def add(name: str, build: Build, schema: str = PUBLIC) -> None:
        builds.setdefault((schema, name.lower()), build)

    for stream in definition.declaration.streams:
        add(stream.name, partial(_declared, home.path, stream))
        moving.add((PUBLIC, stream.name.lower()))
    outputs = {
        name: record for name, record in versions.stages.items() if not name.startswith("_") and not is_build(name)
    }
    for name, record in outputs.items():
        if isinstance(record.output, StreamDeclaration):
            add(name, partial(_output, versions, name, kept))
        elif name in versions.tables:
            add(name, partial(_rows, versions, name))
    for name, record in outputs.items():  # behind all others, whose names come first
        if isinstance(record.output, StreamDeclaration) and record.output.lifetimes:
            add(f"{name}_history", partial(_history, versions, name, kept))
    for schema in (PUBLIC, OWN):
        if (schema, LETTERS) not in builds:
            moving.add((schema, LETTERS))
        add(LETTERS, partial(_letters, home.path), schema)
    described = tuple(builds)
    for name in pipeline_figures.NAMES:
        add(name, partial(_figures, versions, name, described), OWN)
        moving.add((OWN, name))
    return Catalogue(versions, Relations(builds, frozenset(moving)))


def _rows(versions: Versions, name: str, _: Relations) -> Relation:
    return TableRows(versions.tables[name], versions.clock(name))


def _output(versions: Versions, name: str, kept: KeptRows, _: Relations) -> Relation:
    """Return the output of a stage that gives a stream, as its manifest left it."""
    record, manifest = versions.stages[name], versions.manifest_of(name)
    assert isinstance(record.output, StreamDeclaration)
    log = logged(versions.home, record.output)
    index = committed_index(log, record, manifest)
    results = CommittedResults(log, index)
    if not record.output.lifetimes:
        return Records(log, index, results.final_us())
    version = (name, record.lane, manifest.version, manifest.offset.definition, manifest.committed_at, index.next)
    return PresentRows(results, kept, version)


def _history(versions: Versions, name: str, kept: KeptRows, others: Relations) -> Relation:
    present = _output(versions, name, kept, others)
    assert isinstance(present, PresentRows)
    return Lifetimes(present)


def _figures(versions: Versions, name: str, described: tuple[Key, ...], others: Relations) -> Relation:
    return pipeline_figures.relation(name, versions, lambda: {key: others[key] for key in described})


def _letters(home: Path, _: Relations) -> Relation:
    log = logged(Home(home), DEAD)
    return Records(log, _present(log), None, "letters", LETTERS)


def _declared(home: Path, stream: StreamDeclaration, _: Relations) -> Records:
    log = logged(Home(home), stream)
    index = _present(log)
    return Records(log, index, CommittedResults(log, index).final_us())


def _present(log: StreamLog) -> Index:
    """Return the index of a log that others append to, an empty one if it does not exist yet."""
    return (index_of(log) if log.path.exists() else None) or Index((), 0, 0, BEGINNING, BEGINNING)
