"""What the judge is asked about: some streams, and queries over them, some of which read others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from given_queries import Made, Maker, Reading, View, spelled
from given_streams import Stream, streams
from hypothesis import strategies as st

__all__ = ["Case", "Query", "cases"]


@dataclass(frozen=True)
class Query:
    """A named query, as text and as SQLite gets it; `kind` is how it becomes a stream, if it does."""

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
        """The unit of a query's times: that of what it reads, if all agree; else it has timestamps."""
        sources = [each.source for each in query.readings]
        found = {each.unit if isinstance(each, Stream) else self.unit(self.query(each.name)) for each in sources}
        return found.pop() if len(found) == 1 else None

    def query(self, name: str) -> Query:
        return next(each for each in self.queries if each.name == name)

    def _read(self, query: Query) -> Iterator[Reading]:
        for each in query.readings:
            yield each
            if isinstance(each.source, View):
                yield from self._read(self.query(each.source.name))

    def tables(self, query: Query) -> set[str]:
        """The tables that a query reads, also through others."""
        return {each.table for each in self._read(query)}

    def streams_of(self, query: Query) -> list[Stream]:
        """The streams that a query reads, also through others."""
        names = {each.source.name for each in self._read(query) if isinstance(each.source, Stream)}
        return [each for each in self.streams if each.name in names]

    def extent(self, query: Query) -> tuple[int, int]:
        """The first and last event of all that a query reads; the wrong way round if there is none."""
        times = [at for stream in self.streams_of(query) for at in stream.times]
        return min(times, default=1), max(times, default=0)


@st.composite
def cases(draw: st.DrawFn, *, most: int = 12, queries: int = 3, streaming: bool = False) -> Case:
    """Up to three streams, maybe a relation of changes, and one to three queries.

    If they are `streaming`, the last of them gives a stream, and others may, which are read through windows.
    """
    unit = draw(st.sampled_from([None, None, "ms", "us", "s"]))
    units = st.sampled_from([unit] * 7 + [None, "ms"])
    made = [draw(streams(f"s{number}", unit=draw(units), most=most)) for number in range(draw(st.integers(1, 3)))]
    if draw(st.integers(0, 3)) == 0:
        made.append(draw(streams("rel", unit=draw(units), most=most, relation=True)))
    sources: list[Stream | View] = list(made)
    found = []
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
        found.append(Query(f"q{number}", text, query, tuple(maker.readings), kind))
        sources.append(View(f"q{number}", query.columns, kind is not None))
    return Case(tuple(made), tuple(found))
