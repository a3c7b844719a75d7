"""GROUP BY and aggregates: the keys and calls of a select, and its expressions over them.

An expression over groups is made of keys, aggregates and constants. A part of it that is written like a key, whatever
its layout and case, is that key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import TokenType, tokenize

from hayase.core.algebra import AGGREGATES, SYNONYMS
from hayase.core.algebra import Aggregate as Algebra
from hayase.core.errors import DeclarationError
from hayase.core.expressions import ParsedExpression
from hayase.core.purity import Call, Reference
from hayase.cql.columns import quoted
from hayase.cql.logical import Aggregate, AggregateCall, Column, Expression, Node
from hayase.cql.query_expressions import ExpressionResolver, canonical, name_end, splice
from hayase.cql.scopes import ResolvedName, Scope
from hayase.cql.syntax import Item, Part, Plain
from hayase.lifetimes.accumulators import result_type

__all__ = ["FUNCTIONS", "Groups", "call_text"]

FUNCTIONS = {**{name: name for name in AGGREGATES}, **SYNONYMS}
"""Names that a query may use, and the aggregates that they stand for."""


@dataclass(frozen=True, slots=True)
class CallText:
    """What stands in an aggregate's parentheses, between commas, and behind FILTER."""

    arguments: tuple[Part, ...]
    condition: Part | None


def call_text(part: Part, call: Call) -> CallText:
    """The argument and the filter of a call in a part, as they are written."""
    whole = part.piece(call.start, call.end)
    tokens = tokenize(whole.text, dialect="duckdb")
    inside: list[list[tuple[int, int]]] = []  # per pair of outermost parentheses, first and last token between commas
    depth = opened = 0
    for at, token in enumerate(tokens):
        if token.token_type in _OPENING:
            if depth == 0:
                opened = at + 1
                inside.append([])
            depth += 1
        elif token.token_type in _CLOSING:
            depth -= 1
        if depth == (1 if token.token_type is TokenType.COMMA else 0) and inside and opened <= at:
            inside[-1].append((opened, at - 1))
            opened = at + 1 if depth else len(tokens)
    parts: list[tuple[Part, ...]] = []
    for each in inside:
        found = []
        for first, last in each:
            if first <= last and tokens[first].text.lower() in ("distinct", "all", "where"):
                first += 1
            if first <= last:
                found.append(whole.piece(tokens[first].start, tokens[last].end + 1))
        parts.append(tuple(found))
    arguments = parts[0] if call.arguments else ()
    return CallText(arguments, parts[1][0] if call.filtered and len(parts) > 1 and parts[1] else None)


_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


