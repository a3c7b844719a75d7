"""A declared pipeline in its home: checked and applied, appended to, run and read. `hayase.pipeline` adds how it is declared."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from hayase.core.access import Access
from hayase.core.clock import now_us
from hayase.core.declarations import PipelineDeclaration, StreamDeclaration
from hayase.core.errors import DeclarationError, HayaseError, UnknownName
from hayase.core.stages import Stage, is_build
from hayase.engine.commit.ledger import progress
from hayase.engine.commit.manifests import Manifest
from hayase.engine.definition import builds, check, definitions, proposals
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
from hayase.streams.schema_evolution import stored_declaration

if TYPE_CHECKING:
    import pyarrow as pa

    from hayase.engine.dead_letters.edits import Edit
    from hayase.engine.dead_letters.letters import Letters
    from hayase.engine.dead_letters.settlement import Settlement
    from hayase.engine.local_run import RunningLanes
    from hayase.pipeline_run import BackgroundRun, Place, Progress

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
        self._run: BackgroundRun | None = None

    def check(self) -> None:
        """Raise a DeclarationError with every mistake, if there are any. Operations are tried on the newest records."""
        check.check(check.infer_operations(self.home, self.declaration))

    def _checked(self, declaration: PipelineDeclaration, wanted: str | None = None) -> tuple[Stage, ...]:
        """Return the stages of a declaration. Operations are tried if the `wanted` stage cannot be planned without that."""
        stages = check.check(check.with_known_schemas(self.home, declaration), pending=True)
        if wanted is None or any(stage.name == wanted for stage in stages):
            return stages
        return check.check(check.infer_operations(self.home, declaration))

    def apply(self, resets: Mapping[str, Start] | None = None, *, beside: bool = False) -> Definition:
        """Write the declaration to the home as its newest definition; a running pipeline uses it from the next batch on.

        With `beside`, queries that have changed so that they must begin anew are built beside the old ones, which answer until
        the new ones have caught up and replace them.
        """
        if beside:
            if resets:
                raise DeclarationError(
                    "a stage is either reset or built beside the old one", "leave out one of the two"
                )
            return builds.propose_beside(self.home, self.declaration)
        return proposals.propose(self.home, self.declaration, resets=resets)

    def cancel(self) -> Definition:
        """Give up what `apply(beside=True)` builds: the pipeline stays as it runs."""
        return builds.cancel_build(self.home)

    def rebucket(self, buckets: int) -> Definition:
        """Change the number of buckets of the home: all queries with state are built anew beside the old ones, which answer until
        the new ones have caught up."""
        return builds.rebucket(self.home, buckets)

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
        if self._is_being_built(name):  # the version that runs, whatever is declared here
            return Results(StreamLog.open(self.home.path, name))
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

    def _is_being_built(self, name: str) -> bool:
        newest = definitions.latest(self.home)
        built = newest is not None and any(is_build(record.name) and record.query == name for record in newest.records)
        return built and stored_declaration(self.home.path / "streams" / name) is not None

    def sql(self, text: str, parameters: Sequence[Any] = (), *, as_of: Time | None = None) -> pa.Table:
        """Return the answer to a SELECT over the queries, tables and streams of the home, all from one commit, as an Arrow table.

        A query stands for its present rows, NAME_history for its lifetimes. `$1` in the text is the first of the `parameters`.
        `as_of` is an event time, or "complete": the latest time at which all relations of the statement are final.
        """
        from hayase.relations import HomeReader

        with (
            HomeReader(self.home.path) as reader,
            reader.statement(text, parameters, as_of="latest" if as_of is None else as_of) as answer,
        ):
            return answer.table()

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
        """Process everything that is in the streams, then stop. With `spark=False` it runs in this process.

        What sources have now is read first; at the end, outputs get everything that is final.
        """
        with self.home.lock():
            self.apply()
            with self.transferring():
                if not spark:
                    with contextlib.closing(InProcess(self.home, self._clock)) as runner, self._viewing() as views:
                        while runner.step():
                            views.committed()
                        return runner.manifest
                from hayase.engine.spark.runner import run_until_idle

                with self._viewing():
                    return run_until_idle(self.home, master=master)

    @contextlib.contextmanager
    def transferring(self) -> Iterator[None]:
        """Read what sources have before the block; write to outputs what is final behind it."""
        declaration = self.declaration
        if not (declaration.sources or declaration.outputs):
            yield
            return
        from hayase.connectors.transfers import run_until_end

        run_until_end(self.home, declaration, declaration.sources, self._clock)
        yield
        run_until_end(self.home, declaration, declaration.outputs, self._clock)

    def run(
        self,
        *,
        spark: bool = True,
        serve: str | None = None,
        token: str | None = None,
        master: str | None = None,
        traces: str | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Manifest:
        """Process the streams as they grow, until `stop()` returns true or a signal arrives; the running batch is finished.

        `serve` is an address like 127.0.0.1:8421 at which tables, streams and queries are served over HTTP meanwhile. An address
        that other machines can reach needs a `token`, which every request must then send. `traces` is the address of an
        OpenTelemetry collector. With `spark=False` it runs in this process: the same home, the same results.
        """
        from hayase.pipeline_run import WATCH, Place

        with (
            self._lanes(Place(spark, master, serve, Access(token), traces)) as lanes,
            contextlib.suppress(KeyboardInterrupt),
        ):
            while stop is None or not stop():
                lanes.check()
                time.sleep(WATCH)
        return lanes.manifest

    def start(
        self,
        *,
        spark: bool = True,
        serve: str | None = None,
        token: str | None = None,
        master: str | None = None,
        traces: str | None = None,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> BackgroundRun:
        """Run the pipeline in the background until `stop()`, or until the program ends; arguments as those of `run`.

        A declaration that cannot run is an error at once, and so is Spark that does not start: this returns when it has started.
        `on_progress` is called with the progress after each commit, in the thread of the run. Starting a pipeline that runs in
        this process already returns its run.
        """
        from hayase.pipeline_run import BackgroundRun, Place

        if self._run is not None and self._run.state in ("starting", "running"):
            return self._run
        with self.home.lock():
            self.apply()
        place, session = Place(spark, master, serve, Access(token), traces), None
        if spark:  # here, since a JVM that another thread starts while this one runs may crash between fork and exec
            from hayase.engine.spark.runner import start_session

            session = start_session(self.home, master)
        self._run = BackgroundRun(self.home, lambda on_commit: self._lanes(place, on_commit, session), on_progress)
        return self._run

    def stop(self) -> None:
        """Stop the run that `start` began: its running batch is finished, and an error that ended it is raised."""
        if self._run is not None:
            self._run.stop()

    def wait_until_idle(self, timeout: float | None = None) -> Manifest:
        """Wait until the run that `start` began has processed all records that are in the streams; TimeoutError after `timeout`
        seconds."""
        if self._run is None:
            raise HayaseError("the pipeline does not run in this program; call p.start() first, or p.run_until_idle()")
        return self._run.wait_until_idle(timeout)

    def __repr__(self) -> str:
        declared, counts = self.declaration, []
        for kind in ("streams", "queries", "tables", "jobs", "operations", "outputs"):
            names = [each.name for each in getattr(declared, kind)]
            if names:
                counts.append(f"{kind} {', '.join(names)}")
        run = f"; {self._run.state}" if self._run is not None else ""
        return f"<pipeline {declared.name} in {self.home.path}: {'; '.join(counts) or 'nothing declared yet'}{run}>"

    def _repr_html_(self) -> str:
        """The graph of the pipeline, for notebooks; a declaration that does not fit together is told instead."""
        from hayase.engine.definition.graph_picture import graph_svg
        from hayase.engine.definition.pipeline_graph import declared_graph

        head = f"<p>{escape(repr(self)[1:-1])}</p>"
        try:
            declaration = check.with_known_schemas(self.home, self.declaration)
            graph = declared_graph(declaration, check.check(declaration, pending=True))
        except HayaseError as error:
            return f"<div>{head}<pre>{escape(str(error))}</pre></div>"
        return f"<div>{head}{graph_svg(graph, self.declaration.name)}</div>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except BaseException:
            if error is None:  # the first error is raised
                raise

    @contextlib.contextmanager
    def _lanes(
        self,
        place: Place,
        on_commit: Callable[[Manifest], None] = lambda manifest: None,
        session: Any = None,
    ) -> Iterator[RunningLanes]:
        """Apply the declaration and run it while the context is active."""
        from hayase.pipeline_run import running_lanes

        with self.home.lock():
            self.apply()
            with running_lanes(self.home, place, self._viewing(), self._clock, on_commit, session) as lanes:
                yield lanes

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
