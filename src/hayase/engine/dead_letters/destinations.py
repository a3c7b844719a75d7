"""Where dead letters can be replayed to: the stage that refused them, if it still exists, or their stream; or why not."""

from __future__ import annotations

import pyarrow as pa

from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import HayaseError, SchemaMismatch
from hayase.engine.dead_letters.letters import Letters
from hayase.engine.definition.definitions import Definition, latest, stages_of
from hayase.engine.logs import declared_streams
from hayase.streams import StreamLog
from hayase.streams.dead_letters import APPEND, VIEW
from hayase.streams.schema_evolution import reconcile, stored_declaration
from hayase.tables.bulk_load import LOAD

__all__ = ["Destinations", "is_append"]

_PURE = ("hayase.cql.", "hayase.core.", "hayase.tables.")
"""Packages whose map sides are pure functions of the record, so that they can be called here."""


def is_append(stage: str, placed: bool) -> bool:
    """Whether the record was refused by an append and so is not in its stream; `placed` says whether it has an offset there."""
    return stage == APPEND and not placed


class Destinations:
    """The stages and streams of the newest definition, as destinations of letters."""

    def __init__(self, letters: Letters):
        self._home = letters.home
        self._definition: Definition | None = latest(letters.home)
        declared = {} if self._definition is None else declared_streams(self._definition)
        own = () if letters.declaration is None else letters.declaration.streams
        self._streams = declared | {stream.name: stream for stream in own}
        self._known: dict[tuple[str, str, bool], str | None] = {}

    def stream(self, name: str) -> StreamDeclaration:
        """Return the current declaration of a stream for which there is no `obstacle`."""
        declaration = self._declared(name)
        assert declaration is not None  # the caller has checked `obstacle`
        return declaration

    def _declared(self, name: str) -> StreamDeclaration | None:
        """Return the current declaration of a stream; in a home without a definition, the one on disk; None if there is none."""
        if name in self._streams or self._definition is not None:
            return self._streams.get(name)
        stored = stored_declaration(self._home.path / "streams" / name)
        return None if stored is None else stored.declaration

    def version(self, stage: str) -> str | None:
        """Return the current version (fingerprint) of a stage; None if it is not in the newest definition."""
        records = self._definition.records if self._definition is not None else ()
        return next((record.fingerprint for record in records if record.name == stage), None)

    def obstacle(self, stage: str, stream: str, placed: bool) -> str | None:
        """Return why letters of a stage and a stream cannot be replayed, and what to do instead; None if they can."""
        place = (stage, stream, placed)
        if place not in self._known:
            self._known[place] = self._of_append(stream) if is_append(stage, placed) else self._of_stage(*place)
        return self._known[place]

    def _of_append(self, stream: str) -> str | None:
        declared = self._declared(stream)
        if declared is None:
            return f'stream "{stream}" is not declared any more; declare it again, or drop the letter'
        log = StreamLog(self._home.path, declared)
        if is_finished(log):
            return f'stream "{stream}" is finished and takes no more records; drop the letter'
        stored = stored_declaration(log.path)
        try:
            if stored is not None:
                reconcile(stored.declaration, declared)
        except SchemaMismatch as error:
            return str(error)
        return None

    def _of_stage(self, stage: str, stream: str, placed: bool) -> str | None:
        if stage == LOAD and not placed:
            return f'it is a row for table "{stream}"; load it with `hayase groups load {stream}`, then drop the letter'
        if stage.startswith(VIEW):
            return f"it was refused by {stage}, a function of yours; call that with the record, then drop the letter"
        records = self._definition.records if self._definition is not None else ()
        inputs = next((record.inputs for record in records if record.name == stage), None)
        if inputs is None:
            return f'stage "{stage}" is not in the newest definition; add it with `hayase apply`, or drop the letter'
        if not placed and self._slides(stage):
            return (
                f'it is a window of operation "{stage}" that slides, so its records are in other windows too, and it cannot be '
                f"replayed alone. Mend the function (`hayase ops update {stage} --from-file FILE.py`); then let it begin anew with "
                f"`hayase reset {stage} --from earliest`, which does all windows again, or do without this window and drop "
                "the letter"
            )
        if not placed:
            return (
                f'it came up inside stage "{stage}" and is not a record of a stream; drop the letter, or let the stage begin '
                f"anew with `hayase reset {stage} --from earliest`"
            )
        if stream not in inputs:
            return f'stage "{stage}" does not read "{stream}" any more; let it, with `hayase apply`, or drop the letter'
        begin_anew = f"let the stage begin anew with `hayase reset {stage} --from earliest`, or drop the letter"
        assert self._definition is not None
        if [side.stream for side in stages_of(self._definition)[stage].inputs].count(stream) > 1:
            return f'stage "{stage}" reads "{stream}" more than once, and only one of the readings refused it; {begin_anew}'
        output = self._streams.get(stage)
        if output is not None and is_finished(StreamLog(self._home.path, output)):
            return f'stage "{stage}" has come to its end, as all that it reads is finished; {begin_anew}'
        return None

    def _slides(self, stage: str) -> bool:
        """Whether a stage is an operation with overlapping windows."""
        operations = self._definition.declaration.operations if self._definition is not None else ()
        operation = next((candidate for candidate in operations if candidate.name == stage), None)
        return operation is not None and operation.slide is not None and operation.slide < operation.window

    def refused_again(self, stage: str, stream: str, rows: pa.Table) -> dict[int, str]:
        """Return the records that the stage's map side refuses again, by position, with the reasons. Only map sides without state
        and without user code are tried; the kernel may refuse more."""
        assert self._definition is not None
        side = next(candidate for candidate in stages_of(self._definition)[stage].inputs if candidate.stream == stream)
        batches = rows.combine_chunks().to_batches()
        if side.numbered or not type(side.map_side).__module__.startswith(_PURE) or not batches:
            return {}
        try:
            refused = side.map_side(batches[0]).refused
        except HayaseError:  # such as a table that cannot be read now
            return {}
        return {row: reason.text for row, reason in zip(refused.rows.tolist(), refused.reasons)}


def is_finished(log: StreamLog) -> bool:
    """Whether a stream is finished and accepts no more records."""
    return log.path.is_dir() and log.index().finished
