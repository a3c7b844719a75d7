"""The logs of a definition's streams, opened once per process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import UnknownName
from hayase.core.stages import public_name
from hayase.engine.definition.definitions import Definition
from hayase.engine.home import Home
from hayase.streams import Index, StreamLog
from hayase.streams.dead_letters import SETTLED

__all__ = ["Logs", "declared_streams", "end_of", "first_of_build", "index_of", "logged", "settled_end"]

BUILD_STEP = 10**12
"""The log of a build begins at a multiple of this, behind all records that the log which it will replace has or gets meanwhile: no
offset is used twice."""


def declared_streams(definition: Definition) -> dict[str, StreamDeclaration]:
    """Return all streams of a definition by name: the declared ones and the outputs of stages."""
    stage_outputs = [record.output for record in (*definition.records, *definition.beside)]
    outputs = {output.name: output for output in stage_outputs if isinstance(output, StreamDeclaration)}
    return {stream.name: stream for stream in definition.declaration.streams} | outputs


@lru_cache(maxsize=1024)
def _log(home: Path, declaration: StreamDeclaration) -> StreamLog:
    return StreamLog(home, declaration)


def logged(home: Home, declaration: StreamDeclaration) -> StreamLog:
    """Return the log of a stream, read as it is declared; opened once per process, so that its listing is kept."""
    return _log(home.path, declaration)


class Logs(Mapping[str, StreamLog]):
    """Logs by stream name, read as the definition declares them."""

    def __init__(self, home: Home, definition: Definition):
        self._home = home
        self._declared = declared_streams(definition)

    def __getitem__(self, stream: str) -> StreamLog:
        if stream not in self._declared:
            raise UnknownName("stream", stream, self._declared)
        return _log(self._home.path, self._declared[stream])

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)

    def ends(self, streams: Iterable[str]) -> dict[str, int]:
        """Return the current ends of logs of declared streams; 0 for one that another lane has not created yet."""
        return {name: end_of(self[name]) for name in streams if name in self._declared}


def index_of(log: StreamLog) -> Index | None:
    """Return the index of a log; None if the lane that writes it has not created it yet, so that it counts as empty."""
    try:
        return log.index()
    except UnknownName:
        return None


def end_of(log: StreamLog) -> int:
    """Return the current end of a log; 0 if it has not been created yet."""
    index = index_of(log)
    return 0 if index is None else index.next


def first_of_build(home: Home, output: StreamDeclaration) -> int:
    """Return the offset at which the log of a build begins, by the declaration of its output."""
    end = end_of(_log(home.path, replace(output, name=public_name(output.name))))
    return (end // BUILD_STEP + 1) * BUILD_STEP


def settled_end(home: Home) -> int:
    """Return the current end of the stream of settled dead letters."""
    return end_of(_log(home.path, SETTLED))