class Groups:
    """The groups of one select over a child."""

    def __init__(
        self,
        resolver: ExpressionResolver,
        child: Node,
        scope: Scope,
        items: Sequence[Item],
        tag: pa.Field | None = None,
    ):
        self.resolver, self.child, self.scope, self.tag = resolver, child, scope, tag
        self.items = items
        self.aliases = {each.alias.lower(): each for each in items if each.alias}
        self.keys: dict[str, Column] = {}
        self.calls: dict[str, AggregateCall] = {}
        self._failed: set[str] = set()
        self._reported: set[Part] = set()

    def node(self) -> Aggregate:
        """The keys, then the calls that were met in expressions."""
        return Aggregate(self.child, tuple(self.keys.values()), tuple(self.calls.values()), self.tag)

    # ------------------------------------------------------------------------------------------------ keys

    def key(self, part: Part) -> None:
        """An entry of GROUP BY: an expression or, of the select list, a place or (if no column) an alias."""
        chosen = self._key_part(part)
        found = self.resolver.parse(chosen) if chosen else None
        if chosen is None or found is None:
            return
        if found.calls:
            self.resolver.refuse(part, "an aggregate cannot be a key", "group by columns of the record")
            return
        pieces = self.resolver.replacements(chosen, found.columns, self.scope)
        if pieces is None:
            return
        canon = canonical(chosen.text, pieces)
        value = self.resolver.bind(chosen, splice(chosen.text, pieces), self.child.schema)
        if value is None or not self.resolver.check_key(chosen, value.kind):
            self._failed.add(canon)
            return
        plain = next((each for each in value.columns if quoted(each) == canon), None)
        self.keys.setdefault(canon, Column(plain or f"key_{len(self.keys) + 1}", value))

    def _key_part(self, part: Part) -> Part | None:
        if part.text.isdecimal():
            item = self.items[int(part.text) - 1] if 1 <= int(part.text) <= len(self.items) else None
            if item is None or item.star:
                self.resolver.refuse(part, f"GROUP BY {part.text} is no entry of the select list")
                return None
            return item.part
        alias = self.aliases.get(part.text.strip('"').lower())
        if alias is not None and not isinstance(self.scope.find((part.text.strip('"'),)), ResolvedName):
            return alias.part
        return part

    # ------------------------------------------------------------------------------------------------ expressions

    def condition(self, plain: Plain) -> Expression | None:
        """A condition of HAVING: it may also name entries of the select list by their alias."""
        sql = self._group_sql(plain.part, aliases=True)
        return self.resolver.bind(plain.part, sql, self.node().schema, boolean=True) if sql is not None else None

    def expression(self, part: Part) -> Expression | None:
        """An entry of the select list."""
        sql = self._group_sql(part, aliases=False)
        return self.resolver.bind(part, sql, self.node().schema) if sql is not None else None

    def column(self, part: Part, name: str, sql: str) -> Expression | None:
        """A column that a star stands for: it must be a key. Of a star, the first that is none is told."""
        if sql in self.keys:
            key = self.keys[sql]
            return self.resolver.bind(part, quoted(key.name), self.node().schema)
        if sql not in self._failed and part not in self._reported:
            self._reported.add(part)
            hint = "group by it, or count or sum it"
            self.resolver.refuse(part, f'"{name}" is neither in GROUP BY nor in an aggregate', hint)
        return None

    def _group_sql(self, part: Part, aliases: bool) -> str | None:
        """The part over the columns of the groups; None if there are mistakes in it."""
        found = self.resolver.parse(part)
        if found is None:
            return None
        noted = len(self.resolver.mistakes)
        pieces = [(each.start, each.end, self._call_column(part, each)) for each in found.calls]
        pieces += self._key_pieces(part, found)
        for reference in found.columns:
            if not any(start <= reference.start < end for start, end, _ in pieces):
                pieces.append(self._column(part, reference, aliases))
        failed = len(self.resolver.mistakes) > noted or any(each is None for _, _, each in pieces)
        return None if failed else splice(part.text, [(start, end, each or "") for start, end, each in pieces])

    def _key_pieces(self, part: Part, parsed: ParsedExpression) -> list[tuple[int, int, str | None]]:
        """The largest pieces of a part that are keys."""
        columns: list[tuple[int, int, str]] = []
        for each in parsed.columns:
            one = self.scope.find(each.parts)
            if isinstance(one, ResolvedName):
                columns.append((each.start, name_end(part.text, each, one), one.sql))
        taken: list[tuple[int, int, str | None]] = []
        blocked = [(each.start, each.end) for each in parsed.calls]
        whole = (0, len(part.text))
        spans = {whole, *part.inner, *((start, end) for start, end, _ in columns)}
        for first, last in sorted(spans, key=lambda each: each[0] - each[1]):
            if any(start < last and first < end for start, end in blocked):
                continue
            inside = [
                (start - first, end - first, sql) for start, end, sql in columns if first <= start and end <= last
            ]
            canon = canonical(part.text[first:last], inside)
            if canon in self.keys or canon in self._failed:
                taken.append((first, last, quoted(self.keys[canon].name) if canon in self.keys else None))
                blocked.append((first, last))
        return taken

    def _column(self, part: Part, reference: Reference, aliases: bool) -> tuple[int, int, str | None]:
        """A column outside of keys and aggregates: an alias, or a mistake."""
        name = reference.parts[0].lower()
        alias = self.aliases.get(name) if aliases and len(reference.parts) == 1 else None
        if alias is not None:
            sql = self._group_sql(alias.part, aliases=False)
            return reference.start, reference.end, f"({sql})" if sql is not None else None
        place = part.piece(reference.start, reference.end)
        if self.resolver.find(part, reference, self.scope) is not None:
            hint = "group by it, or count or sum it"
            self.resolver.refuse(place, f'"{place.text}" is neither in GROUP BY nor in an aggregate', hint)
        return reference.start, reference.end, None

    # ------------------------------------------------------------------------------------------------ aggregates

    def _call_column(self, part: Part, call: Call) -> str | None:
        """The name of the column that holds an aggregate."""
        place = part.piece(call.start, call.end)
        function = self.resolver.aggregates.get(call.function) or FUNCTIONS.get(call.function)
        if function is None:
            supported = ", ".join(sorted([*AGGREGATES, *self.resolver.aggregates]))
            self.resolver.refuse(place, f"the aggregate {call.function} is not supported", f"there are {supported}")
            return None
        aggregate = Algebra.from_name(function)
        wanted = aggregate.arity + (aggregate.constant is not None)
        if call.ordered:
            self.resolver.refuse(place, f"{call.function}(... ORDER BY ...) is not supported", "leave the order out")
        elif call.arguments != wanted and not (aggregate.star and call.arguments == 0):
            many = {1: "one argument", 2: "two arguments"}.get(wanted, f"{wanted} arguments")
            self.resolver.refuse(place, f"{call.function} takes {many}")
        elif wanted > 2:
            self.resolver.refuse(place, f"{call.function} takes {wanted} arguments, and a query may give two")
        elif call.distinct and function not in ("count", "min", "max", "bool_and", "bool_or"):
            hint = "take the distinct values in a sub-query, and aggregate those"
            self.resolver.refuse(place, f"{call.function}(DISTINCT ...) is not supported", hint)
        else:
            return self._add_call(part, call, function, aggregate)
        return None

    def _add_call(self, part: Part, call: Call, function: str, aggregate: Algebra) -> str | None:
        place = part.piece(call.start, call.end)
        written = call_text(part, call)
        noted = len(self.resolver.mistakes)
        constant = None
        parts = list(written.arguments)
        if aggregate.constant is not None:
            constant = self._constant(parts.pop())
        found = [self.resolver.expression(each, self.scope, self.child.schema) for each in parts]
        values = [each for each in found if each is not None]
        condition = None
        if written.condition is not None:
            condition = self.resolver.condition(Plain(written.condition), self.scope, self.child.schema)
        if len(values) < len(found) or len(self.resolver.mistakes) > noted:
            return None
        distinct = call.distinct and function == "count"
        texts = [each.sql for each in values]
        if condition is not None:
            texts = [f"CASE WHEN (\n{condition.sql}\n) THEN (\n{each}\n) END" for each in texts or ["1"]]
        listed = [canonical(each, ()) for each in texts] or ["*"]
        fraction = [] if constant is None else [f"{constant!r}"]
        canon = f"{function}({'distinct ' if distinct else ''}{', '.join([*listed, *fraction])})"
        if canon not in self.calls:
            bound = [self.resolver.bind(place, each, self.child.schema) for each in texts]
            arguments = [each for each in bound if each is not None]
            if len(arguments) < len(bound):
                return None
            kind = self._result_type(parts[0] if parts else place, aggregate, constant, arguments, distinct)
            if kind is None:
                return None
            one, other = (*arguments, None, None)[:2]
            name = f"{aggregate.name}_{len(self.calls) + 1}"
            self.calls[canon] = AggregateCall(
                name, function, one, distinct, kind, place.text, other, constant, place.line, place.column
            )
        return quoted(self.calls[canon].name)

    def _constant(self, part: Part) -> float:
        """The number that a second argument must be; what it may be is the aggregate's to say."""
        try:
            return float(part.text)
        except ValueError:
            self.resolver.refuse(part, f"{part.text} must be a number as it stands", "write it out, like 0.5")
            return 0.0

    def _result_type(
        self,
        part: Part,
        aggregate: Algebra,
        constant: float | None,
        arguments: Sequence[Expression],
        distinct: bool,
    ) -> pa.DataType | None:
        try:
            if distinct:
                return result_type("count", arguments[0].kind, distinct)
            return aggregate.at(constant).result([each.kind for each in arguments])
        except DeclarationError as error:
            self.resolver.refuse_inside(part, error)
            return None
