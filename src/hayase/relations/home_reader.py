"""The reader of a home: statements and relations, each from one set of manifests.

*latest*: each relation at its own clock, streams with all their records, tables with all committed updates. *An event time T*:
every relation as of T; one whose clock is before T is an error. *complete*: the least clock of the relations in the statement.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.errors import HayaseError, OffsetGone
from hayase.core.times import BEGINNING, instant
from hayase.engine.home import Home
from hayase.engine.results.committed_results import MovedOn
from hayase.relations.bounds import NOTHING_SAID, Bounds, Value
from hayase.relations.kept_catalogues import KeptCatalogues
from hayase.relations.lookups import Lookup, answer_rows, looked_up, lookup_schema
from hayase.relations.relation import Relation
from hayase.relations.relation_catalogue import PUBLIC, Catalogue
from hayase.relations.statement import Asked, Statement, parse
from hayase.relations.statement_runs import Answer, Control, Limits, Scan, StatementRuns

__all__ = ["COMPLETE", "LATEST", "AsOf", "HomeReader"]

AsOf = datetime | str | int
"""`latest`, `complete`, or an event time: a datetime, ISO text, or an integer in the unit of the relation (microseconds for
timestamps)."""
LATEST, COMPLETE = "latest", "complete"
_T = TypeVar("_T")
_SCHEMAS = 1000
"""Texts of statements of which the columns of the answer are kept."""
_TRIES = 8
"""How often a statement is begun again because a stage was reset, or retention removed records, meanwhile."""


@dataclass(frozen=True, slots=True)
class _Scanned:
    """A relation of a statement, as of an instant."""

    relation: Relation
    as_of: int | None
    columns: tuple[str, ...]
    bounds: Bounds

    def scan(self) -> Scan:
        """Return what DuckDB scans."""
        schema = self.relation.schema
        return Scan(pa.schema([schema.field(name) for name in self.columns]), self.batches)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; none if nothing is final yet."""
        if self.as_of != BEGINNING:
            yield from self.relation.batches(self.as_of, self.columns, self.bounds)


