"""The pipeline: streams and stages declared in one place, living in one home directory.

>>> import tempfile
>>> p = Pipeline("shop", home=tempfile.mkdtemp())
>>> _ = p.stream("orders", schema="time timestamp, user string, amount double", time="time")
>>> _ = p.query("spend", "select user, sum(amount) as spend from orders group by user")
>>> _ = p.append("orders", [{"time": "2026-01-01T00:00:00Z", "user": "taro", "amount": 3.5},
...                         {"time": "2026-01-01T00:00:01Z", "user": "taro", "amount": 1.5}])
>>> p.finish("orders")
>>> _ = p.run_until_idle(spark=False)
>>> p.query("spend").at()
[{'user': 'taro', 'spend': 5.0}]
>>> [(row["spend"], f"{since:%S}", until and f"{until:%S}") for row, since, until in p.query("spend").intervals()]
[(3.5, '00', '01'), (5.0, '01', None)]

Tables take events in any order, late or repeated, and can be read as of a time:

>>> from hayase.tables import Counter, Register
>>> p = Pipeline("shop", home=tempfile.mkdtemp())
>>> _ = p.stream("events", schema="time timestamp, uuid string, user string, amount double", time="time", id="uuid")
>>> _ = p.table("purchases", key="user", total=Counter(), last=Register())
>>> p.rules(text='''
... source: events
... rules:
...   - tables: {purchases: {key: .user, columns: {total: .amount, last: .time}}}
... ''')
>>> _ = p.append("events", [{"time": "2026-01-01T00:00:02Z", "uuid": "b", "user": "taro", "amount": 1.5},
...                         {"time": "2026-01-01T00:00:01Z", "uuid": "a", "user": "taro", "amount": 3},
...                         {"time": "2026-01-01T00:00:02Z", "uuid": "b", "user": "taro", "amount": 1.5}])
>>> _ = p.run_until_idle(spark=False)
>>> p.table("purchases").get("taro")
{'total': 4.5, 'last': '2026-01-01T00:00:02Z'}
>>> p.table("purchases").get("taro", as_of="2026-01-01T00:00:01Z")
{'total': 3, 'last': '2026-01-01T00:00:01Z'}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar, Unpack, overload

from hayase.core.connector_data import declared_output, declared_source
from hayase.core.declarations import (
    DAY,
    AggregateDeclaration,
    JobDeclaration,
    PipelineDeclaration,
    QueryDeclaration,
    Retention,
    RulesDeclaration,
    StreamDeclaration,
    checked_name,
)
from hayase.core.endpoints import Endpoint
from hayase.core.errors import DeclarationError, HayaseError, UnknownName
from hayase.core.times import duration
from hayase.declared_pipeline import DeclaredPipeline
from hayase.engine.commit.manifests import Manifest
from hayase.engine.definition import check
from hayase.engine.definition.definitions import Definition, latest
from hayase.engine.results.query_results import Results
from hayase.engine.results.subscriptions import Subscription, added
from hayase.streams import StreamLog
from hayase.streams.appends import Accepted
from hayase.streams.home_format import check_home

if TYPE_CHECKING:
    from hayase.jobs.job_builder import Job
    from hayase.operations.operation_builder import Extent
    from hayase.tables.table_builder import Column
    from hayase.tables.table_results import TableResults

__all__ = ["Accepted", "Definition", "FunctionOptions", "Manifest", "OperationOptions", "Pipeline", "Results", "open"]

Duration = str | int | timedelta
_Declared = TypeVar("_Declared", bound="_Named")
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Subscriber = TypeVar("_Subscriber", bound=Callable[[list[dict[str, Any]]], object])


class _Named(Protocol):
    @property
    def name(self) -> str: ...


class OperationOptions(TypedDict, total=False):
    """The options of an operation, as keyword arguments of `Pipeline.operation`."""

    window: int | str | timedelta
    slide: int | str | timedelta | None
    key: str | Sequence[str] | None
    together: bool
    schema: str | None
    takes: str | None
    attempts: int
    pause: Duration
    time_limit: Duration
    memory_limit: str | int
    concurrency: int
    files: str | Sequence[str]


class FunctionOptions(TypedDict, total=False):
    """The options of a Python function in queries, as keyword arguments of `Pipeline.function`."""

    arguments: str | Sequence[str] | None
    returns: str | None
    takes: str | None
    nulls: str
    time_limit: Duration
    files: str | Sequence[str]


class Pipeline(DeclaredPipeline):
    """A pipeline: declare it, append records, run it, read its results.

    Declaring writes nothing; the first append or run creates the home. Declaring something again replaces it; once the
    pipeline has run, a stage whose state does not fit its new declaration must be reset. `buckets` is the number of parts that
    keys are spread over, about as many as there are task slots; the first run fixes it. `clock` returns the wall clock in
    microseconds; tests set it. As a context manager, a pipeline stops what `start` began.
    """

    @classmethod
    def from_file(
        cls, path: str | Path, home: str | Path | None = None, *, clock: Callable[[], int] | None = None
    ) -> Pipeline:
        """Read a pipeline file and check all of it; a DeclarationError lists every mistake.

        Functions of operations are called only when the pipeline is applied. `clock` is that of `Pipeline`.
        """
        from hayase.core.pipeline_file import read_pipeline

        file = read_pipeline(Path(path), partly=True)
        pipeline = cls(file.declaration.name, home if home is not None else file.home, clock=clock)
        pipeline.declaration = check.read_file(file, pipeline.home)
        _check_classes(pipeline.declaration)
        return pipeline

    @overload
    def stream(self, name: str) -> Results: ...
    @overload
    def stream(
        self,
        name: str,
        schema: str,
        time: str = "time",
        id: str | None = None,
        *,
        time_unit: str | None = None,
        slack: Duration = 0,
        max_ahead: Duration | None = DAY,
        idle_after: Duration | None = None,
        retention: Retention | None = None,
        changes: str | None = None,
        extra_fields: str = "refuse",
        dedupe: Duration | None = None,
        source: Endpoint | None = None,
    ) -> Results: ...
    def stream(
        self,
        name: str,
        schema: str | None = None,
        time: str = "time",
        id: str | None = None,
        *,
        time_unit: str | None = None,
        slack: Duration = 0,
        max_ahead: Duration | None = DAY,
        idle_after: Duration | None = None,
        retention: Retention | None = None,
        changes: str | None = None,
        extra_fields: str = "refuse",
        dedupe: Duration | None = None,
        source: Endpoint | None = None,
    ) -> Results:
        """Declare a stream, or return a declared one if no schema is given.

        `time` is the column of the event time and `id` the column that identifies a record. `time_unit` says what an integer
        time column counts: s, ms or us. A record may be behind the greatest event time before it by `slack`, and ahead of the
        wall clock by `max_ahead`. After `idle_after` without records, the clock of the stream follows the wall clock. `changes`
        declares a relation: the column in which `+` adds a row and `-` removes an equal one. A record with fields that the
        schema does not have is a dead letter; with `extra_fields` ignore they are dropped, with keep they go into the json
        column `extra`. With `dedupe`, a record whose id came before is left out as a repeat for this much event time, and older
        records are dead letters. A `source`, such as `hy.Kafka(...)`, is what its records come from while the pipeline runs.
        """
        if schema is None:
            return self.results(name)
        checked_name("stream", name)
        declared = StreamDeclaration(
            name, schema, time, id, time_unit,
            slack=duration(slack),
            max_ahead=None if max_ahead is None else duration(max_ahead),
            idle_after=None if idle_after is None else duration(idle_after),
            retention=retention or Retention(),
            changes=changes,
            extra_fields=extra_fields,
            dedupe=None if dedupe is None else duration(dedupe),
        )  # fmt: skip
        sources = tuple(other for other in self.declaration.sources if other.stream != name)
        if source is not None:
            sources = (*sources, declared_source(name, source.data, str(Path.cwd())))
        declaration = replace(self.declaration, streams=_with(self.declaration.streams, declared), sources=sources)
        check.check_connectors(declaration)
        _check_classes(declaration)
        self.declaration = declaration
        return Results(StreamLog(self.home.path, declared))

    @overload
    def query(self, name: str) -> Results: ...
    @overload
    def query(self, name: str, text: str) -> Results: ...
    def query(self, name: str, text: str | None = None) -> Results:
        """Declare a continuous query, or return the results of a declared one if no text is given.

        The results are a stream of the same name.
        """
        if text is None:
            return self.results(name)
        queries = _with(self.declaration.queries, QueryDeclaration(name, text))
        declaration = replace(self.declaration, queries=queries)
        stages = self._checked(declaration, name)
        self.declaration = declaration
        return Results(StreamLog(self.home.path, next(stage.stream for stage in stages if stage.name == name)))

    def output(self, name: str, reads: str, to: Endpoint) -> None:
        """Declare an output: the results of the query, stream, job or operation that it `reads` go `to` an endpoint, such as
        `hy.Kafka(...)`, while the pipeline runs."""
        declared = declared_output(name, {"reads": reads, "to": to.data}, str(Path.cwd()))
        declaration = replace(self.declaration, outputs=_with(self.declaration.outputs, declared))
        self._checked(declaration)
        _check_classes(declaration)
        self.declaration = declaration

    def aggregate(self, name: str, source: str, directory: str | Path | None = None) -> None:
        """Declare an aggregate of your own for queries: `source` is "module:attribute", built with `user_aggregate`.

        Every process of the pipeline imports the module: it is installed, or lies in `directory` (default: the working
        directory).
        """
        declared = AggregateDeclaration(name, source, str(Path(directory or ".").absolute()))
        declared.load()
        self.declaration = replace(self.declaration, aggregates=_with(self.declaration.aggregates, declared))

    @overload
    def function(
        self, function: None = None, *, name: str | None = None, **options: Unpack[FunctionOptions]
    ) -> Callable[[_Function], _Function]: ...
    @overload
    def function(
        self, function: None = None, *, name: str, sql: str, arguments: str | Sequence[str] | None = None
    ) -> None: ...
    @overload
    def function(self, function: str, *, name: str | None = None, **options: Unpack[FunctionOptions]) -> None: ...
    @overload
    def function(
        self, function: _Function, *, name: str | None = None, **options: Unpack[FunctionOptions]
    ) -> _Function: ...
    def function(
        self,
        function: Callable[..., Any] | str | None = None,
        *,
        name: str | None = None,
        sql: str | None = None,
        arguments: str | Sequence[str] | None = None,
        returns: str | None = None,
        takes: str | None = None,
        nulls: str = "skip",
        time_limit: Duration = "30 s",
        files: str | Sequence[str] = (),
    ) -> Any:
        """Declare a function of your own for expressions of queries: as a decorator, or as a call with a Python function, its
        name "module:function", or `sql`. Queries call it by `name`, by default that of the Python function.

        A Python function takes the values of one record or, if it `takes` "arrays", Arrow arrays with those of many. Its
        `arguments`, such as "title string, size bigint", and the type that it `returns` are those of its annotations, unless they
        are given. If an argument is NULL, so is the result, without a call; with `nulls` "pass" the function gets None. A record
        for which it raises, or takes more than `time_limit`, becomes a dead letter. It counts as pure: it may be called again, and
        must then return the same.

        An expression in `sql`, such as "x * 1.1", stands for the call; its `arguments` are names, by default in the order in
        which they first appear in it. Data `files` are as those of `operation`.
        """
        from hayase.core.function_data import declared_function
        from hayase.core.function_sources import source_of

        options = {
            "sql": sql, "arguments": arguments, "returns": returns, "takes": takes, "nulls": nulls, "time_limit": time_limit,
            "files": files,
        }  # fmt: skip
        data = {option: value for option, value in options.items() if value is not None}

        def declare(function: Any) -> Any:
            own = dict(data)
            directory: str | None = str(Path.cwd())
            if function is not None:
                source = None if isinstance(function, str) else source_of(function)
                own["function"] = source.name if source else function
                directory = source.directory if source else directory
            loaded = None if isinstance(function, str) else function
            called = name or str(own.get("function", "")).rpartition(":")[2]
            declared = declared_function(called, own, directory, loaded)
            functions = _with(self.declaration.functions, declared)
            check.check_functions(functions)
            self.declaration = replace(self.declaration, functions=functions)
            return None if isinstance(function, str) else function

        return declare if function is None and sql is None else declare(function)

    @overload
    def table(self, name: str) -> TableResults: ...
    @overload
    def table(
        self,
        name: str,
        key: str | Sequence[str],
        *,
        fold_after: Duration = DAY,
        horizon: Duration = 7 * DAY,
        columns: Mapping[str, Column] | None = None,
        **more_columns: Column,
    ) -> TableResults: ...
    def table(
        self,
        name: str,
        key: str | Sequence[str] | None = None,
        *,
        fold_after: Duration = DAY,
        horizon: Duration = 7 * DAY,
        columns: Mapping[str, Column] | None = None,
        **more_columns: Column,
    ) -> TableResults:
        """Declare a table, or return a declared one if only its name is given.

        Several names make a composite key. A column has a type, as in `total=hy.Counter()`; a column with the name of another
        argument, such as `key`, goes into `columns`. Updates older than `fold_after` are folded, and the table cannot be read as
        of an earlier time. A repeated event is recognised within the `horizon`; an older event is refused.
        """
        from hayase.engine.commit.manifests import check_table_read
        from hayase.engine.commit.table_writer import open_for_writing
        from hayase.tables.table_builder import declared_table
        from hayase.tables.table_results import TableResults

        if key is None and columns is None and not more_columns:
            declared = self.declaration.table(name)
        else:
            declared = declared_table(
                name, key, {**(columns or {}), **more_columns}, duration(fold_after), duration(horizon)
            )
            self.declaration = replace(self.declaration, tables=_with(self.declaration.tables, declared))
        return TableResults(
            self.home.table(name), declared, open_for_writing, lambda table: check_table_read(self.home, table)
        )

    def rules(self, path: str | Path | None = None, *, text: str | None = None, name: str | None = None) -> None:
        """Add rules that define which updates an event causes in tables, from a YAML file or as text. They are checked at once.

        Messages call the rules of a file by this path, and those of a text by their `name`, else `rules 1`, `rules 2` and so on.
        Rules of the same file or name replace the earlier ones; a text without a name that was added before changes nothing.
        """
        if (path is None) == (text is None):
            raise DeclarationError(
                "rules are given as a file or as a text", 'write p.rules("rules.yaml") or p.rules(text=...)'
            )
        known = {rules.name: rules.text for rules in self.declaration.rules}
        if path is not None:
            name, text = name or str(path), _rules_text(Path(path))
        elif name is None:
            if text in known.values():
                return
            name = next(free for number in count(1) if (free := f"rules {number}") not in known)
        assert text is not None
        declaration = replace(self.declaration, rules=_with(self.declaration.rules, RulesDeclaration(name, text)))
        self._checked(declaration)
        self.declaration = declaration

    def job(
        self, name: str, reads: str | Sequence[str], every: Duration = "1 second", *, rounds: int | None = None
    ) -> Job:
        """Declare a job. Its steps are added to the returned object, by decorators or by calls. The tuples of the last step are
        a stream of the job's name. With its first step, it replaces a job that was declared under this name before.

        The job fires at multiples of `every` and takes all tuples that are there. Tuples leave a loop after `rounds` rounds.
        """
        from hayase.jobs.job_builder import Job

        def changed(declared: JobDeclaration) -> None:
            self.declaration = replace(self.declaration, jobs=_with(self.declaration.jobs, declared))

        return Job(name, reads, every, rounds=rounds, directory=str(Path.cwd()), changed=changed)

    @overload
    def operation(
        self,
        function: None = None,
        *,
        reads: str | Sequence[str],
        writes: str | None = None,
        **options: Unpack[OperationOptions],
    ) -> Callable[[_Function], _Function]: ...
    @overload
    def operation(
        self,
        function: str,
        *,
        reads: str | Sequence[str],
        writes: str | None = None,
        **options: Unpack[OperationOptions],
    ) -> None: ...
    @overload
    def operation(
        self,
        function: _Function,
        *,
        reads: str | Sequence[str],
        writes: str | None = None,
        **options: Unpack[OperationOptions],
    ) -> _Function: ...
    def operation(
        self,
        function: Callable[..., Any] | str | None = None,
        *,
        reads: str | Sequence[str],
        writes: str | None = None,
        window: Extent = 1,
        slide: Extent | None = None,
        key: str | Sequence[str] | None = None,
        together: bool = False,
        schema: str | None = None,
        takes: str | None = None,
        attempts: int = 3,
        pause: Duration = "50 ms",
        time_limit: Duration = "30 s",
        memory_limit: str | int = "1 GiB",
        concurrency: int = 16,
        files: str | Sequence[str] = (),
    ) -> Any:
        """Declare an operation: as a decorator, or as a call with a function or its name, "module:function". What the function
        returns for windows of records is a stream named `writes`, by default like the function.

        `reads` are names of streams, or patterns such as "q*". A `window` is a number of records or a duration, and one starts
        every `slide`. Each stream has its own windows, unless they are processed `together`; with a `key`, each of its values has
        its own. Without a `schema`, the columns of the results are those of a trial on the newest records. A window that fails
        or exceeds its limits is tried `attempts` times; then its records become dead letters. Data `files` beside the module,
        paths or patterns such as "models/*.json", are shipped with it: the function finds them relative to its `__file__`.
        """
        # one keyword per option, more than elsewhere: the signature is the reference of the public call (`OperationOptions`)
        from hayase.operations.operation_builder import operation_of

        options = {
            "reads": reads, "window": window, "slide": slide, "key": key, "together": together, "schema": schema,
            "takes": takes, "attempts": attempts, "pause": pause, "time_limit": time_limit,
            "memory_limit": memory_limit, "concurrency": concurrency, "files": files,
        }  # fmt: skip

        def declare(function: Any) -> Any:
            operation = operation_of(function, writes, options, str(Path.cwd()))
            self.declaration = replace(self.declaration, operations=_with(self.declaration.operations, operation))
            return None if isinstance(function, str) else function

        return declare if function is None else declare(function)

    def governor(
        self,
        policy: str = "informed",
        *,
        seconds: Duration | float | None = None,
        window: Duration | float | None = None,
        threshold: float | None = None,
        **options: float,
    ) -> None:
        """Declare how work is divided: the policy and its options, such as `u`.

        A batch has `seconds` of work for each worker. Loads are measured over a `window` of seconds, and reported when they have
        changed by more than the share `threshold`.
        """
        from hayase.core.operation_data import declared_governor

        data = {"policy": policy, "seconds": seconds, "window": window, "threshold": threshold, **options}
        declaration = replace(self.declaration, governor=declared_governor(data))
        check.check_governor(declaration)
        self.declaration = declaration

    @overload
    def view(self, stream: str, function: None = None) -> Callable[[_Subscriber], _Subscriber]: ...
    @overload
    def view(self, stream: str, function: _Subscriber) -> _Subscriber: ...
    def view(self, stream: str, function: Callable[[list[dict[str, Any]]], object] | None = None) -> Any:
        """Subscribe a function to a stream, such as the results of an operation: as a decorator, or as a call.

        The function is called in this process with lists of records, as dicts, when they are committed: in the order of the
        log, each record at least once, also across restarts. Records for which it raises become dead letters.
        """

        def subscribe(function: Any) -> Any:
            self._views = added(self._views, Subscription(stream, function))
            return function

        return subscribe if function is None else subscribe(function)

    def remove(self, name: str) -> None:
        """Remove a stream, a query, an aggregate, a function, a table, a job, an operation, an output or rules from the
        declaration; a stream with its source."""
        old = self.declaration
        kinds = (
            "streams",
            "sources",
            "queries",
            "aggregates",
            "functions",
            "tables",
            "rules",
            "jobs",
            "operations",
            "outputs",
        )
        kept: dict[str, Any] = {kind: tuple(one for one in getattr(old, kind) if one.name != name) for kind in kinds}
        left = replace(old, **kept)
        if left == old:
            known = [declared.name for kind in kinds for declared in getattr(old, kind)]
            raise UnknownName("stream, query, aggregate, function, table, job, operation, output or rules", name, known)
        self.declaration = left


def open(home: str | Path, *, clock: Callable[[], int] | None = None) -> Pipeline:
    """Open the home of a pipeline as it was last declared, to read, append or run it; before the first declaration, it has the
    streams that exist there. `clock` is that of `Pipeline`."""
    place = Path(home).expanduser()
    check_home(place)
    if not (place / "streams").is_dir() and not (place / "definitions").is_dir():
        raise HayaseError(f'"{home}" is not the home of a pipeline; check the path, or declare one with hy.Pipeline')
    pipeline = Pipeline("pipeline", place, clock=clock)
    definition = latest(pipeline.home)
    if definition is not None:
        pipeline.declaration = definition.declaration
    else:
        names = sorted(path.parent.name for path in (place / "streams").glob("*/stream.json"))
        declared = (StreamLog.open(place, name).declaration for name in names if not name.startswith("_"))
        pipeline.declaration = PipelineDeclaration("pipeline", tuple(declared))
    return pipeline


def _with(declared: tuple[_Declared, ...], new: _Declared) -> tuple[_Declared, ...]:
    """Return the declarations with a new one, in the place of the one that has its name, if there is one."""
    names = [one.name for one in declared]
    if new.name not in names:
        return (*declared, new)
    place = names.index(new.name)
    return (*declared[:place], new, *declared[place + 1 :])


def _check_classes(declaration: PipelineDeclaration) -> None:
    """Check the sources and sinks that are classes of the user."""
    if declaration.sources or declaration.outputs:
        from hayase.connectors.kinds import check_classes

        check_classes(declaration)


def _rules_text(path: Path) -> str:
    try:
        from hayase.core.yaml_nodes import file_text

        return file_text(path, "rule", "check the name; rules begin with source: STREAM")
    except DeclarationError as error:
        raise DeclarationError(replace(mistake, file=str(path)) for mistake in error.mistakes) from error
