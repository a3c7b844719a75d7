"""Writes declarations as the YAML of a pipeline file, in a canonical form that `read_pipeline` reads back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import yaml

from hayase.core.connector_data import output_data, source_data
from hayase.core.declaration_fields import RETENTION, STREAM, TABLE
from hayase.core.declarations import PipelineDeclaration, RulesDeclaration, StreamDeclaration, TableDeclaration
from hayase.core.errors import DeclarationError
from hayase.core.function_data import function_data
from hayase.core.job_data import job_data
from hayase.core.operation_data import governor_data, operation_data

__all__ = ["pipeline_text"]


class _Dumper(yaml.SafeDumper):
    """The safe dumper; texts of several lines become blocks."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    lines = text.split("\n")
    readable = all(line.isprintable() for line in lines)
    style = '"' if not readable else "|" if len(lines) > 1 else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_multi_representer(yaml.Node, lambda _, node: node)


def pipeline_text(declaration: PipelineDeclaration) -> str:
    """Return the YAML of a declaration, in the canonical form that `read_pipeline` reads back; defaults are left out.

    It contains all rules, including those of rule files, as they were written but without comments.

    >>> from hayase.core.declarations import QueryDeclaration
    >>> events = StreamDeclaration("events", "time timestamp, user string", time="time", slack=10_000_000)
    >>> print(pipeline_text(PipelineDeclaration("shop", (events,), (QueryDeclaration("all", "select * from events"),))))
    pipeline: shop
    streams:
      events:
        schema: time timestamp, `user` string
        time: time
        slack: 10 s
    queries:
      all: select * from events
    <BLANKLINE>
    """
    data: dict[str, Any] = {"pipeline": declaration.name}
    if declaration.buckets is not None:
        data["buckets"] = declaration.buckets
    if declaration.streams:
        sources = {source.stream: {"from": source_data(source)} for source in declaration.sources}
        data["streams"] = {
            stream.name: _stream_data(stream) | sources.get(stream.name, {}) for stream in declaration.streams
        }
    if declaration.queries:
        data["queries"] = {query.name: query.text for query in declaration.queries}
    if declaration.aggregates:
        data["aggregates"] = {aggregate.name: aggregate.source for aggregate in declaration.aggregates}
    if declaration.functions:
        data["functions"] = {function.name: function_data(function) for function in declaration.functions}
    if declaration.tables:
        data["tables"] = {table.name: _table_data(table) for table in declaration.tables}
    if declaration.jobs:
        data["jobs"] = {job.name: job_data(job) for job in declaration.jobs}
    if declaration.operations:
        data["operations"] = {operation.name: operation_data(operation) for operation in declaration.operations}
    if declaration.outputs:
        data["outputs"] = {output.name: output_data(output) for output in declaration.outputs}
    if declaration.governor is not None:
        data["governor"] = governor_data(declaration.governor)
    if declaration.rules:
        data["rules"] = [node for rules in declaration.rules for node in _rules_nodes(rules)]
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31)


def _stream_data(stream: StreamDeclaration) -> dict[str, Any]:
    if stream.ordered or stream.name.startswith("_"):
        raise DeclarationError(f'stream "{stream.name}" is made by a stage', "a pipeline file declares the others")
    values = {name: getattr(stream, name) for name in STREAM.names}
    return STREAM.write({**values, "retention": RETENTION.write(asdict(stream.retention))})


def _table_data(table: TableDeclaration) -> dict[str, Any]:
    return TABLE.write({name: getattr(table, name) for name in TABLE.names})


def _rules_nodes(rules: RulesDeclaration) -> list[yaml.Node]:
    """Return the YAML nodes of the rules, one for each source."""
    try:
        documents = list(yaml.compose_all(rules.text, yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise DeclarationError(f'the rules "{rules.name}" are not YAML', "correct them") from error
    nodes: list[yaml.Node] = []
    for document in documents:
        nodes += document.value if isinstance(document, yaml.SequenceNode) else [document]
    return nodes
