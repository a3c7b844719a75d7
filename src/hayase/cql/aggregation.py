"""GROUP BY and aggregates: the keys and aggregate calls of a select, and its expressions over them.

An expression over groups consists of keys, aggregates and constants. A part of it that is written like a key, apart from
layout and case, is that key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from sqlglot import Token, TokenType, tokenize

from hayase.core.algebra import AGGREGATES, SYNONYMS
from hayase.core.algebra import Aggregate as Algebra
from hayase.core.bags import BAG_FUNCTIONS, BAG_SYNONYMS, BagFunction
from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError
from hayase.core.expressions import ParsedExpression, cast
from hayase.core.purity import Call, Reference
from hayase.cql.bag_calls import Ordering, WrittenCall, bag_call
from hayase.cql.columns import quoted
from hayase.cql.logical import Aggregate, AggregateCall, Column, Expression, Node
from hayase.cql.query_expressions import ExpressionResolver, canonical, name_end, splice
from hayase.cql.scopes import SUBQUERY, ResolvedName, Scope
from hayase.cql.syntax import Item, Part, Plain
from hayase.lifetimes.accumulators import result_type

__all__ = ["FUNCTIONS", "Groups", "call_text"]

FUNCTIONS = {**{name: name for name in (*BAG_FUNCTIONS, *AGGREGATES)}, **BAG_SYNONYMS, **SYNONYMS}
"""Names that a query may use for aggregates, with the names of the aggregates."""


@dataclass(frozen=True, slots=True)
class OrderText:
    """One entry of ORDER BY in an aggregate call."""

    part: Part
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class CallText:
    """The arguments of an aggregate call, its ORDER BY (`within`: in WITHIN GROUP), and the condition of its FILTER."""

    arguments: tuple[Part, ...] = ()
    order: tuple[OrderText, ...] = ()
    within: bool = False
    condition: Part | None = None


def call_text(part: Part, call: Call) -> CallText:
    """Return the pieces of a call in a part, as written."""
    whole = part.piece(call.start, call.end)
    text = CallText()
    for keyword, pieces in _parenthesized(tokenize(whole.text, dialect="duckdb")):
        if keyword == "filter":
            text = replace(text, condition=_piece(whole, pieces[0], "where"))
            continue
        plain = [piece for piece in pieces if piece and piece[0].token_type is not TokenType.ORDER_BY]
        order = [piece[1:] for piece in pieces if piece and piece[0].token_type is TokenType.ORDER_BY]
        if keyword == "group":
            text = replace(text, order=tuple(_order_text(whole, piece) for piece in order), within=True)
            continue
        arguments = tuple(_piece(whole, piece, "distinct", "all") for piece in plain) if call.arguments else ()
        text = replace(text, arguments=arguments, order=tuple(_order_text(whole, piece) for piece in order))
    return text


def _parenthesized(tokens: Sequence[Token]) -> Iterator[tuple[str, list[list[Token]]]]:
    """Yield the outermost parentheses of a call: the word before them, and what commas separate inside.

    The pieces of ORDER BY all begin with its token.
    """
    depth, keyword = 0, ""
    pieces: list[list[Token]] = []
    for at, token in enumerate(tokens):
        depth -= token.token_type in _CLOSING
        if depth == 0:
            if token.token_type in _OPENING:
                keyword, pieces = (tokens[at - 1].text.lower().split() or [""])[-1], [[]]
            elif token.token_type in _CLOSING and pieces:
                yield keyword, pieces
                pieces = []
        elif depth == 1 and token.token_type is TokenType.COMMA:
            pieces.append(pieces[-1][:1] if pieces[-1][:1] and pieces[-1][0].token_type is TokenType.ORDER_BY else [])
        elif depth == 1 and token.token_type is TokenType.ORDER_BY:
            pieces.append([token])
        else:
            pieces[-1].append(token)
        depth += token.token_type in _OPENING


def _piece(whole: Part, tokens: Sequence[Token], *skipped: str) -> Part:
    """Return the text of some tokens, without a word that may stand before them."""
    own = tokens[1:] if tokens[0].text.lower() in skipped and len(tokens) > 1 else tokens
    return whole.piece(own[0].start, own[-1].end + 1)


def _order_text(whole: Part, tokens: Sequence[Token]) -> OrderText:
    own = list(tokens)
    nulls_first = descending = False
    if len(own) > 2 and [token.text.lower() for token in own[-2:]] in (["nulls", "first"], ["nulls", "last"]):
        nulls_first = own[-1].text.lower() == "first"
        own = own[:-2]
    if len(own) > 1 and own[-1].text.lower() in ("asc", "desc"):
        descending = own.pop().text.lower() == "desc"
    return OrderText(_piece(whole, own), descending, nulls_first)


_GROUPING = re.compile(r"\bgrouping(?:_id)?\s*\(([^()]*)\)", re.IGNORECASE)
_LISTED = re.compile(r"[^\s,][^,]*(?<!\s)")
"""What commas separate, without the blanks around it."""
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
        above: pa.Schema | None = None,
    ):
        """`above` are columns that are joined to the groups: the values of sub-queries."""
        self.above = above or pa.schema([])
        self.resolver, self.child, self.scope, self.tag = resolver, child, scope, tag
        self.items = items
        self.aliases = {item.alias.lower(): item for item in items if item.alias}
        self.keys: dict[str, Column] = {}
        self.absent: dict[str, Column] = {}
        """The keys that are NULL because the grouping set does not have them."""
        self.calls: dict[str, AggregateCall] = {}
        self.added: list[pa.Field] = []
        """Columns that are computed from the groups by window functions, and that expressions can name."""
        self._failed: set[str] = set()
        self._reported: set[Part] = set()

    def node(self) -> Aggregate:
        """Return the aggregate: the keys, then the calls found in the expressions so far."""
        return Aggregate(self.child, tuple(self.keys.values()), tuple(self.calls.values()), self.tag)

    @property
    def schema(self) -> pa.Schema:
        """The columns that expressions over groups can name in the plan."""
        return pa.schema([*self.node().schema, *self.above, *self.added])

    # ------------------------------------------------------------------------------------------------ keys

    def choose(self, parts: Sequence[Part]) -> None:
        """Keep only the keys of one grouping set."""
        chosen = {self._canon(part) for part in parts}
        self.absent = {canon: key for canon, key in self.keys.items() if canon not in chosen}
        self.keys = {canon: key for canon, key in self.keys.items() if canon in chosen}

    def _canon(self, part: Part) -> str | None:
        """Return the canonical form of a key as it is written in GROUP BY; None if it has mistakes."""
        expression = self._key_part(part)
        parsed = self.resolver.try_parse(expression) if expression else None
        if expression is None or parsed is None:
            return None
        pieces = self.resolver.replacements(expression, parsed.columns, self.scope)
        return canonical(expression.text, pieces) if pieces is not None else None

    def _key_sql(self, canon: str) -> str | None:
        """Return the SQL of a key over the columns of the groups; None if it has mistakes."""
        if canon in self.keys:
            return quoted(self.keys[canon].name)
        return cast("NULL", self.absent[canon].value.kind) if canon in self.absent else None

    def _without_grouping(self, part: Part) -> Part:
        """Replace GROUPING(keys): a number with a bit for each key, 1 if the grouping set does not have it."""
        match = _GROUPING.search(part.text)
        while match is not None:
            keys = [
                self._canon(part.piece(*key.span()))
                for key in _LISTED.finditer(part.text, match.start(1), match.end(1))
            ]
            for key in keys:
                if key not in self.keys and key not in self.absent:
                    place = part.piece(*match.span())
                    self.resolver.refuse(place, "GROUPING takes expressions of GROUP BY", "write one of those")
            value = str(sum((key in self.absent) << at for at, key in enumerate(reversed(keys))))
            text = part.text[: match.start()] + value.ljust(match.end() - match.start()) + part.text[match.end() :]
            part = replace(part, text=text)
            match = _GROUPING.search(part.text)
        return part

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
        return self.resolver.bind(plain.part, sql, self.schema, boolean=True) if sql is not None else None

    def expression(self, part: Part) -> Expression | None:
        """Resolve an entry of the select list."""
        sql = self._group_sql(part, aliases=False)
        return self.resolver.bind(part, sql, self.schema) if sql is not None else None

    def column(self, part: Part, name: str, sql: str) -> Expression | None:
        """Resolve a column of a star, which must be a key. Only the first column of a star that is none is reported."""
        if sql in self.keys or sql in self.absent:
            return self.resolver.bind(part, self._key_sql(sql) or "", self.schema)
        if sql not in self._failed and part not in self._reported:
            self._reported.add(part)
            hint = "group by it, or count or sum it"
            self.resolver.refuse(part, f'"{name}" is neither in GROUP BY nor in an aggregate', hint)
        return None

    def _group_sql(self, part: Part, aliases: bool) -> str | None:
        """Return the SQL of a part over the columns of the groups; None if it has mistakes."""
        part = self._without_grouping(part)
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
            if canon in self.keys or canon in self.absent or canon in self._failed:
                taken.append((first, last, self._key_sql(canon)))
                blocked.append((first, last))
        return taken

    def _column(self, part: Part, reference: Reference, aliases: bool) -> tuple[int, int, str | None]:
        """Resolve a column outside of keys and aggregates: an alias of the select list, or a mistake."""
        name = reference.parts[0].lower()
        if any(field.name == name for field in self.added):
            return reference.start, reference.end, quoted(name)
        alias = self.aliases.get(name) if aliases and len(reference.parts) == 1 else None
        if alias is not None:
            sql = self._group_sql(alias.part, aliases=False)
            return reference.start, reference.end, f"({sql})" if sql is not None else None
        flat = f"{SUBQUERY}.{name}"
        if flat in self.above.names:
            return reference.start, reference.end, quoted(flat)
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
            supported = ", ".join(sorted({*AGGREGATES, *BAG_FUNCTIONS, *self.resolver.aggregates}))
            self.resolver.refuse(place, f"the aggregate {call.function} is not supported", f"there are {supported}")
            return None
        text = call_text(part, call)
        bag = _function_of_bags(function, call, text)
        if bag is not None:
            return self._add_bag_call(place, call, text, function, bag)
        aggregate = Algebra.from_name(function)
        arity = aggregate.arity + (aggregate.constant is not None)
        if call.arguments != arity and not (aggregate.star and call.arguments == 0):
            count = {1: "one argument", 2: "two arguments"}.get(arity, f"{arity} arguments")
            self.resolver.refuse(place, f"{call.function} takes {count}")
        elif call.distinct and function not in ("count", "min", "max", "bool_and", "bool_or"):
            hint = "take the distinct values in a sub-query, and aggregate those"
            self.resolver.refuse(place, f"{call.function}(DISTINCT ...) is not supported", hint)
        else:
            return self._add_call(part, call, function, aggregate)
        return None

    def _add_bag_call(
        self, place: Part, call: Call, text: CallText, function: str, bag: BagFunction | Algebra
    ) -> str | None:
        """Check a call that is recomputed from the rows of a group, and add it."""
        noted = len(self.resolver.mistakes)
        written = self._written(place, call, text, bag)
        if written is None or len(self.resolver.mistakes) > noted:
            return None
        number, constant = len(self.calls) + 1, None
        arguments = written.arguments
        if isinstance(bag, Algebra):
            constant = float(written.constants[0]) if bag.constant is not None else None
        name = f"{bag.name}_{number}"
        plain = AggregateCall(
            name, function, None, False, pa.null(), place.text, None, constant, place.line, place.column
        )
        try:
            complete = bag_call(plain, bag, written, self.child)
        except DeclarationError as error:
            self.resolver.refuse(arguments_place(place, arguments), error.mistakes[0].message, error.mistakes[0].hint)
            return None
        assert complete.template is not None
        canon = complete.template.format(*(canonical(value.sql, ()) for value in complete.more))
        self.calls.setdefault(f"{function} {canon}", complete)
        return quoted(self.calls[f"{function} {canon}"].name)

    def _written(self, place: Part, call: Call, text: CallText, bag: BagFunction | Algebra) -> WrittenCall | None:
        """Resolve the pieces of a call, and check how many there are."""
        if isinstance(bag, Algebra):
            columns, least, most = bag.arity, *[int(bag.constant is not None)] * 2
        else:
            columns, (least, most) = bag.columns, bag.constants
        parts, order = list(text.arguments), list(text.order)
        descending = False
        if text.within:
            if isinstance(bag, Algebra) or not bag.within or len(order) != 1:
                self.resolver.refuse(
                    place, f"{call.function} with this WITHIN GROUP is not supported", "write (ORDER BY x)"
                )
                return None
            entry = order.pop()
            descending = entry.descending
            parts.insert(0, entry.part)
        if not columns + least <= len(parts) <= columns + most:
            counts = [
                {1: "one argument", 2: "two arguments"}.get(n, f"{n} arguments")
                for n in {columns + least, columns + most}
            ]
            self.resolver.refuse(place, f"{call.function} takes {' or '.join(sorted(counts))}", _SHAPES.get(bag.name))
            return None
        if call.distinct and (isinstance(bag, Algebra) or not bag.distinct):
            hint = "take the distinct values in a sub-query, and aggregate those"
            self.resolver.refuse(place, f"{call.function}(DISTINCT ...) is not supported", hint)
        constants = tuple(
            constant for part in parts[columns:] if (constant := self._constant_sql(part, bag)) is not None
        )
        resolve = partial(self.resolver.expression, scope=self.scope, schema=self.child.schema)
        arguments = tuple(value for part in parts[:columns] if (value := resolve(part)) is not None)
        orders = tuple(
            Ordering(value, entry.descending, entry.nulls_first)
            for entry in order
            if (value := resolve(entry.part)) is not None
        )
        if call.distinct and any(entry.value.sql != arguments[0].sql for entry in orders[:1] if arguments):
            hint = "order by the argument itself, or leave the order out"
            self.resolver.refuse(place, f"{call.function}(DISTINCT ...) cannot be ordered by another column", hint)
        condition = None
        if text.condition is not None:
            condition = self.resolver.condition(Plain(text.condition), self.scope, self.child.schema)
        return WrittenCall(arguments, constants, call.distinct, orders, condition, descending)

    def _constant_sql(self, part: Part, bag: BagFunction | Algebra) -> str | None:
        """Return a constant argument as written; None, with a mistake, if it is none."""
        parsed = self.resolver.parse(part)
        if parsed is None:
            return None
        whole = bag.name in ("min", "max", "arg_min", "arg_max")
        if parsed.columns or parsed.calls or (whole and not (part.text.isdecimal() and int(part.text) > 0)):
            hint = "write a whole number, like 3" if whole else "write it out, like 0.5"
            self.resolver.refuse(part, f"{part.text} must be a literal {'number' if whole else 'value'}", hint)
            return None
        return part.text

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


_SHAPES = {
    "quantile_cont": "write quantile_cont(x, 0.5), or percentile_cont(0.5) within group (order by x)",
    "quantile_disc": "write quantile_disc(x, 0.5), or percentile_disc(0.5) within group (order by x)",
    "string_agg": "write string_agg(x, ', ')",
}


def arguments_place(place: Part, arguments: Sequence[Expression]) -> Part:
    """Return the place of the first argument of a call, or that of the call if it has none."""
    return Part(arguments[0].text, arguments[0].line, arguments[0].column) if arguments else place


def _function_of_bags(function: str, call: Call, text: CallText) -> BagFunction | Algebra | None:
    """Return what computes a call that only the rows of a group determine; None if it may be maintained.

    `first` and the like are maintained over windows of a stream, and become functions of bags elsewhere (`bag_calls`).
    """
    bag = BAG_FUNCTIONS.get(function)
    if bag is None or function in AGGREGATES:
        aggregate = Algebra.from_name(function)
        ordered = call.ordered and not aggregate.laws.commutative
        if bag is None:
            is_bag = ordered or aggregate.arity > 2 or (call.filtered and aggregate.keeps_nulls)
            return aggregate if is_bag else None
        given, constants = len(text.arguments), bag.constants[1]
        summed = bag.distinct and call.distinct
        if not (
            summed or ordered or (call.filtered and aggregate.keeps_nulls) or (constants and given > aggregate.arity)
        ):
            return None
    return bag
