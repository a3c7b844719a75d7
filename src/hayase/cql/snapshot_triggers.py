"""Snapshot triggers: the windows of a query, and of the queries it reads, at whose changes Rstream emits a snapshot.

The records of a view are those of the stream behind it, before its WHERE. Only a slide by rows refers to the view itself,
because its window counts the records that pass the view's filter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration
from hayase.cql.distribution import leaves, source_of
from hayase.cql.logical import Node, Source
from hayase.cql.outputs import Times
from hayase.lifetimes import plans

__all__ = ["Trigger", "Triggers"]


@dataclass(frozen=True, slots=True)
class Trigger:
    """A window over the records of a stream. For a window by rows, only the slide matters."""

    stream: StreamDeclaration
    window: plans.Window


class Triggers:
    """The triggers of the queries planned so far."""

    def __init__(self) -> None:
        self._triggers: dict[str, tuple[Trigger, ...]] = {}
        self._behind: dict[str, StreamDeclaration] = {}

    def of(self, query: str) -> Sequence[Trigger]:
        """Return the triggers of a query and of those that it reads."""
        return self._triggers[query]

    def add(self, name: str, root: Node, *, is_view: bool) -> None:
        """Add a query. The readers of a view read the stream behind it."""
        sources = [source_of(leaf) for leaf in leaves(root)]
        grain = Times.of(source.declaration for source in sources).scale
        triggers = [trigger for source in sources for trigger in self._triggers_of(source, grain)]
        self._triggers[name] = tuple({repr(trigger): trigger for trigger in triggers}.values())
        if is_view:
            stream = sources[0].declaration
            self._behind[name] = self._behind.get(stream.name, stream)

    def _triggers_of(self, source: Source, grain: int) -> Iterator[Trigger]:
        stream, window = source.declaration, source.window
        yield from self._triggers.get(stream.name, ())
        if stream.lifetimes:
            return
        behind = self._behind.get(stream.name, stream)
        if window.kind == "range":
            lengths = [length for length, _ in window.several] or [window.length or grain]
            yield from (Trigger(behind, plans.Range(length, window.slide, grain, window.offset)) for length in lengths)
        elif window.kind == "rows" and (window.slide or 1) > 1:
            slide = window.slide or 1
            keys = window.partition
            yield Trigger(stream, plans.Partition(keys, 1, slide) if keys else plans.Rows(1, 0, slide))
        else:
            yield Trigger(behind, plans.Unbounded())
