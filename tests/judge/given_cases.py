"""Random cases for the judge: streams, and queries over them, some of which read other queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from given_queries import Made, Maker, Reading, View, spelled
from given_streams import Stream, streams
from hypothesis import strategies as st

__all__ = ["Case", "Query", "cases"]


@dataclass(frozen=True)
class Query:
    """A named query: its text and its SQL for SQLite; `kind` is its stream operator, if it has one."""

    name: str
    text: str
    made: Made
    readings: tuple[Reading, ...]
    kind: str | None = None

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        return self.made.columns


@dataclass(frozen=True)
class Case:
    """Streams and queries; a query reads streams and earlier queries."""

    streams: tuple[Stream, ...]
    queries: tuple[Query, ...]

    def unit(self, query: Query) -> str | None:
        """Return the unit of a query's times: that of all its sources, or None (timestamps) if they differ."""
        sources = [reading.source for reading in query.readings]
        units = {
            source.unit if isinstance(source, Stream) else self.unit(self.query(source.name)) for source in sources
        }
        return units.pop() if len(units) == 1 else None

    def query(self, name: str) -> Query:
        return next(query for query in self.queries if query.name == name)

    def _read(self, query: Query) -> Iterator[Reading]:
        for reading in query.readings:
            yield reading
            if isinstance(reading.source, View):
                yield from self._read(self.query(reading.source.name))

    def tables(self, query: Query) -> set[str]:
        """Return the tables that a query reads, directly or through other queries."""
        return {reading.table for reading in self._read(query)}

    def streams_of(self, query: Query) -> list[Stream]:
        """Return the streams that a query reads, directly or through other queries."""
        names = {reading.source.name for reading in self._read(query) if isinstance(reading.source, Stream)}
        return [stream for stream in self.streams if stream.name in names]

    def extent(self, query: Query) -> tuple[int, int]:
        """Return the first event time of all streams that a query reads, and the instant up to which it is final; (1, 0) if
        there are no events. The latter is the last event or, if it is later, the end of the last window with bounds, of the
        query itself or of those that read it."""
        times = [at for stream in self.streams_of(query) for at in stream.times]
        if not times:
            return 1, 0
        readers = [other for other in self.queries if query.name in self._queries_behind(other)]
        return min(times), max(
            self._ends(query) + [end for other in readers for end in self._ends(other, bounded=True)]
        )

    def _queries_behind(self, query: Query) -> set[str]:
        """Return the names of a query and of those that it reads."""
        return {query.name} | {each.source.name for each in self._read(query) if isinstance(each.source, View)}

    def _ends(self, query: Query, *, bounded: bool = False) -> list[int]:
        """Return the instants at which the windows of a query have seen their last event; if `bounded`, those of windows with
        bounds only, also of windows in the queries that it reads."""
        ends = [0]
        for reading in query.readings:
            source = reading.source
            if isinstance(source, Stream):
                last = max(source.times, default=0)
            else:
                last = max(self._ends(self.query(source.name)))
                ends += self._ends(self.query(source.name), bounded=True) if bounded else []
            ends += [reading.window.closes(last)] if last and (reading.window.bounds or not bounded) else []
        return ends


@st.composite
def cases(draw: st.DrawFn, *, most: int = 12, queries: int = 3, streaming: bool = False) -> Case:
    """Draw up to three streams, perhaps a relation of changes, and one to three queries.

    If `streaming`, the last query yields a stream, and so may others, which are then read through windows.
    """
    unit = draw(st.sampled_from([None, None, "ms", "us", "s"]))
    units = st.sampled_from([unit] * 7 + [None, "ms"])
    drawn_streams = [
        draw(streams(f"s{number}", unit=draw(units), most=most)) for number in range(draw(st.integers(1, 3)))
    ]
    if draw(st.integers(0, 3)) == 0:
        drawn_streams.append(draw(streams("rel", unit=draw(units), most=most, relation=True)))
    sources: list[Stream | View] = list(drawn_streams)
    drawn = []
    count = draw(st.integers(1, queries))
    for number in range(count):
        maker = Maker(draw, sources, f"q{number}_")
        query = maker.query(2)
        text = spelled(query.cql, draw(st.sampled_from(["lower", "upper", "title", "odd"])))
        kind = None
        comparable = "approx" not in dict(query.columns).values()  # nearly equal rows are not equal
        if streaming and comparable and (number == count - 1 or draw(st.booleans())):
            kind = draw(st.sampled_from(["istream", "dstream", "rstream"]))
            text = f"{kind}({text})"
        drawn.append(Query(f"q{number}", text, query, tuple(maker.readings), kind))
        sources.append(View(f"q{number}", query.columns, kind is not None))
    return Case(tuple(drawn_streams), tuple(drawn))
