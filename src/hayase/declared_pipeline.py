"""A declared pipeline in its home: checked and applied, appended to, run and read. `hayase.pipeline` adds how it is declared."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hayase.core.clock import now_us
from hayase.core.declarations import PipelineDeclaration, StreamDeclaration
from hayase.core.errors import DeclarationError, HayaseError, UnknownName
from hayase.core.stages import Stage
from hayase.engine.commit.ledger import Ledger, progress
from hayase.engine.commit.manifests import Manifest
from hayase.engine.definition import check, definitions, proposals
from hayase.engine.definition.definitions import Definition, Start
from hayase.engine.home import Home
from hayase.engine.local import InProcess
from hayase.engine.results.query_results import Results, Time
from hayase.engine.results.subscriptions import Subscription, Subscriptions
from hayase.streams import StreamLog
from hayase.streams.appends import Accepted, append_conformed, append_source
from hayase.streams.dead_letters import DEAD
from hayase.streams.file_formats import format_of
from hayase.streams.records import Records, conform

if TYPE_CHECKING:
    from hayase.engine.condition import Condition
    from hayase.engine.dead_letters.edits import Edit
    from hayase.engine.dead_letters.letters import Letters
    from hayase.engine.dead_letters.settlement import Settlement
    from hayase.serving import Status

__all__ = ["DeclaredPipeline"]


class DeclaredPipeline:
    """What `hayase.Pipeline` does with a declaration, whichever way it was made."""

    def __init__(
        self,
        name: str,
        home: str | Path | None = None,
        *,
        buckets: int | None = None,
        clock: Callable[[], int] | None = None,
    ):
        self.declaration = PipelineDeclaration(name, buckets=buckets)
        # an absolute path, because Spark's processes have other working directories
        self.home = Home(Path(home if home is not None else name).expanduser().absolute())
        self._clock = clock or now_us
        self._views: tuple[Subscription, ...] = ()

    def check(self) -> None:
        """Raise a DeclarationError with every mistake, if there are any. Operations are tried on the newest records."""
        check.check(check.infer_operations(self.home, self.declaration))

    def _checked(self, declaration: PipelineDeclaration, wanted: str | None = None) -> tuple[Stage, ...]:
        """Return the stages of a declaration. Operations are tried if the `wanted` stage cannot be planned without that."""
        stages = check.check(check.with_known_schemas(self.home, declaration), pending=True)
        if wanted is None or any(stage.name == wanted for stage in stages):
            return stages
        return check.check(check.infer_operations(self.home, declaration))

    def apply(self, resets: Mapping[str, Start] | None = None) -> Definition:
        """Write the declaration to the home as its newest definition; a running pipeline uses it from the next batch on."""
        return proposals.propose(self.home, self.declaration, resets=resets)

    def reset(self, stage: str | Sequence[str], start: Start = "earliest") -> Definition:
        """Reset a stage, or several at once: they start again from the earliest record, or from now.

        Their state and their output are removed, and the stages that read their output are reset too.
        """
        _check_start(start)
        return self.apply(dict.fromkeys([stage] if isinstance(stage, str) else stage, start))

    def reset_all(self, start: Start = "earliest") -> Definition:
        """Reset all stages. This also repairs a home whose newest manifest or definition is lost."""
        _check_start(start)
        return proposals.propose(self.home, self.declaration, everything=start)

    # -- records in and out ---------------------------------------------------------------------------------------------
    def append(
        self,
        stream: str,
        records: Records | str | Path,
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Accepted:
        """Append records: dicts, an Arrow table or batch, a pandas frame, or a file (CSV, NDJSON, Parquet). They are durable when
        this returns.

        A record that does not fit the schema becomes a dead letter; the others are appended. With a `producer` and a growing
        `sequence`, repeating an append has no effect; a file needs the producer only.
        """
        declaration = self.declaration.stream(stream)
        if isinstance(records, (str, Path)):
            return self._append_file(declaration, Path(records), producer, sequence)
        now = self._clock()
        conformed = conform(records, declaration, now)
        return append_conformed(self.home.path, declaration, conformed, now, producer, sequence)

    def _append_file(
        self, declaration: StreamDeclaration, path: Path, producer: str | None, sequence: int | None
    ) -> Accepted:
        if sequence is not None:
            raise HayaseError("the parts of a file are counted by themselves; give the producer without a sequence")
        if not path.is_file():
            raise HayaseError(f'there is no file "{path}"; check the name')
        source = append_source(self.home.path, declaration, path, format_of(path.name), self._clock, producer)
        parts = [part for _, part in source]
        if not parts:
            end = StreamLog.ensure(self.home.path, declaration).index().next
            return Accepted(0, 0, end, end)
        return Accepted(
            accepted=sum(part.accepted for part in parts),
            refused=sum(part.refused for part in parts),
            first=parts[0].first,
            next=parts[-1].next,
            repeated=all(part.repeated for part in parts),
        )

    def finish(self, stream: str) -> None:
        """Finish a stream: no record follows. Results that wait for later records are completed up to its last event."""
        StreamLog.ensure(self.home.path, self.declaration.stream(stream)).finish()

    def results(self, name: str) -> Results:
        """Return the records of a stream, declared or written by a stage; `_dead` is the stream of dead letters."""
        if name == DEAD.name:
            return Results(StreamLog.ensure(self.home.path, DEAD))
        for declared in self.declaration.streams:
            if declared.name == name:
                return Results(StreamLog.ensure(self.home.path, declared))
        if any(operation.name == name for operation in self.declaration.operations):
            return Results(StreamLog.ensure(self.home.path, self._operation_stream(name)))
        for stage in self._checked(self.declaration, name if name in self._names() else None):
            if stage.output.name == name and isinstance(stage.output, StreamDeclaration):
                return Results(StreamLog.ensure(self.home.path, stage.output))
        if any(table.name == name for table in self.declaration.tables):
            raise HayaseError(f'"{name}" is a table; ask for it by p.table("{name}")')
        newest = definitions.latest(self.home)
        operations = () if newest is None else newest.declaration.operations
        if any(operation.name == name for operation in operations):  # added by a command or over HTTP
            return Results(StreamLog.ensure(self.home.path, self._operation_stream(name)))
        if newest is not None and name in newest.added:
            output = newest.record(name).output
            assert isinstance(output, StreamDeclaration)
            return Results(StreamLog.ensure(self.home.path, output))
        raise UnknownName("stream or query", name, self._names())

    def _operation_stream(self, name: str) -> StreamDeclaration:
        """The output stream of an operation: that of the newest definition, in which a command may have changed it, else that of
        the declaration."""
        newest = definitions.latest(self.home)
        for record in newest.records if newest is not None else ():
            if record.name == name and isinstance(record.output, StreamDeclaration):
                return record.output
        return next(stage.stream for stage in self._checked(self.declaration, name) if stage.name == name)

    def dead_letters(self, *, kind: str | None = None) -> list[dict[str, Any]]:
        """Return the dead letters: records that could not be processed, with the reasons; all, or those of one kind of reason.

        The kinds are `unreadable`, `schema`, `ahead`, `late`, `too_old`, `expression`, `overflow`, `change`, `rule`, `function`,
        `result`, `timeout`, `memory`, `crash`, `gone`, `lost` and `unknown` (docs/dead-letters.md).
        """
        from hayase.engine.dead_letters.letters import Filter

        lots = self._letters().matching(Filter(kind=kind), settled=True)
        return sorted((letter for lot in lots for letter in lot.rows.to_pylist()), key=itemgetter("time"))

    def replay(
        self,
        *letters: int,
        edit: Edit | None = None,
        late: bool = False,
        limit: int | None = None,
        stage: str | None = None,
        stream: str | None = None,
        kind: str | None = None,
        reason: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        version: str | None = None,
        offsets: tuple[int, int] | None = None,
        first: int = 0,
    ) -> Settlement:
        """Give open dead letters once more to the stages that refused them, and only to these; oldest first, at most `limit`.

        `letters` are numbers of letters. The other arguments select the letters that match all of them: the `stage` that
        refused the record and its `stream`, the `kind` of reason, a part of the `reason`, the time of the refusal (from `since`,
        before `until`), the start of the stage's `version`, the first and last of the `offsets` of the record, the `first` letter
        number. `edit` is a function that returns the record to replay instead. Late records stay open unless `late` is true.
        """
        # one keyword per filter, as in `hayase dead` and over HTTP: the signature is the reference of the public call
        from hayase.engine.dead_letters.letters import Filter

        wanted = Filter.of(
            *letters, since=since, until=until, stage=stage, stream=stream, kind=kind, reason=reason, version=version,
            offsets=offsets, first=first,
        )  # fmt: skip
        return self._letters().replay(wanted, edit, late=late, limit=limit)

    def drop_letters(
        self,
        *letters: int,
        stage: str | None = None,
        stream: str | None = None,
        kind: str | None = None,
        reason: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        version: str | None = None,
        offsets: tuple[int, int] | None = None,
        first: int = 0,
    ) -> Settlement:
        """Settle open dead letters without replaying them. They are selected as in `replay`."""
        from hayase.engine.dead_letters.letters import Filter

        wanted = Filter.of(
            *letters, since=since, until=until, stage=stage, stream=stream, kind=kind, reason=reason, version=version,
            offsets=offsets, first=first,
        )  # fmt: skip
        return self._letters().drop(wanted)

    def _letters(self) -> Letters:
        from hayase.engine.dead_letters.letters import Letters

        return Letters(self.home, self.declaration, self._clock)

    def _names(self) -> list[str]:
        declared = self.declaration
        kinds = (declared.streams, declared.queries, declared.jobs, declared.operations)
        return [declaration.name for kind in kinds for declaration in kind]

    # -- running --------------------------------------------------------------------------------------------------------
    def progress(self) -> Manifest:
        """Return the newest manifest: the positions, clocks and figures of every stage after the last commit."""
        return progress(self.home)

    def run_until_idle(self, *, spark: bool = True, master: str | None = None) -> Manifest:
        """Process everything that is in the streams, then stop. With `spark=False` it runs in this process, for tests."""
        with self.home.lock():
            self.apply()
            if not spark:
                with contextlib.closing(InProcess(self.home, self._clock)) as runner, self._viewing() as views:
                    while runner.step():
                        views.committed()
                    return runner.manifest
            from hayase.engine.spark.runner import run_until_idle

            with self._viewing():
                return run_until_idle(self.home, master=master)

    def run(
        self,
        *,
        serve: str | None = None,
        token: str | None = None,
        master: str | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Manifest:
        """Process the streams as they grow, until `stop()` returns true or a signal arrives; the running batch is finished.

        `serve` is an address like 127.0.0.1:8421 at which tables, streams and queries are served over HTTP meanwhile. An address
        that other machines can reach needs a `token`, which every request must then send.
        """
        from hayase.engine.spark.runner import open_ledger, run

        with self.home.lock():
            self.apply()
            with open_ledger(self.home) as ledger, self._viewing() as views, _served(ledger, serve, token) as status:

                def on_commit(manifest: Manifest) -> None:
                    views.committed()
                    if status is not None:
                        status.committed(manifest)

                def on_condition(condition: Condition) -> None:
                    if status is not None:
                        status.set_condition(condition)

                return run(
                    self.home, ledger=ledger, master=master, stop=stop, on_commit=on_commit, on_condition=on_condition
                )

    def _viewing(self) -> Subscriptions:
        """The subscriptions, as a context manager in which they are called."""
        known = self._names() if self._views else []
        for view in self._views:
            if view.stream not in known:
                self.results(view.stream)  # a stream that a job names itself; raises UnknownName if there is none
        return Subscriptions(self.home, self._views, self._clock)


def _check_start(start: str) -> None:
    if start not in ("earliest", "now"):
        raise DeclarationError(f'a stage cannot begin from "{start}"', 'say "earliest" or "now"')


@contextlib.contextmanager
def _served(ledger: Ledger, address: str | None, token: str | None) -> Iterator[Status | None]:
    """Serve the home over HTTP; yield the status to update after commits and changes of condition, None without an address."""
    if address is None:
        yield None
        return
    from hayase.serving import Status, serving

    status = Status("starting", ledger.latest())
    with serving(ledger.home, address, tables=ledger.tables, status=status, token=token):
        yield status
