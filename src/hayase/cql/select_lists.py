"""The output columns of a select list: their names and their values.

An alias is taken as written, a column in the spelling of its stream. `count(*)` is named "count"; `sum(x)` and `count(x)` of a
column are named "sum_x" and "count_x"; any other expression is named "column_N", where N is its place in the list. If `*`
gives two columns of one name, from two relations, the later ones become "name_1", "name_2".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hayase.core.data_classes import dataclass
from hayase.core.declarations import LIFETIME_COLUMNS
from hayase.core.errors import suggestion
from hayase.cql.aggregation import FUNCTIONS, call_text
from hayase.cql.columns import quoted
from hayase.cql.logical import Column, Node, Project
from hayase.cql.query_expressions import ExpressionResolver, canonical
from hayase.cql.scopes import SUBQUERY, ResolvedName, Scope
from hayase.cql.syntax import Item, Part

__all__ = ["Output", "SelectList"]


@dataclass(frozen=True, slots=True)
class Output:
    """An output column: its name and its part of the query or, if it comes from a star, its SQL over the plan."""

    name: str
    part: Part
    sql: str | None = None
    starred: bool = False


class SelectList:
    """Expands stars and names columns. Mistakes go to the resolver."""

    def __init__(self, resolver: ExpressionResolver):
        self._resolver = resolver

    def outputs(self, items: Sequence[Item], scope: Scope, result: bool) -> list[Output]:
        """Return the columns of a select list. In the `result` of a statement some names are reserved."""
        expanded: list[Output] = []
        for place, item in enumerate(items, 1):
            if item.star:
                expanded += self._starred(item, scope)
            else:
                expanded.append(Output(item.alias or self._name(item, place, scope), item.part))
        taken: dict[str, Output] = {}
        outputs: list[Output] = []
        for column in expanded:
            name, number = column.name, 1
            while column.starred and name.lower() in taken and taken[name.lower()].starred:
                name, number = f"{column.name}_{number}", number + 1
            if name.lower() in taken:
                message = f'two columns of the result are called "{column.name}"'
                self._resolver.refuse(column.part, message, "name one of them differently with AS")
            elif result:
                self._reserved(name, column.part)
            outputs.append(replace(column, name=name))
            taken.setdefault(name.lower(), column)
        return outputs

    def project(self, outputs: Sequence[Output], node: Node, scope: Scope) -> Project | None:
        """Return the plan that computes these columns; None, with mistakes, if one cannot be resolved."""
        columns: list[Column] = []
        for output in outputs:
            if output.sql is not None:
                value = self._resolver.bind(output.part, output.sql, node.schema)
            else:
                value = self._resolver.expression(output.part, scope, node.schema)
            columns += [Column(output.name, value)] if value else []
        return Project(node, tuple(columns)) if len(columns) == len(outputs) else None

    def _reserved(self, name: str, part: Part) -> None:
        if name.startswith("__"):
            message = f'the name "{name}" begins with "__", which is reserved'
            self._resolver.refuse(part, message, "choose another name with AS")
        elif name.lower() in LIFETIME_COLUMNS:
            message = f'the name "{name}" is reserved for the lifetime of a row'
            self._resolver.refuse(part, message, "choose another name with AS")

    def _starred(self, item: Item, scope: Scope) -> list[Output]:
        if item.of is None:
            columns = [Output(name, item.part, sql, starred=True) for name, sql in scope.star()]
            return self._changed(item, columns)
        relation = scope.relation(item.of)
        if relation is None:
            missing = scope.unknown_relation(item.of)
            self._resolver.refuse(item.part, missing.message, missing.hint)
            return []
        columns = [Output(name, item.part, quoted(relation.flat(name)), starred=True) for name in relation.columns]
        return self._changed(item, columns)

    def _changed(self, item: Item, columns: list[Output]) -> list[Output]:
        """Return the columns of a star without those of EXCLUDE, with the values of REPLACE and the names of RENAME."""
        for change in item.changes:
            name = change.column.text
            matches = [column for column in columns if column.name.lower() == name.lower()]
            if not matches:
                hint = suggestion(name, [column.name for column in columns])
                self._resolver.refuse(change.column, f'* has no column "{name}"', hint)
            for column in matches:
                place = columns.index(column)
                if change.value is not None:
                    columns[place] = Output(column.name, change.value)
                elif change.new is not None:
                    columns[place] = replace(column, name=change.new, starred=False)
                else:
                    del columns[place]
        return columns

    def _name(self, item: Item, place: int, scope: Scope) -> str:
        """Return the name of an output column without an alias."""
        parsed = self._resolver.try_parse(item.part)
        if parsed is None:
            return f"column_{place}"
        text = item.part.text
        if len(parsed.columns) == 1 and not parsed.calls:
            return self._column_name(text, scope) or f"column_{place}"
        if len(parsed.calls) == 1 and not parsed.columns:
            call = parsed.calls[0]
            if canonical(text, ()) == canonical(text[call.start : call.end], ()) and self._is_known(call.function):
                arguments = call_text(item.part, call).arguments
                if not arguments:
                    return "count" if not call.ordered else f"column_{place}"
                inner = self._column_name(arguments[0].text, scope)
                distinct = "distinct_" if call.distinct else ""
                return f"{call.function}_{distinct}{inner}" if inner else f"column_{place}"
        return f"column_{place}"

    def _is_known(self, function: str) -> bool:
        return function in FUNCTIONS or function in self._resolver.aggregates

    def _column_name(self, text: str, scope: Scope) -> str | None:
        """Return the name of a column, or of a field of it, if the text is nothing else."""
        parsed = self._resolver.try_parse(Part(text, 1, 1))
        if parsed is None or len(parsed.columns) != 1 or parsed.calls:
            return None
        reference = parsed.columns[0]
        if canonical(text, ()) != canonical(text[reference.start : reference.end], ()):
            return None
        resolved = scope.find(reference.parts)
        if isinstance(resolved, ResolvedName) and resolved.name.startswith(SUBQUERY):
            return None
        if isinstance(resolved, ResolvedName) and resolved.parts == len(reference.parts):
            return resolved.name
        return reference.parts[-1]