class HomeReader:
    """Reads a home, whether its pipeline runs or not. Any number of threads may ask at once."""

    def __init__(self, home: str | Path, limits: Limits | None = None, functions: Sequence[str] = ()):
        """`functions` are further functions of SQL that statements may call, as CREATE MACRO takes them."""
        self.home = Home(Path(home).expanduser().absolute())
        self._catalogues = KeptCatalogues(self.home)
        self._runs = StatementRuns(limits or Limits(), functions)
        self._schemas: OrderedDict[Hashable, pa.Schema] = OrderedDict()

    def catalogue(self) -> Catalogue:
        """Return all relations at the newest set of manifests. What is asked of them stays at these versions."""
        return self._catalogues.newest().looked_at()

    def _for(self, statement: Statement) -> Catalogue:
        """Return the relations at the newest set of manifests, without tables that the statement does not name."""
        public = all(each.schema is None or each.schema.lower() == PUBLIC for each in statement.asked)
        names = frozenset(each.name.lower() for each in statement.asked)
        catalogue = self._catalogues.newest(names if public else None)
        if public and not all(catalogue.has(each.name, each.schema) for each in statement.asked):
            return self._catalogues.newest()  # which knows what else there is, for the message
        return catalogue

    def relation(self, name: str, *, as_of: AsOf = LATEST, schema: str | None = None) -> pa.Table:
        """Return all rows of a relation: the name of a query, a stream, a table, NAME_history or `dead_letters`."""

        def read(catalogue: Catalogue) -> pa.Table:
            found = catalogue.find(name, schema)
            scanned = _Scanned(found, _instants([(found, as_of)])[0], tuple(found.schema.names), NOTHING_SAID)
            return pa.Table.from_batches(list(scanned.batches()), schema=found.schema)

        return self._tried(read, None)

    def rows(self, relation: Relation, as_of: AsOf = LATEST, bounds: Bounds = NOTHING_SAID) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a relation of a `catalogue`, in its order, as they are read; MovedOn if they no longer can be."""
        [instant] = _instants([(relation, as_of)])
        return _Scanned(relation, instant, tuple(relation.schema.names), bounds).batches()

    def statement(
        self,
        sql: str,
        parameters: Sequence[Value | None] = (),
        *,
        as_of: AsOf = LATEST,
        at: Catalogue | None = None,
        seconds: float | None = None,
        control: Control | None = None,
    ) -> Answer:
        """Run a SELECT over the relations of the home and return its answer.

        `$1` in the text is the first of the parameters. `at` is an earlier `catalogue`, so that several statements see the same
        versions. `seconds` bounds the statement, 0 does not; `control` ends it from another thread.
        """
        read = parse(sql, parameters)

        def run(catalogue: Catalogue) -> Answer:
            scanned = _scanned(read, catalogue, as_of)
            answer = None if read.lookup is None else _looked_up(read.lookup, *scanned.values())
            if answer is not None:
                return answer
            scans = {name: each.scan() for name, each in scanned.items()}
            return self._runs.run(read.text, scans, parameters, seconds=seconds, control=control)

        return self._tried(run, at, lambda: self._for(read))

    def columns(self, sql: str, parameters: Sequence[Value | None] = (), *, at: Catalogue | None = None) -> pa.Schema:
        """Return the columns of the answer to a SELECT, without reading any rows."""
        read = parse(sql, parameters)
        catalogue = at if at is not None else self._for(read)
        found = [(each, catalogue.find(each.name, each.schema)) for each in read.asked]
        if read.lookup is not None and (schema := lookup_schema(read.lookup, found[0][1])) is not None:
            return schema
        versions = catalogue.versions
        definitions = (versions.definition.version, *(each.offset.definition for each in versions.manifests.values()))
        key = (sql, len(parameters), definitions) if all(isinstance(value, str) for value in parameters) else None
        schema = self._schemas.get(key) if key is not None else None
        if schema is None:
            scans = {each.registered: Scan(relation.schema, lambda: iter(())) for each, relation in found}
            text = read.text.rstrip().rstrip(";")
            with self._runs.run(f"FROM (\n{text}\n) LIMIT 0", scans, parameters) as answer:
                schema = answer.schema
            if key is not None:
                self._schemas[key] = schema
                while len(self._schemas) > _SCHEMAS:
                    self._schemas.popitem(last=False)
        return schema

    def _tried(
        self, read: Callable[[Catalogue], _T], at: Catalogue | None, newest: Callable[[], Catalogue] | None = None
    ) -> _T:
        """Return what `read` makes of a catalogue; with a newer one if the versions cannot be read any more."""
        for _ in range(_TRIES):
            try:
                return read(at if at is not None else newest() if newest is not None else self._catalogues.newest())
            except (MovedOn, OffsetGone):
                if at is not None:
                    raise
                self._catalogues.forget()
        raise HayaseError(f"what is in {self.home.path} changes too fast to be read; try again")

    def close(self) -> None:
        """Close the reader."""
        self._runs.close()
        self._catalogues.close()

    def __enter__(self) -> HomeReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _scanned(statement: Statement, catalogue: Catalogue, as_of: AsOf) -> dict[str, _Scanned]:
    found = [(each, catalogue.find(each.name, each.schema)) for each in statement.asked]
    times = _instants([(relation, as_of if each.as_of is None else each.as_of) for each, relation in found])
    return {
        each.registered: _Scanned(relation, time, _columns(each, relation), each.bounds)
        for (each, relation), time in zip(found, times, strict=True)
    }


def _looked_up(lookup: Lookup, scanned: _Scanned) -> Answer | None:
    """Return the answer to a lookup; None if DuckDB should give it."""
    schema = looked_up(lookup, scanned.relation, scanned.bounds)
    if schema is None:
        return None
    batches = list(answer_rows(scanned.batches(), scanned.bounds, schema))
    return Answer(schema, iter(batches), lambda: None)


def _columns(asked: Asked, relation: Relation) -> tuple[str, ...]:
    names = relation.schema.names
    if asked.columns is None:
        return tuple(names)
    wanted = tuple(name for name in names if name.lower() in asked.columns)
    return wanted or tuple(names[-1:])  # a count needs rows, not columns


def _instants(asked: Sequence[tuple[Relation, AsOf]]) -> list[int | None]:
    """Return the instant of each relation in microseconds: None for its latest, BEGINNING if nothing is final yet."""
    finals = [relation.final() for relation, as_of in asked if relation.has_clock and as_of == COMPLETE]
    complete = min((BEGINNING if final is None else final for final in finals), default=BEGINNING)
    return [_instant(relation, as_of, complete) for relation, as_of in asked]


def _instant(relation: Relation, as_of: AsOf, complete: int) -> int | None:
    if as_of == LATEST or relation.kind == "figures":
        return None
    if as_of == COMPLETE:
        return complete if relation.has_clock else None
    if isinstance(as_of, str) and as_of.strip().lstrip("+-").isdigit():
        as_of = int(as_of)
    if isinstance(as_of, int) and relation.scale is not None:
        return as_of * relation.scale
    return instant(as_of)
