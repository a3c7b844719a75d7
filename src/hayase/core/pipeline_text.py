"""Declarations written as the YAML of a pipeline file, in one canonical form, which `read_pipeline` reads back."""

from __future__ import annotations

from typing import Any

import yaml

from hayase.core.declarations import PipelineDeclaration, StreamDeclaration
from hayase.core.errors import DeclarationError
from hayase.core.sizes import size_text
from hayase.core.times import duration_text

__all__ = ["pipeline_text"]


class _Dumper(yaml.SafeDumper):
    """The safe dumper, with texts of several lines as blocks."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    lines = text.split("\n")
    readable = all(line.isprintable() for line in lines)
    style = '"' if not readable else "|" if len(lines) > 1 else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def pipeline_text(declaration: PipelineDeclaration) -> str:
    """The YAML of a declaration, in one canonical form, which `read_pipeline` reads back; defaults are left out.

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
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31)


def _stream_data(stream: StreamDeclaration) -> dict[str, Any]:
    if stream.ordered or stream.name.startswith("_"):
        raise DeclarationError(f'stream "{stream.name}" is made by a stage', "a pipeline file declares the others")
    plain = StreamDeclaration(stream.name, stream.schema, stream.time, time_unit=stream.time_unit)
    data: dict[str, Any] = {"schema": stream.schema, "time": stream.time}
    data |= {key: value for key in ("id", "time_unit", "changes") if (value := getattr(stream, key)) is not None}
    for key, absent in (("slack", None), ("max_ahead", "none"), ("idle_after", "off")):
        value = getattr(stream, key)
        if value != getattr(plain, key):
            data[key] = absent if value is None else duration_text(value)
    if stream.retention != plain.retention:
        age, kept = stream.retention.age, stream.retention.size
        data["retention"] = ({"age": duration_text(age)} if age is not None else {}) | (
            {"size": size_text(kept)} if kept is not None else {}
        )
    return data
