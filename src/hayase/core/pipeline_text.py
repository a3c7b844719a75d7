"""Declarations written as the YAML of a pipeline file, in one canonical form, which `read_pipeline` reads back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import yaml

from hayase.core.declaration_fields import RETENTION, STREAM, TABLE
from hayase.core.declarations import PipelineDeclaration, RulesDeclaration, StreamDeclaration, TableDeclaration
from hayase.core.errors import DeclarationError
from hayase.core.job_data import job_data
from hayase.core.operation_data import governor_data, operation_data

__all__ = ["pipeline_text"]


class _Dumper(yaml.SafeDumper):
    """The safe dumper, with texts of several lines as blocks."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    lines = text.split("\n")
    readable = all(line.isprintable() for line in lines)
    style = '"' if not readable else "|" if len(lines) > 1 else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_multi_representer(yaml.Node, lambda _, node: node)


def pipeline_text(declaration: PipelineDeclaration) -> str:
    """The YAML of a declaration, in one canonical form, which `read_pipeline` reads back; defaults are left out.

    Rules stand in it as they were written but for comments, wherever they came from.

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
        data["streams"] = {each.name: _stream_data(each) for each in declaration.streams}
    if declaration.queries:
        data["queries"] = {each.name: each.text for each in declaration.queries}
    if declaration.aggregates:
        data["aggregates"] = {each.name: each.source for each in declaration.aggregates}
    if declaration.tables:
        data["tables"] = {each.name: _table_data(each) for each in declaration.tables}
    if declaration.jobs:
        data["jobs"] = {each.name: job_data(each) for each in declaration.jobs}
    if declaration.operations:
        data["operations"] = {each.name: operation_data(each) for each in declaration.operations}
    if declaration.governor is not None:
        data["governor"] = governor_data(declaration.governor)
    if declaration.rules:
        data["rules"] = [node for each in declaration.rules for node in _rules_nodes(each)]
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31)


def _stream_data(stream: StreamDeclaration) -> dict[str, Any]:
    if stream.ordered or stream.name.startswith("_"):
        raise DeclarationError(f'stream "{stream.name}" is made by a stage', "a pipeline file declares the others")
    values = {name: getattr(stream, name) for name in STREAM.names}
    return STREAM.write({**values, "retention": RETENTION.write(asdict(stream.retention))})


def _table_data(table: TableDeclaration) -> dict[str, Any]:
    return TABLE.write({name: getattr(table, name) for name in TABLE.names})


def _rules_nodes(rules: RulesDeclaration) -> list[yaml.Node]:
    """The rules of each source, as they are in the text."""
    try:
        documents = list(yaml.compose_all(rules.text, yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise DeclarationError(f'the rules "{rules.name}" are not YAML', "correct them") from error
    found: list[yaml.Node] = []
    for node in documents:
        found += node.value if isinstance(node, yaml.SequenceNode) else [node]
    return found
