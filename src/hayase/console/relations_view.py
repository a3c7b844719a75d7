"""Draws the relations of a home: a list of them, and one with its columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from hayase.console.figures import clock_text
from hayase.console.listings import plain_table
from hayase.core.times import BEGINNING

if TYPE_CHECKING:
    from hayase.relations.relation import Relation

__all__ = ["relation_details", "relation_list"]

_DEFAULT = "public"


def relation_list(relations: Mapping[tuple[str, str], Relation]) -> RenderableType:
    """Show relations by schema and name: what each is, its columns, and up to which event time it is final."""
    table = plain_table("relation", "kind", "final up to", "columns")
    for (schema, _), relation in sorted(relations.items(), key=lambda item: (item[0][0] != _DEFAULT, item[0])):
        name = relation.name if schema == _DEFAULT else f"{schema}.{relation.name}"
        columns = Text(", ".join(relation.schema.names), no_wrap=True, overflow="ellipsis")
        table.add_row(Text(name), relation.kind, _final(relation), columns)
    return table


def relation_details(relation: Relation) -> RenderableType:
    """Show one relation: its columns with their types."""
    table = plain_table("column", "type")
    for field in relation.schema:
        table.add_row(Text(field.name), Text(str(field.type)))
    final = _final(relation)
    until = "" if final == "—" else f", final up to {final}"
    return Group(Text(f"{relation.name} ({relation.kind}){until}"), Text(), table)


def _final(relation: Relation) -> str:
    final = relation.final() if relation.has_clock else None
    return clock_text(BEGINNING if final is None else final)
