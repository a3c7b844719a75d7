"""GROUP BY and aggregates: the keys and aggregate calls of a select, and its expressions over them.

An expression over groups consists of keys, aggregates and constants. A part of it that is written like a key, apart from
layout and case, is that key.
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
"""Names that a query may use for aggregates, with the names of the aggregates."""


@dataclass(frozen=True, slots=True)
class CallText:
    """The arguments of an aggregate call, and the condition of its FILTER."""

    arguments: tuple[Part, ...]
    condition: Part | None


def call_text(part: Part, call: Call) -> CallText:
    """Return the arguments and the filter of a call in a part, as written."""
    whole = part.piece(call.start, call.end)
    tokens = tokenize(whole.text, dialect="duckdb")
    inside: list[list[tuple[int, int]]] = []  # per pair of outermost parentheses: first and last token of each argument
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
    for spans in inside:
        pieces = []
        for first, last in spans:
            if first <= last and tokens[first].text.lower() in ("distinct", "all", "where"):
                first += 1
            if first <= last:
                pieces.append(whole.piece(tokens[first].start, tokens[last].end + 1))
        parts.append(tuple(pieces))
    arguments = parts[0] if call.arguments else ()
    return CallText(arguments, parts[1][0] if call.filtered and len(parts) > 1 and parts[1] else None)


_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


class Groups:
    """The groups of one select over the plan `child`."""

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
        self.aliases = {item.alias.lower(): item for item in items if item.alias}
        self.keys: dict[str, Column] = {}
        self.calls: dict[str, AggregateCall] = {}
        self._failed: set[str] = set()
        self._reported: set[Part] = set()

    def node(self) -> Aggregate:
        """Return the aggregate: the keys, then the calls found in the expressions so far."""
        return Aggregate(self.child, tuple(self.keys.values()), tuple(self.calls.values()), self.tag)

    # ------------------------------------------------------------------------------------------------ keys

    def key(self, part: Part) -> None:
        """Add an entry of GROUP BY: an expression, or a position in the select list, or an alias of it that is not a column."""
        expression = self._key_part(part)
        parsed = self.resolver.parse(expression) if expression else None
        if expression is None or parsed is None:
            return
        if parsed.calls:
            self.resolver.refuse(part, "an aggregate cannot be a key", "group by columns of the record")
            return
        pieces = self.resolver.replacements(expression, parsed.columns, self.scope)
        if pieces is None:
            return
        canon = canonical(expression.text, pieces)
        value = self.resolver.bind(expression, splice(expression.text, pieces), self.child.schema)
        if value is None or not self.resolver.check_key(expression, value.kind):
            self._failed.add(canon)
            return
        column_name = next((name for name in value.columns if quoted(name) == canon), None)
        self.keys.setdefault(canon, Column(column_name or f"key_{len(self.keys) + 1}", value))

    def _key_part(self, part: Part) -> Part | None:
        if part.text.isdecimal():
            item = self.items[int(part.text) - 1] if 1 <= int(part.text) <= len(self.items) else None
            if item is None or item.star:
                self.resolver.refuse(part, f"GROUP BY {part.text} is not an entry of the select list")
                return None
            return item.part
        alias = self.aliases.get(part.text.strip('"').lower())
        if alias is not None and not isinstance(self.scope.find((part.text.strip('"'),)), ResolvedName):
            return alias.part
        return part

    # ------------------------------------------------------------------------------------------------ expressions

    def condition(self, plain: Plain) -> Expression | None:
        """Resolve a condition of HAVING, which may also name aliases of the select list."""
        sql = self._group_sql(plain.part, aliases=True)
        return self.resolver.bind(plain.part, sql, self.node().schema, boolean=True) if sql is not None else None

    def expression(self, part: Part) -> Expression | None:
        """Resolve an entry of the select list."""
        sql = self._group_sql(part, aliases=False)
        return self.resolver.bind(part, sql, self.node().schema) if sql is not None else None

    def column(self, part: Part, name: str, sql: str) -> Expression | None:
        """Resolve a column of a star, which must be a key. Only the first column of a star that is none is reported."""
        if sql in self.keys:
            key = self.keys[sql]
            return self.resolver.bind(part, quoted(key.name), self.node().schema)
        if sql not in self._failed and part not in self._reported:
            self._reported.add(part)
            hint = "group by it, or count or sum it"
            self.resolver.refuse(part, f'"{name}" is neither in GROUP BY nor in an aggregate', hint)
        return None

    def _group_sql(self, part: Part, aliases: bool) -> str | None:
        """Return the SQL of a part over the columns of the groups; None if it has mistakes."""
        parsed = self.resolver.parse(part)
        if parsed is None:
            return None
        noted = len(self.resolver.mistakes)
        pieces = [(call.start, call.end, self._call_column(part, call)) for call in parsed.calls]
        pieces += self._key_pieces(part, parsed)
        for reference in parsed.columns:
            if not any(start <= reference.start < end for start, end, _ in pieces):
                pieces.append(self._column(part, reference, aliases))
        failed = len(self.resolver.mistakes) > noted or any(sql is None for _, _, sql in pieces)
        return None if failed else splice(part.text, [(start, end, sql or "") for start, end, sql in pieces])

    def _key_pieces(self, part: Part, parsed: ParsedExpression) -> list[tuple[int, int, str | None]]:
        """Return the largest pieces of a part that are keys, with the columns that replace them."""
        columns: list[tuple[int, int, str]] = []
        for reference in parsed.columns:
            resolved = self.scope.find(reference.parts)
            if isinstance(resolved, ResolvedName):
                columns.append((reference.start, name_end(part.text, reference, resolved), resolved.sql))
        taken: list[tuple[int, int, str | None]] = []
        blocked = [(call.start, call.end) for call in parsed.calls]
        whole = (0, len(part.text))
        spans = {whole, *part.inner, *((start, end) for start, end, _ in columns)}
        for first, last in sorted(spans, key=lambda span: span[0] - span[1]):
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
        """Resolve a column outside of keys and aggregates: an alias of the select list, or a mistake."""
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
        """Check an aggregate call and add it. Return the quoted column of its result; None if it has mistakes."""
        place = part.piece(call.start, call.end)
        function = self.resolver.aggregates.get(call.function) or FUNCTIONS.get(call.function)
        if function is None:
            supported = ", ".join(sorted([*AGGREGATES, *self.resolver.aggregates]))
            self.resolver.refuse(place, f"the aggregate {call.function} is not supported", f"there are {supported}")
            return None
        aggregate = Algebra.from_name(function)
        arity = aggregate.arity + (aggregate.constant is not None)
        if call.ordered:
            self.resolver.refuse(place, f"{call.function}(... ORDER BY ...) is not supported", "leave the order out")
        elif call.arguments != arity and not (aggregate.star and call.arguments == 0):
            count = {1: "one argument", 2: "two arguments"}.get(arity, f"{arity} arguments")
            self.resolver.refuse(place, f"{call.function} takes {count}")
        elif arity > 2:
            self.resolver.refuse(place, f"{call.function} takes {arity} arguments, and a query may give two")
        elif call.distinct and function not in ("count", "min", "max", "bool_and", "bool_or"):
            hint = "take the distinct values in a sub-query, and aggregate those"
            self.resolver.refuse(place, f"{call.function}(DISTINCT ...) is not supported", hint)
        else:
            return self._add_call(part, call, function, aggregate)
        return None

    def _add_call(self, part: Part, call: Call, function: str, aggregate: Algebra) -> str | None:
        place = part.piece(call.start, call.end)
        text = call_text(part, call)
        noted = len(self.resolver.mistakes)
        constant = None
        parts = list(text.arguments)
        if aggregate.constant is not None:
            constant = self._constant(parts.pop())
        expressions = [self.resolver.expression(argument, self.scope, self.child.schema) for argument in parts]
        values = [value for value in expressions if value is not None]
        condition = None
        if text.condition is not None:
            condition = self.resolver.condition(Plain(text.condition), self.scope, self.child.schema)
        if len(values) < len(expressions) or len(self.resolver.mistakes) > noted:
            return None
        distinct = call.distinct and function == "count"
        texts = [value.sql for value in values]
        if condition is not None:
            texts = [f"CASE WHEN (\n{condition.sql}\n) THEN (\n{sql}\n) END" for sql in texts or ["1"]]
        canonical_texts = [canonical(sql, ()) for sql in texts] or ["*"]
        fraction = [] if constant is None else [f"{constant!r}"]
        canon = f"{function}({'distinct ' if distinct else ''}{', '.join([*canonical_texts, *fraction])})"
        if canon not in self.calls:
            bound = [self.resolver.bind(place, sql, self.child.schema) for sql in texts]
            arguments = [argument for argument in bound if argument is not None]
            if len(arguments) < len(bound):
                return None
            kind = self._result_type(parts[0] if parts else place, aggregate, constant, arguments, distinct)
            if kind is None:
                return None
            first, second = (*arguments, None, None)[:2]
            name = f"{aggregate.name}_{len(self.calls) + 1}"
            self.calls[canon] = AggregateCall(
                name, function, first, distinct, kind, place.text, second, constant, place.line, place.column
            )
        return quoted(self.calls[canon].name)

    def _constant(self, part: Part) -> float:
        """Read the constant argument of an aggregate. The aggregate itself checks its value."""
        try:
            return float(part.text)
        except ValueError:
            self.resolver.refuse(part, f"{part.text} must be a literal number", "write it out, like 0.5")
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
            return aggregate.at(constant).result([argument.kind for argument in arguments])
        except DeclarationError as error:
            self.resolver.refuse_inside(part, error)
            return None
