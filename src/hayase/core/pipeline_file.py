"""Reads pipeline files (YAML); `pipeline_text` writes them. All mistakes in a file are found in one pass.

    pipeline: shop
    home: ./shop                           # relative to the file; default: beside it, named like the pipeline
    streams:
      events: {schema: "time timestamp, uuid string, user_id string, amount double", time: time, id: uuid, slack: 10 seconds}
      visits: {schema: "time timestamp, page string", time: time, from: {kafka: {brokers: "localhost:9092", topic: visits}}}
    queries:
      large: select time, user_id, amount from events where amount > 100
      totals: {cql: select user_id, count(*) as orders from events group by user_id}
    aggregates:
      spread: statistics_of_ours:spread    # module:attribute; modules lie beside the file or are installed
    functions:
      slug: texts_of_ours:slug             # a Python function
      vat: {sql: x * 1.1}
    tables:
      purchases: {key: user_id, columns: {total: Counter, last_purchase_time: Register}}
    jobs:
      traffic:
        reads: logs
        steps:
          - {map: access:parse, schema: "status int, size bigint", key: status, batches: true}
          - {reduce: {hits: count(*), bytes: sum(size)}}
    operations:
      scores: {reads: orders, function: "shop:score", window: 10, key: user_id}
    outputs:
      alerts: {reads: large, to: {kafka: {brokers: "localhost:9092", topic: alerts}}}
    governor: {policy: als, u: 0.5}
    rules: rules.yaml                      # a file, the rules themselves (`hayase.tables.rule_text`), or a list of these

`declaration_fields` has all fields. Values are read as the text in the file, so a stream may be named `on` or `no`. A mistake
carries the file, the line and the column; `PipelineFile.at` adds them to a mistake that the planner finds in a query or a table.
Rules are kept as text. Rules inside the file are preceded by as many line ends and spaces as they are in the file, so that a
position in their text is a position in the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml

from hayase.core.connector_data import declared_output, declared_source
from hayase.core.connector_fields import STREAM_SOURCE
from hayase.core.data_classes import dataclass
from hayase.core.declaration_fields import FUNCTION, OPERATION, RETENTION, STREAM, TABLE, FieldTable
from hayase.core.declarations import (
    AggregateDeclaration,
    FunctionDeclaration,
    GovernorDeclaration,
    JobDeclaration,
    OperationDeclaration,
    OutputDeclaration,
    PipelineDeclaration,
    QueryDeclaration,
    Retention,
    RulesDeclaration,
    SourceDeclaration,
    StreamDeclaration,
    TableDeclaration,
    checked_buckets,
    checked_name,
    clashes,
)
from hayase.core.errors import DeclarationError, HayaseError, Mistake, suggestion
from hayase.core.field_kinds import Kind
from hayase.core.function_data import declared_function
from hayase.core.job_data import declared_job
from hayase.core.operation_data import declared_governor, declared_operation
from hayase.core.pipeline_text import pipeline_text
from hayase.core.schemas import arrow_schema
from hayase.core.times import duration_text
from hayase.core.yaml_nodes import (
    NodeReading,
    Place,
    Written,
    compose,
    file_text,
    is_null,
    key_text,
    kind_of,
    place_of,
    text_of,
)

__all__ = ["PipelineFile", "Place", "pipeline_text", "read_pipeline"]

_EXAMPLE = 'begin with "pipeline: NAME", or let "hayase init DIR" write a first one'
_BREAKS = "\r\n\x85\u2028\u2029"
_LINE = re.compile(f"[^{_BREAKS}]+(?=[{_BREAKS}])")
"""A line of YAML that has an end. `_BREAKS` are the characters that end a line."""


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """The declaration in a pipeline file, with positions in the file.

    `places` has the start of the text of each ("query", name) and ("schema", stream); of the sql of each ("function", name), or
    of its name; of each ("stream", name), ("table", name), ("job", name), ("operation", name) and ("output", name); of the type of
    each
    ("column", "table.column"); of the value of each
    ("operation", "operation.field") and ("governor", ".field"); of each step ("job", "job.steps.0"); and of the name or the start
    of the ("rules", name).

    `mistakes` is empty unless the file was read with `partly`. `unread` has the names of streams, tables and stages with such
    mistakes; `declaration` does not have them, or not with all the fields in the file.
    """

    declaration: PipelineDeclaration
    home: Path
    path: Path
    places: Mapping[tuple[str, str], Place]
    texts: Mapping[tuple[str, str], Written] = field(default_factory=dict, repr=False, compare=False)
    mistakes: tuple[Mistake, ...] = ()
    unread: frozenset[str] = frozenset()

    def at(self, kind: str, name: str, mistake: Mistake) -> Mistake:
        """Return the mistake with its position in this file. Its own line and column, if any, count within the text of `name`.

        A mistake that already names a file, such as one in a rule file, is returned unchanged.
        """
        if mistake.file is not None:
            return mistake
        place = self.places.get((kind, name))
        if mistake.subject:
            place = self.places.get((kind, f"{name}.{mistake.subject}"), place)
        written = self.texts.get((kind, name))
        if written is not None and mistake.line is not None:
            place = written.place(mistake.line, mistake.column or 1)
        line, column = (place.line, place.column) if place else (None, None)
        return replace(mistake, file=str(self.path), line=line, column=column)


def read_pipeline(path: Path, *, partly: bool = False) -> PipelineFile:
    """Read the pipeline declared in a file; a `DeclarationError` carries every mistake in it, in the order of the file.

    If `partly` is true, mistakes inside streams, queries, tables, jobs, operations and rules are returned with everything that
    could be read, so that `hayase.engine.definition.check` can report them together with the mistakes found in planning.
    """
    file = str(path)
    try:
        source = file_text(path, "pipeline", 'write one, or let "hayase init DIR" do it')
        root = compose(source)
    except DeclarationError as error:
        raise DeclarationError(replace(mistake, file=file) for mistake in error.mistakes) from error
    reading = _Reading(source, path)
    if root is None or is_null(root):
        reading.mistakes.append(Mistake("the file is empty", _EXAMPLE, line=1))
        result = None
    else:
        result = reading.pipeline(root)
    ordered = sorted(reading.mistakes, key=lambda mistake: (mistake.line or 0, mistake.column or 0))
    mistakes = tuple(replace(mistake, file=mistake.file or file) for mistake in ordered)
    if result is None or (mistakes and not partly):
        raise DeclarationError(mistakes)
    declaration, home = result
    unread = frozenset(reading.unread)
    return PipelineFile(declaration, path.parent / home, path, reading.places, reading.texts, mistakes, unread)


class _Reading(NodeReading):
    """One pass over the nodes of a file. It collects mistakes and positions, and continues after a mistake."""

    def __init__(self, source: str, path: Path):
        super().__init__(source)
        self.path, self.directory = path, str(path.parent.absolute())
        self.places: dict[tuple[str, str], Place] = {}
        self.texts: dict[tuple[str, str], Written] = {}
        self.named: list[tuple[str, yaml.Node]] = []
        self.unread: set[str] = set()
        self.sources: list[SourceDeclaration] = []
        self.unread_tables = False
        self.unread_aggregates: set[str] = set()
        self.unread_functions: set[str] = set()
        self.unnamed = False
        """Whether the set of declared names is incomplete or ambiguous; nothing can be planned then."""

    def attempt(self, node: yaml.Node, read: Callable[[yaml.Node], Any], prefix: str = "") -> list[Any]:
        """Return the result of `read` in a list; if it raises, note its mistakes and return an empty list."""
        try:
            return [read(node)]
        except DeclarationError as error:
            for mistake in error.mistakes:
                self.wrong(node, prefix + mistake.message, mistake.hint)
        except HayaseError as error:
            self.wrong(node, prefix + str(error))
        return []

    def mapping(self, node: yaml.Node, where: str, example: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """Return key -> (node of the key, node of the value)."""
        if not isinstance(node, yaml.MappingNode):
            self.wrong(node, f"{where} must be a mapping, not {kind_of(node)}", example)
            return {}
        return self.entries(node, where)

    def known(self, node: yaml.Node, where: str, keys: tuple[str, ...], example: str) -> dict[str, yaml.Node]:
        """Return key -> node of the value, for known keys; note the others."""
        entries = self.mapping(node, where, example)
        for name, (key, _) in entries.items():
            if name not in keys:
                self.wrong(key, f"unknown key {key_text(name)} in {where}", suggestion(name, keys))
        return {name: value for name, (_, value) in entries.items() if name in keys}

    def values(self, parts: Mapping[str, yaml.Node], readers: Mapping[str, _Reader], of: str = "") -> dict[str, Any]:
        """Return key -> value, for the values that can be read; note what is wrong with the others."""
        return {key: value for key, node in parts.items() for value in self.attempt(node, readers[key], f"{key}{of}: ")}

    def require(
        self, fields: FieldTable, key: yaml.Node, node: yaml.Node, parts: Mapping[str, yaml.Node], where: str
    ) -> None:
        """Note the required fields that a mapping does not have."""
        for part, hint in fields.required.items() if isinstance(node, yaml.MappingNode) else ():
            if part not in parts:
                self.wrong(key, f"{where} has no {part}", hint)

    def pipeline(self, root: yaml.Node) -> tuple[PipelineDeclaration, Path] | None:
        """Return the declaration of everything that can be read, and the home; None if not all names can be read."""
        if self.is_foreign(root, (*_PIPELINE, *_SECTIONS), "pipeline file", _EXAMPLE):
            return None
        parts = self.known(root, "the pipeline file", (*_PIPELINE, *_SECTIONS), _EXAMPLE)
        if "pipeline" not in parts and isinstance(root, yaml.MappingNode):
            self.wrong(root, "the pipeline has no name", 'add "pipeline: NAME"')
        values = self.values({key: parts[key] for key in _PIPELINE if key in parts}, _PIPELINE)
        self.unnamed = bool(self.mistakes)
        streams = self.section(parts.get("streams"), "stream", "streams", self.stream)
        queries = self.section(parts.get("queries"), "query", "queries", self.query)
        aggregates = self.aggregates(parts.get("aggregates"))
        functions = self.functions(parts.get("functions"), [aggregate.name for aggregate in aggregates])
        tables = self.section(parts.get("tables"), "table", "tables", self.table)
        jobs = self.section(parts.get("jobs"), "job", "jobs", self.job)
        operations = self.section(parts.get("operations"), "operation", "operations", self.operation)
        outputs = self.outputs(parts.get("outputs"))
        governor = self.governor(parts.get("governor"))
        rules = self.rules(parts.get("rules"))
        latest = dict(self.named)
        for mistake in clashes(name for name, _ in self.named):
            self.wrong(latest[mistake.subject], mistake.message, mistake.hint)
            self.unnamed = True
        if self.unnamed:
            return None
        declared = PipelineDeclaration(
            values["pipeline"],
            tuple(streams),
            tuple(queries),
            values.get("buckets"),
            tuple(aggregates),
            tuple(tables),
            rules,
            tuple(jobs),
            tuple(operations),
            governor,
            tuple(functions),
            tuple(source for source in self.sources if any(stream.name == source.stream for stream in streams)),
            tuple(outputs),
        )
        if (
            self.unread_tables or self.unread_aggregates or self.unread_functions
        ):  # the stages that use them cannot be planned
            declared = self.without_readers(declared)
        return declared, values.get("home", Path(declared.name))

    def section(self, node: yaml.Node | None, kind: str, where: str, read: Callable[..., _T | None]) -> list[_T]:
        """Return all streams, queries, tables, jobs or operations that can be read."""
        if node is None or is_null(node):
            return []
        declarations = []
        before = len(self.mistakes)
        entries = self.mapping(node, where, f'write below it "NAME:" and what the {kind} is')
        self.unnamed |= len(self.mistakes) > before
        for name, (key, value) in entries.items():
            if not self.attempt(key, lambda key: checked_name(kind, key.value)):
                self.unnamed = True
                continue
            self.named.append((name, key))
            before = len(self.mistakes)
            declaration = read(name, key, value)
            if declaration is None or (len(self.mistakes) > before and kind != "operation"):
                self.unread.add(name)
                self.unread_tables |= kind == "table"
            else:
                declarations.append(declaration)
        return declarations

    def without_readers(self, declaration: PipelineDeclaration) -> PipelineDeclaration:
        """Return the declaration without the stages that may use an unread table, aggregate or function, and note them as
        unread: the queries whose text has the name of an unread aggregate or function, and, unless all that is unread are
        functions, all jobs."""
        words = {query.name: set(re.findall(r"\w+", query.text.lower())) for query in declaration.queries}
        called = self.unread_aggregates | self._functions_over(declaration.functions)
        queries = [query for query in declaration.queries if not words[query.name] & called]
        self.unread |= {query.name for query in declaration.queries if query not in queries}
        if not (self.unread_tables or self.unread_aggregates):
            return replace(declaration, queries=tuple(queries))
        for job in declaration.jobs:
            self.unread |= {job.name, *(name for step in job.steps for name in (step.writes, *step.also) if name)}
        return replace(declaration, queries=tuple(queries), jobs=())

    def _functions_over(self, functions: Sequence[FunctionDeclaration]) -> set[str]:
        """Return the unread functions, and those whose expression has the name of one, in lower case."""
        names = set(self.unread_functions)
        for _ in functions:
            names |= {one.name.lower() for one in functions if set(re.findall(r"\w+", (one.sql or "").lower())) & names}
        return names

    def aggregates(self, node: yaml.Node | None) -> list[AggregateDeclaration]:
        """Return the aggregates of the user; each is imported once, to find out whether it exists."""
        if node is None or is_null(node):
            return []
        example = 'write below it "NAME: module:attribute"'
        aggregates, before = [], len(self.mistakes)
        entries = self.mapping(node, "aggregates", example)
        self.unnamed |= len(self.mistakes) > before
        for name, (_, value) in entries.items():
            loaded = self.attempt(value, partial(self.aggregate, name), f'aggregate "{name}": ')
            if not loaded:
                self.unread_aggregates.add(name.lower())
            aggregates += loaded
        return aggregates

    def aggregate(self, name: str, node: yaml.Node) -> AggregateDeclaration:
        declared = AggregateDeclaration(name, text_of(node), self.directory)
        declared.load()
        return declared

    def functions(self, node: yaml.Node | None, aggregates: Sequence[str]) -> list[FunctionDeclaration]:
        """Return the functions of the user; Python functions are imported once, to find out whether they exist."""
        if node is None or is_null(node):
            return []
        functions, before = [], len(self.mistakes)
        entries = self.mapping(node, "functions", 'write below it "NAME: module:function" or "NAME: {sql: x * 1.1}"')
        self.unnamed |= len(self.mistakes) > before
        taken = {name.lower() for name in aggregates}
        for name, (key, value) in entries.items():
            function = self.function(name, key, value)
            if name.lower() in taken:
                message = f'the function "{name}" is declared twice'
                self.wrong(key, message, "name one differently; case does not count, and aggregates do")
                function = None
            taken.add(name.lower())
            if function is None:
                self.unread_functions.add(name.lower())
            else:
                functions.append(function)
        return functions

    def function(self, name: str, key: yaml.Node, node: yaml.Node) -> FunctionDeclaration | None:
        where, before = f'function "{name}"', len(self.mistakes)
        self.places["function", name] = place_of(key, self.source)
        if isinstance(node, yaml.MappingNode):
            parts = self.known(
                node, where, FUNCTION.names, 'write below it "function: MODULE:FUNCTION" or "sql: x * 1.1"'
            )
        else:
            parts = {"function": node}
        texts = self.texts_of(parts, f" of {where}")
        if "sql" in parts:
            self.locate("function", name, parts["sql"])
        if len(self.mistakes) > before:
            return None
        try:
            return declared_function(name, texts, self.directory)
        except DeclarationError as error:
            for mistake in error.mistakes:
                written = self.texts.get(("function", name))
                if written is not None and mistake.line is not None:
                    place = written.place(mistake.line, mistake.column or 1)
                    self.mistakes.append(Mistake(mistake.message, mistake.hint, None, place.line, place.column))
                else:
                    self.wrong(parts.get(mistake.subject, key), mistake.message, mistake.hint)
        return None

    def stream(self, name: str, key: yaml.Node, node: yaml.Node) -> StreamDeclaration | None:
        where = f'stream "{name}"'
        readers = {**_STREAM, "retention": lambda node: self.retention(where, node)}
        keys = (*readers, *STREAM_SOURCE.names)
        parts = self.known(node, where, keys, 'write below it "schema: ..." and "time: ..."')
        self.source_of(name, parts.pop("from", None))
        values = self.values(parts, readers, f" of {where}")
        self.places["stream", name] = place_of(key, self.source)
        self.require(STREAM, key, node, parts, where)
        if "schema" not in values:
            return None
        self.locate("schema", name, parts["schema"])
        try:
            if "time" in values:
                return StreamDeclaration(name, **values)
            arrow_schema(values["schema"])
        except DeclarationError as error:
            for mistake in error.mistakes:
                self.stream_mistake(name, parts, values, mistake)
        return None

    def source_of(self, stream: str, node: yaml.Node | None) -> None:
        """Note the source of a stream, if it has one, or what is wrong with it."""
        if node is None or is_null(node):
            return
        try:
            self.sources.append(declared_source(stream, _plain(node), self.directory))
        except DeclarationError as error:
            self.option_mistakes(node, error)

    def outputs(self, node: yaml.Node | None) -> list[OutputDeclaration]:
        if node is None or is_null(node):
            return []
        outputs = []
        entries = self.mapping(node, "outputs", 'write below it "NAME: {reads: QUERY, to: {kafka: {...}}}"')
        for name, (key, value) in entries.items():
            self.places["output", name] = place_of(key, self.source)
            if not self.attempt(key, lambda key: checked_name("output", key.value)):
                continue
            if not isinstance(value, yaml.MappingNode):
                self.wrong(
                    value, f'output "{name}" must be a mapping, not {kind_of(value)}', 'write "reads:" and "to:"'
                )
                continue
            try:
                outputs.append(declared_output(name, _plain(value), self.directory))
            except DeclarationError as error:
                self.option_mistakes(value, error, key)
        return outputs

    def option_mistakes(self, node: yaml.Node, error: DeclarationError, key: yaml.Node | None = None) -> None:
        """Note the mistakes of a source or an output, each at its option, wherever that stands below the node."""
        for mistake in error.mistakes:
            self.wrong(_below(node, mistake.subject) or key or node, mistake.message, mistake.hint)

    def retention(self, stream: str, node: yaml.Node) -> Retention:
        where = f"retention of {stream}"
        parts = self.known(node, where, tuple(_RETENTION), "write it like {age: 7 days, size: 10 GB}")
        return Retention(**self.values(parts, _RETENTION, f" in {where}"))

    def locate(self, kind: str, name: str, node: yaml.Node) -> None:
        if isinstance(node, yaml.ScalarNode):
            self.texts[kind, name] = Written.of(node, self.source)
            self.places[kind, name] = self.texts[kind, name].place()

    def stream_mistake(
        self, name: str, parts: Mapping[str, yaml.Node], values: Mapping[str, Any], mistake: Mistake
    ) -> None:
        """Note a mistake that the declaration of a stream finds, at the field that it is about."""
        if not mistake.subject:  # a mistake in the schema, which does not know its stream
            mistake = Mistake(
                f'schema of stream "{name}": {mistake.message}',
                mistake.hint,
                None,
                mistake.line,
                mistake.column,
                "schema",
            )
        part = mistake.subject
        if part == "schema":
            place = self.texts["schema", name].place(mistake.line or 1, mistake.column or 1)
            self.mistakes.append(Mistake(mistake.message, mistake.hint, None, place.line, place.column))
        elif part in values or part not in parts:  # otherwise the mistake in that field has been noted already
            # a missing time_unit is noted at the time column
            self.wrong(parts.get(part, parts["time"]), mistake.message, mistake.hint)

    def query(self, name: str, key: yaml.Node, node: yaml.Node) -> QueryDeclaration | None:
        where = f'query "{name}"'
        if isinstance(node, yaml.MappingNode):
            parts = self.known(node, where, ("cql",), 'write "cql: select ..."')
            if "cql" not in parts:
                self.wrong(key, f"{where} has no text", 'add "cql: select ..."')
                return None
            node = parts["cql"]
        self.locate("query", name, node)
        texts = self.attempt(node, _query, f"{where}: ")
        return QueryDeclaration(name, texts[0]) if texts else None

    def table(self, name: str, key: yaml.Node, node: yaml.Node) -> TableDeclaration | None:
        where, before = f'table "{name}"', len(self.mistakes)
        self.places["table", name] = place_of(key, self.source)
        parts = self.known(node, where, TABLE.names, 'write below it "key: user_id" and "columns:"')
        self.require(TABLE, key, node, parts, where)
        seen: dict[str, yaml.Node] = {}
        keys = [column for part in self.key_nodes(parts.get("key"), where) for column in self.column(part, where, seen)]
        columns = list(self.columns(parts["columns"], name, seen)) if "columns" in parts else []
        ages = self.values({part: parts[part] for part in _AGES if part in parts}, _AGES, f" of {where}")
        self.ages(name, parts, ages)
        if len(self.mistakes) > before:
            return None
        try:
            return TableDeclaration(name, tuple(keys), tuple(columns), **ages)
        except DeclarationError as error:
            for mistake in error.mistakes:
                self.wrong(parts["columns"], mistake.message, mistake.hint)
        return None

    def job(self, name: str, key: yaml.Node, node: yaml.Node) -> JobDeclaration | None:
        self.places["job", name] = place_of(key, self.source)
        if not isinstance(node, yaml.MappingNode):
            self.wrong(
                node, f'job "{name}" must be a mapping, not {kind_of(node)}', 'write "reads: STREAM" and "steps:"'
            )
            return None
        parts = {part.value: value for part, value in node.value if isinstance(part, yaml.ScalarNode)}
        listed = parts.get("steps")
        steps = (
            {f"steps.{at}": step for at, step in enumerate(listed.value)}
            if isinstance(listed, yaml.SequenceNode)
            else {}
        )
        for part, step in steps.items():
            self.places["job", f"{name}.{part}"] = place_of(step, self.source)
        try:
            return declared_job(name, _plain(node), self.directory)
        except DeclarationError as error:
            for mistake in error.mistakes:
                step = ".".join(mistake.subject.split(".")[:2])
                self.wrong(steps.get(step, key), mistake.message, mistake.hint)
            self.unread |= _names_below(parts.get("steps"))  # these include the streams that the job writes
        return None

    def operation(self, name: str, key: yaml.Node, node: yaml.Node) -> OperationDeclaration | None:
        where, before = f'operation "{name}"', len(self.mistakes)
        self.places["operation", name] = place_of(key, self.source)
        parts = self.known(
            node, where, OPERATION.names, 'write below it "reads: STREAM" and "function: MODULE:FUNCTION"'
        )
        if not isinstance(node, yaml.MappingNode):
            return None
        texts = self.texts_of(parts, f" of {where}")
        for part, value in parts.items():
            self.locate("operation", f"{name}.{part}", value)
            self.places["operation", f"{name}.{part}"] = place_of(value, self.source)
        try:
            operation = declared_operation(name, texts, self.directory)
            if len(self.mistakes) == before:
                return operation
        except DeclarationError as error:
            for mistake in error.mistakes:
                field = mistake.subject
                if field in parts and field not in texts:  # the mistake in that field has been noted already
                    continue
                written = self.texts.get(("operation", f"{name}.{field}"))
                if written is not None and mistake.line is not None:
                    place = written.place(mistake.line, mistake.column or 1)
                    self.mistakes.append(Mistake(mistake.message, mistake.hint, None, place.line, place.column))
                else:
                    self.wrong(parts.get(field, key), mistake.message, mistake.hint)
        return self.unread_operation(name, texts)

    def unread_operation(self, name: str, texts: Mapping[str, Any]) -> OperationDeclaration | None:
        """Note an operation with mistakes as unread. Return it with only its inputs and its function, so that these are checked,
        or None if they are invalid; its schema counts as unknown."""
        self.unread.add(name)
        try:
            basic = {part: texts[part] for part in ("reads", "function") if part in texts}
            return declared_operation(name, basic, self.directory)
        except DeclarationError:
            return None

    def governor(self, node: yaml.Node | None) -> GovernorDeclaration | None:
        if node is None or is_null(node):
            return None
        entries = self.mapping(node, "governor", "write it like {policy: als, u: 0.5}")
        parts = {name: value for name, (_, value) in entries.items()}
        self.places["governor", ""] = place_of(node, self.source)
        for part, (key, _) in entries.items():
            self.places["governor", f".{part}"] = place_of(key, self.source)
        try:
            return declared_governor(self.texts_of(parts, " of the governor"))
        except DeclarationError as error:
            for mistake in error.mistakes:
                at = parts[mistake.subject] if mistake.subject else node
                self.wrong(at, mistake.message, mistake.hint)
        return None

    def texts_of(self, parts: Mapping[str, yaml.Node], of: str) -> dict[str, str | list[str]]:
        """Return key -> text or list of texts, for the values that are such; note the others."""
        return self.values(parts, dict.fromkeys(parts, _texts), of)

    def key_nodes(self, node: yaml.Node | None, where: str) -> list[yaml.Node]:
        """Return the nodes of the columns of a key: one, or a list."""
        if not isinstance(node, yaml.SequenceNode):
            return [] if node is None else [node]
        if not node.value:
            self.wrong(node, f"the key of {where} is an empty list", "name its parts, like [country, user_id]")
        return list(node.value)

    def column(self, node: yaml.Node, where: str, seen: dict[str, yaml.Node]) -> list[str]:
        """Return the name of a column in a list, or an empty list if it is invalid or, ignoring case, not new."""
        names = self.attempt(node, lambda node: checked_name("column", text_of(node)), f"{where}: ")
        for name in names:
            if name.lower() in seen:
                line = place_of(seen[name.lower()], self.source).line
                hint = (
                    f"the first is in line {line}; name one of them differently, keys and columns share one name space"
                )
                self.wrong(node, f'"{name}" stands twice in {where}', hint)
                return []
            seen[name.lower()] = node
        return names

    def columns(self, node: yaml.Node, table: str, seen: dict[str, yaml.Node]) -> Iterator[tuple[str, str]]:
        where = f'columns of table "{table}"'
        entries = self.mapping(node, where, 'write below it "NAME: TYPE", like "total: Counter"')
        if not entries and isinstance(node, yaml.MappingNode):
            self.wrong(node, f'table "{table}" has no columns', TABLE["columns"].required)
        for name, (key, kind) in entries.items():
            self.places["column", f"{table}.{name}"] = place_of(kind, self.source)
            kinds = self.attempt(kind, text_of, f'type of column "{name}" of table "{table}": ')
            yield from zip(self.column(key, f'table "{table}"', seen), kinds)

    def ages(self, name: str, parts: Mapping[str, yaml.Node], ages: Mapping[str, int]) -> None:
        """Note what is wrong with the ages of a table, independently of its other fields."""
        try:
            TableDeclaration(name, ("key",), (("column", ""),), **ages)
        except DeclarationError as error:
            for mistake in error.mistakes:
                part = mistake.subject
                if part == "horizon" and part not in parts:  # the default horizon is too short
                    hint = f'add "horizon: {duration_text(ages["fold_after"])}", or longer; {mistake.hint}'
                    self.wrong(parts["fold_after"], mistake.message, hint)
                elif part in ages or part not in parts:  # otherwise the mistake in that field has been noted already
                    self.wrong(parts[part], mistake.message, mistake.hint)

    def rules(self, node: yaml.Node | None) -> tuple[RulesDeclaration, ...]:
        """Return the rules of rule files and those inside this file, in their order."""
        if node is None or is_null(node):
            return ()
        items = node.value if isinstance(node, yaml.SequenceNode) else [node]
        if items and all(isinstance(item, yaml.MappingNode) for item in items):
            return (self.rules_here(node),)
        rules: list[RulesDeclaration] = []
        files: set[Path] = set()
        for item in items:
            if isinstance(item, yaml.MappingNode):
                rules.append(self.rules_here(item))
            else:
                rules += self.rules_file(item, files)
        return tuple(rules)

    def rules_file(self, node: yaml.Node, seen: set[Path]) -> list[RulesDeclaration]:
        for file in self.attempt(node, partial(_path, "file"), "rules: "):
            path = self.path.parent / file
            if path in seen:
                self.wrong(node, f'the rules "{file}" stand here twice', "remove one; each event would count twice")
                continue
            seen.add(path)
            self.places["rules", str(path)] = place_of(node, self.source)
            try:
                text = file_text(path, "rule", "write one; rules begin with source: STREAM")
                return [RulesDeclaration(str(path), text)]
            except DeclarationError as error:
                for mistake in error.mistakes:
                    if mistake.line is None:
                        self.wrong(node, f'rules "{file}": {mistake.message}', mistake.hint)
                    else:
                        self.mistakes.append(replace(mistake, file=str(path)))
        return []

    def rules_here(self, node: yaml.Node) -> RulesDeclaration:
        """Return the rules inside this file. The planner finds the mistakes in them, except for aliases that lead outside."""
        start = node.start_mark.index
        text = _blank(self.source[:start]) + self.source[start : node.end_mark.index].rstrip() + "\n"
        self.places.setdefault(("rules", str(self.path)), place_of(node, self.source))
        try:
            compose(text)
        except DeclarationError as error:
            hint = "write out here what it stands for there"
            self.mistakes += [
                replace(mistake, message="this alias (*) stands for something outside of the rules", hint=hint)
                for mistake in error.mistakes
            ]
        return RulesDeclaration(str(self.path), text)


def _blank(text: str) -> str:
    """Return the line ends of a text, and after the last of them a space for each character."""
    lines = _LINE.sub("", text)
    return re.sub(f"[^{_BREAKS}]", " ", lines)


def _texts(node: yaml.Node) -> str | list[str]:
    return [text_of(item) for item in node.value] if isinstance(node, yaml.SequenceNode) else text_of(node)


def _names_below(node: yaml.Node | None) -> set[str]:
    """Return all values inside a node, at any depth, that can be names."""
    if isinstance(node, yaml.MappingNode):
        return {name for _, value in node.value for name in _names_below(value)}
    if isinstance(node, yaml.SequenceNode):
        return {name for value in node.value for name in _names_below(value)}
    return {str(node.value)} if node is not None and str(node.value).isidentifier() else set()


def _plain(node: yaml.Node) -> Any:
    """Return a node as plain data: mappings, lists and texts."""
    if isinstance(node, yaml.MappingNode):
        return {key.value: _plain(value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item) for item in node.value]
    return str(node.value)


def _below(node: yaml.Node, name: str) -> yaml.Node | None:
    """Return the node of the value of a key, of this mapping or of one below it."""
    if not isinstance(node, yaml.MappingNode):
        return None
    found = (value for key, value in node.value if name and key.value == name)
    return next(found, None) or next((at for _, value in node.value if (at := _below(value, name)) is not None), None)


def _query(node: yaml.Node) -> str:
    text = text_of(node)
    if not text.strip():
        raise DeclarationError("the text is empty", "write a query: select ...")
    return text


def _path(kind: str, node: yaml.Node) -> Path:
    text = text_of(node)
    if "\0" in text:
        raise DeclarationError(f"no {kind} can have that name", "remove the \\0")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise DeclarationError("there is no such user", f"write the {kind} without ~") from error


def _buckets(node: yaml.Node) -> int:
    text = text_of(node)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise DeclarationError(f'"{text}" is not a number of buckets', "write a whole number, like 8")
    return checked_buckets(int(text))


_Reader = Callable[[yaml.Node], Any]
_T = TypeVar("_T")


def _readers(fields: FieldTable, *names: str) -> dict[str, _Reader]:
    """Readers of the nodes of fields, by name; of all fields if no names are given."""
    return {name: partial(_read, fields[name].kind) for name in names or fields.names}


def _read(kind: Kind, node: yaml.Node) -> Any:
    return kind.read(text_of(node))


_PIPELINE: dict[str, _Reader] = {
    "pipeline": lambda node: checked_name("pipeline", text_of(node)),
    "home": partial(_path, "directory"),
    "buckets": _buckets,
}
_SECTIONS = (
    "streams", "queries", "aggregates", "functions", "tables", "jobs", "operations", "outputs", "governor", "rules",
)  # fmt: skip
_STREAM, _RETENTION = _readers(STREAM), _readers(RETENTION)
_AGES = _readers(TABLE, "fold_after", "horizon")
