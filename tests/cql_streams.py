"""Streams and relations for tests of the query language."""

from __future__ import annotations

from hayase.core.declarations import StreamDeclaration
from hayase.cql.logical import Node
from hayase.cql.resolution import resolve
from hayase.cql.statement import parse

__all__ = ["SOURCES", "planned"]

SOURCES = {
    each.name: each
    for each in (
        StreamDeclaration(
            "s",
            "time timestamp, k string, a int, b double, l array<int>, p struct<x: int, y: string>, d decimal(10, 2)",
            time="time",
        ),
        StreamDeclaration("t", "time timestamp, k string, c bigint, a double", time="time"),
        StreamDeclaration("u", "ts bigint, k string, z string", time="ts", time_unit="ms"),
        StreamDeclaration(
            "q",
            "k string, n bigint, row_id bigint, valid_from timestamp, valid_to timestamp, changed_at timestamp",
            time="changed_at",
            lifetimes=True,
            ordered=True,
        ),
        StreamDeclaration("ch", "op string, at timestamp, id string, k string, v int", "at", id="id", changes="op"),
    )
}


def planned(text: str) -> Node:
    """The logical plan of a query over them."""
    return resolve(parse(text), SOURCES)
