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

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hayase.core.clock import now_us
from hayase.core.declarations import (
    DAY,
    AggregateDeclaration,
    JobDeclaration,
    PipelineDeclaration,
    QueryDeclaration,
    Retention,
    RulesDeclaration,
    StreamDeclaration,
)
from hayase.core.errors import DeclarationError, HayaseError, UnknownName
from hayase.core.pipeline_file import read_pipeline
from hayase.core.times import duration
from hayase.core.yaml_nodes import file_text
from hayase.engine import checking, definitions
from hayase.engine.definitions import Definition, Start
from hayase.engine.home import Home
from hayase.engine.inprocess import InProcess
from hayase.engine.ledger import Ledger, progress
from hayase.engine.manifests import Manifest
from hayase.engine.results import Results
from hayase.streams import StreamLog
from hayase.streams.appending import Accepted, append_conformed, append_source
from hayase.streams.dead import DEAD
from hayase.streams.formats import format_of
from hayase.streams.records import Records, conform

if TYPE_CHECKING:
    from hayase.jobs.declaring import Job
    from hayase.tables.declaring import Column
    from hayase.tables.results import TableResults

__all__ = ["Accepted", "Pipeline", "Results"]

Duration = str | int | timedelta


class Pipeline:
    """Declares, appends, runs and reads. Declaring writes nothing; the home is made by the first append or run.

    `buckets` is into how many parts keys are spread, about as many as there are task slots; it is fixed by the first run.
    `clock` gives the wall clock in microseconds; tests set it.
    """

    def __init__(
        self,
        name: str,
        home: str | Path | None = None,
        *,
        buckets: int | None = None,
        clock: Callable[[], int] | None = None,
    ):
        self.declaration = PipelineDeclaration(name, buckets=buckets)
        # absolute: Spark's processes have working directories of their own
        self.home = Home(Path(home if home is not None else name).expanduser().absolute())
        self._clock = clock or now_us

    @classmethod
    def from_file(cls, path: str | Path, home: str | Path | None = None) -> Pipeline:
        """The pipeline of a YAML file, checked whole: a DeclarationError lists every mistake."""
        file = read_pipeline(Path(path))
        checking.check_file(file)
        pipeline = cls(file.declaration.name, home if home is not None else file.home)
        pipeline.declaration = file.declaration
        return pipeline

    # -- declaring ----------------------------------------------------------------------------------------------------
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
    ) -> Results:
        """Declare a stream, or without a schema ask for one that is declared. `changes` names the column of a relation's
        changes that says `+` or `-`."""
        if schema is None:
            return self.results(name)
        declared = StreamDeclaration(
            name, schema, time, id, time_unit,
            slack=duration(slack),
            max_ahead=None if max_ahead is None else duration(max_ahead),
            idle_after=None if idle_after is None else duration(idle_after),
            retention=retention or Retention(),
            changes=changes,
        )  # fmt: skip
        self.declaration = replace(self.declaration, streams=(*self.declaration.streams, declared))
        return Results(StreamLog(self.home.path, declared))

    def query(self, name: str, text: str | None = None) -> Results:
        """Declare a continuous query, or without a text ask for the results of one. Its stream has the same name."""
        if text is None:
            return self.results(name)
        declaration = replace(self.declaration, queries=(*self.declaration.queries, QueryDeclaration(name, text)))
        stages = checking.check(declaration)
        self.declaration = declaration
        return Results(StreamLog(self.home.path, next(each.stream for each in stages if each.name == name)))

    def aggregate(self, name: str, source: str, directory: str | Path | None = None) -> None:
        """Give queries an aggregate of your own: `source` is "module:attribute", made with `user_aggregate`.

        All who run the pipeline import the module: it is installed, or lies in `directory` (by default the working one).
        """
        declared = AggregateDeclaration(name, source, str(Path(directory or ".").absolute()))
        declared.load()
        self.declaration = replace(self.declaration, aggregates=(*self.declaration.aggregates, declared))

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
        """Declare a table, or with its name alone ask for one that is declared.

        Several names make a composite key. A column has a type, like `total=hy.Counter()`; one whose name means something
        else here, like `key`, stands in `columns`. Updates older than `fold_after` are folded, which is as far back as the
        table can be read; a repeated event is recognised within the `horizon`, and an older one is refused.
        """
        from hayase.engine.owning import owning
        from hayase.tables.declaring import declared_table
        from hayase.tables.results import TableResults

        if key is None and columns is None and not more_columns:
            declared = self.declaration.table(name)
        else:
            declared = declared_table(
                name, key, {**(columns or {}), **more_columns}, duration(fold_after), duration(horizon)
            )
            self.declaration = replace(self.declaration, tables=(*self.declaration.tables, declared))
        return TableResults(self.home.table(name), declared, owning)

    def rules(self, path: str | Path | None = None, *, text: str | None = None) -> None:
        """Add rules that say what events do to tables, from a YAML file or as its text; they are checked at once.

        Rules of a file are called by the path that is given here, those of a text `rules 1`, `rules 2` and so on.
        """
        if (path is None) == (text is None):
            raise DeclarationError(
                "rules are given as a file or as a text", 'write p.rules("rules.yaml") or p.rules(text=...)'
            )
        known = [each.name for each in self.declaration.rules]
        if path is not None:
            name, text = str(path), _rules_text(Path(path))
        else:
            name = next(each for number in count(1) if (each := f"rules {number}") not in known)
        assert text is not None
        if name in known:
            raise DeclarationError(f'the rules "{name}" are declared twice', "each event would count twice; remove one")
        declaration = replace(self.declaration, rules=(*self.declaration.rules, RulesDeclaration(name, text)))
        checking.check(declaration)
        self.declaration = declaration

    def job(
        self, name: str, reads: str | Sequence[str], every: Duration = "1 second", *, rounds: int | None = None
    ) -> Job:
        """Declare a job: what is returned takes its steps, as decorators of functions or as calls. Its last tuples are a
        stream of its name.

        It fires at multiples of `every` and takes all that is there. With `rounds`, tuples leave a loop after so many.
        """
        from hayase.jobs.declaring import Job

        def changed(declared: JobDeclaration) -> None:
            others = tuple(each for each in self.declaration.jobs if each.name != name)
            self.declaration = replace(self.declaration, jobs=(*others, declared))

        if any(each.name == name for each in self.declaration.jobs):
            raise DeclarationError(f'the job "{name}" is declared twice', "name one of them differently")
        return Job(name, reads, every, rounds=rounds, directory=str(Path.cwd()), changed=changed)

    def remove(self, name: str) -> None:
        """Take a stream, a query, an aggregate, a table, a job or rules back out of the declaration."""
        old = self.declaration
        left = replace(
            old,
            streams=tuple(each for each in old.streams if each.name != name),
            queries=tuple(each for each in old.queries if each.name != name),
            aggregates=tuple(each for each in old.aggregates if each.name != name),
            tables=tuple(each for each in old.tables if each.name != name),
            rules=tuple(each for each in old.rules if each.name != name),
            jobs=tuple(each for each in old.jobs if each.name != name),
        )
        if left == old:
            others = [each.name for kind in (old.aggregates, old.tables, old.rules) for each in kind]
            raise UnknownName("stream, query, aggregate, table, job or rules", name, [*self._names(), *others])
        self.declaration = left

    def check(self) -> None:
        """Raise a DeclarationError with everything that is wrong."""
        checking.check(self.declaration)

    def apply(self, resets: Mapping[str, Start] | None = None) -> Definition:
        """Make the declaration the newest version in the home; a pipeline that runs takes it up at its next batch."""
        return definitions.propose(self.home, self.declaration, resets=resets)

    def reset(self, stage: str, start: Start = "earliest") -> Definition:
        """Let a stage begin anew, from the earliest record or from now: its state and its output go, and with it the
        stages that read its output."""
        if start not in ("earliest", "now"):
            raise DeclarationError(f'a stage cannot begin from "{start}"', 'say "earliest" or "now"')
        return self.apply({stage: start})

    # -- records in and out ---------------------------------------------------------------------------------------------
    def append(
        self,
        stream: str,
        records: Records | str | Path,
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Accepted:
        """Append records, durably: dicts, an Arrow table or batch, a pandas frame, or a file (CSV, NDJSON, Parquet).

        A record that does not fit goes to the dead letters with its reason, alone. With `producer` and a growing
        `sequence` an append can be repeated without effect; a file needs the producer only.
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
            accepted=sum(each.accepted for each in parts),
            refused=sum(each.refused for each in parts),
            first=parts[0].first,
            next=parts[-1].next,
            repeated=all(each.repeated for each in parts),
        )

    def finish(self, stream: str) -> None:
        """Say that no record will follow in a stream: what waits for later ones is completed up to its last event."""
        StreamLog.ensure(self.home.path, self.declaration.stream(stream)).finish()

    def results(self, name: str) -> Results:
        """The records of a stream, declared or made by a stage; `_dead` are the dead letters."""
        if name == DEAD.name:
            return Results(StreamLog.ensure(self.home.path, DEAD))
        for declared in self.declaration.streams:
            if declared.name == name:
                return Results(StreamLog.ensure(self.home.path, declared))
        for stage in checking.check(self.declaration):
            if stage.output.name == name and isinstance(stage.output, StreamDeclaration):
                return Results(StreamLog.ensure(self.home.path, stage.output))
        if any(each.name == name for each in self.declaration.tables):
            raise HayaseError(f'"{name}" is a table; ask for it by p.table("{name}")')
        raise UnknownName("stream or query", name, self._names())

    def dead_letters(self) -> list[dict[str, Any]]:
        """What the pipeline could not take, with the reasons."""
        return self.results(DEAD.name).rows()

    def _names(self) -> list[str]:
        declared = self.declaration
        return [each.name for kind in (declared.streams, declared.queries, declared.jobs) for each in kind]

    # -- running --------------------------------------------------------------------------------------------------------
    def progress(self) -> Manifest:
        """What was committed last: positions, clocks and figures of every stage."""
        return progress(self.home)

    def run_until_idle(self, *, spark: bool = True, master: str | None = None) -> Manifest:
        """Process everything that is in the streams, then stop. Without Spark it runs in this process, for tests."""
        with self.home.lock():
            self.apply()
            if not spark:
                with contextlib.closing(InProcess(self.home, self._clock)) as runner:
                    return runner.run_until_idle()
            from hayase.engine.running import run_until_idle

            return run_until_idle(self.home, master=master)

    def run(
        self,
        *,
        serve: str | None = None,
        token: str | None = None,
        master: str | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Manifest:
        """Process the streams as they grow, until `stop()` says so or a signal ends it; the running batch is finished.

        `serve` is an address like 127.0.0.1:8421 at which tables, streams and queries are answered over HTTP meanwhile.
        One that other machines can reach needs a `token`, and then every request does.
        """
        from hayase.engine.running import opened, run

        with self.home.lock():
            self.apply()
            with opened(self.home) as ledger, _served(ledger, serve, token) as on_commit:
                return run(self.home, ledger=ledger, master=master, stop=stop, on_commit=on_commit)


@contextlib.contextmanager
def _served(ledger: Ledger, address: str | None, token: str | None) -> Iterator[Callable[[Manifest], None] | None]:
    """What is committed, over HTTP; to be told of what is committed next."""
    if address is None:
        yield None
        return
    from hayase.serving import Status, serving

    status = Status("running", ledger.latest())
    with serving(ledger.home, address, tables=ledger.tables, status=status, token=token):
        yield status.committed
        status.set("stopping")


def _rules_text(path: Path) -> str:
    try:
        return file_text(path, "rule", "check the name; rules begin with source: STREAM")
    except DeclarationError as error:
        raise DeclarationError(replace(each, file=str(path)) for each in error.mistakes) from error
