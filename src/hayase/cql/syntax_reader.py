"""Converts sqlglot's tree into the syntax of a query. Whatever CQL does not support is refused by name, with its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from sqlglot import Token, TokenType, exp

from hayase.core.errors import DeclarationError, Mistake
from hayase.cql.syntax import (
    Combined,
    Condition,
    Item,
    Joined,
    Membership,
    Named,
    Nested,
    Part,
    Plain,
    Query,
    Relation,
    Select,
    WindowText,
)  # fmt: skip
from hayase.cql.windows_text import read_window
from hayase.lifetimes.plans import JoinKind

__all__ = ["Reader", "position"]

_FIRST = "write: select ... from ..."
_NO_ORDER = "a relation has neither order nor end"
_ALONE = "write it in WHERE, alone or combined with AND"
_IN_FROM = "put the sub-query into FROM and join with it"

_CLAUSES: dict[str, tuple[str, TokenType, str | None]] = {
    "laterals": ("LATERAL", TokenType.LATERAL, "join with a condition instead"),
    "qualify": ("QUALIFY", TokenType.QUALIFY, None),
    "windows": ("WINDOW", TokenType.WINDOW, "write the window in [brackets] after a stream"),
    "order": ("ORDER BY", TokenType.ORDER_BY, _NO_ORDER),
    "limit": ("LIMIT", TokenType.LIMIT, _NO_ORDER),
    "offset": ("OFFSET", TokenType.OFFSET, _NO_ORDER),
    "sample": ("sampling", TokenType.USING, None),
    "into": ("INTO", TokenType.INTO, "the result is a stream of the query's name"),
    "by_name": ("BY NAME", TokenType.UNION, "columns are matched by position"),
}
_SELECT = {"expressions", "from_", "where", "group", "joins", "having", "distinct", "with_"}
_COMBINED = {"this", "expression", "distinct", "with_"}
_GROUPINGS = (exp.GroupingSets, exp.Rollup, exp.Cube)
_KINDS: dict[tuple[str, str], JoinKind] = {
    ("", ""): "inner", ("", "INNER"): "inner", ("", "CROSS"): "inner", ("", "SEMI"): "semi", ("", "ANTI"): "anti",
    ("LEFT", ""): "left", ("RIGHT", ""): "right", ("FULL", ""): "full",
    ("LEFT", "OUTER"): "left", ("RIGHT", "OUTER"): "right", ("FULL", "OUTER"): "full",
}  # fmt: skip

_Names = Mapping[str, Query]
"""The queries that WITH names, in lower case."""


def position(text: str, offset: int) -> tuple[int, int]:
    """Return the line and column of an offset, counted from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


class Reader:
    """Converts the trees of one text, and collects mistakes so that all are reported at once."""

    def __init__(self, text: str, tokens: Sequence[Token]):
        self.text, self.tokens = text, tokens
        self.mistakes: list[Mistake] = []

    # ------------------------------------------------------------------------------------------------ queries

    def query(self, tree: exp.Expr, names: _Names) -> Query | None:
        """Convert a query; return None if it has mistakes that leave nothing to convert."""
        if isinstance(tree, exp.Subquery) and not isinstance(tree.this, exp.Table):
            self._clauses(tree, {"this", "alias", "with_"})
            return self.query(tree.this, self._with(tree, names))
        if isinstance(tree, exp.Select):
            return self._select(tree, self._with(tree, names))
        if isinstance(tree, exp.SetOperation):
            return self._combined(tree, self._with(tree, names))
        if isinstance(tree, exp.Values):
            self._refuse("VALUES", self._start(tree), "append the rows to a stream")
        else:
            self._add_mistake(self.tokens[0].start, "a query begins with select", _FIRST)
        return None

    def _with(self, tree: exp.Expr, names: _Names) -> _Names:
        clause = tree.args.get("with_")
        if clause is None:
            return names
        if clause.args.get("recursive"):
            self._refuse("WITH RECURSIVE", self._clause(clause, TokenType.WITH), "a query cannot read itself")
            return names
        known = dict(names)
        for cte in clause.expressions:
            if cte.args["alias"].args.get("columns"):
                self._refuse("column aliases after a name", self._start(cte.this), "use AS in the select list", True)
            if (query := self.query(cte.this, known)) is not None:
                known[cte.alias.lower()] = query
        return known

    def _combined(self, tree: exp.SetOperation, names: _Names) -> Query | None:
        self._clauses(tree, _COMBINED)
        left, right = self.query(tree.this, names), self.query(tree.expression, names)
        if left is None or right is None:
            return None
        kind: Literal["union", "except", "intersect"] = "union"
        if not isinstance(tree, exp.Union):
            kind = "except" if isinstance(tree, exp.Except) else "intersect"
        return Combined(right.part, kind, not tree.args.get("distinct"), left, right)

    def _select(self, tree: exp.Select, names: _Names) -> Query | None:
        self._clauses(tree, _SELECT)
        distinct = tree.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            place = self._clause(distinct, TokenType.DISTINCT)
            self._refuse("DISTINCT ON", place, "use GROUP BY with min or max")
        items = [self._item(node) for node in tree.expressions]
        if not items:
            self._add_mistake(self._start(tree), "the select list is empty", "write select * to take all columns")
        clause = tree.args.get("from_")
        if clause is None:
            self._add_mistake(self._start(tree), "a query needs a stream", _FIRST)
        source = self._table(clause.this, names) if clause else None
        source = self._joined(source, tree.args.get("joins") or (), names)
        where = self._conditions(tree.args.get("where"), names)
        having = self._plain(tree.args.get("having"))
        group = self._group(tree.args.get("group"))
        if source is None:
            return None
        part = self._part(self._start(tree.expressions[0]) if items else 0, "select")
        kept = tuple(item for item in items if item is not None)
        return Select(part, kept, source, tuple(where), tuple(group), tuple(having), distinct is not None)

    def _item(self, node: exp.Expr) -> Item | None:
        bare = node.unalias()
        inner = bare.unnest()
        if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
            star = inner if isinstance(inner, exp.Star) else inner.this
            if isinstance(node, exp.Alias):
                self._refuse("* AS", self._start(bare))
            for name, value in star.args.items():
                if value:
                    self._refuse(f"* {name.strip('_').upper()}", self._start(bare), "name the columns")
            of = inner.table if isinstance(inner, exp.Column) else None
            return Item(self._part(self._start(bare), "*"), star=True, of=of)
        part = self._expression(bare)
        return Item(part, node.alias if isinstance(node, exp.Alias) else None) if part else None

    def _group(self, group: exp.Expr | None) -> Iterator[Part]:
        if group is None:
            return
        place = self._clause(group, TokenType.GROUP_BY)
        hint = "write one query for each grouping"
        for name, value in group.args.items():
            if name != "expressions" and value is not None and value != []:
                what = name.upper().replace("_", " ")
                self._refuse(f"GROUP BY {what}", place, "name the columns" if what == "ALL" else hint)
        for node in group.expressions:
            if isinstance(node, _GROUPINGS):
                what = "GROUPING SETS" if isinstance(node, exp.GroupingSets) else type(node).__name__.upper()
                self._refuse(f"GROUP BY {what}", place, hint)
            elif part := self._expression(node):
                yield part

    def _clauses(self, tree: exp.Expr, read: set[str]) -> None:
        """Refuse every clause that is not in `read`."""
        for name, value in tree.args.items():
            if value and name not in read:
                what, token, hint = _CLAUSES.get(name, (name.strip("_").upper(), TokenType.SELECT, None))
                self._refuse(what, self._clause(value, token), hint)

    # ------------------------------------------------------------------------------------------------ relations

    def _joined(self, relation: Relation | None, joins: Iterable[exp.Expr], names: _Names) -> Relation | None:
        """Convert a relation and its joins. JOIN binds more tightly than a comma, as in SQL."""
        relations = [relation]
        for join in joins:
            if self.text[self._start(join)] == ",":
                relations.append(self._table(join.this, names))
            else:
                relations[-1] = self._join(relations[-1], join, names)
        joined = relations[0]
        for other in relations[1:]:
            joined = Joined(other.part, "inner", joined, other) if joined and other else None
        return joined

    def _join(self, left: Relation | None, join: exp.Expr, names: _Names) -> Relation | None:
        place = self._start(join)
        method, side, kind = (str(join.args.get(key) or "") for key in ("method", "side", "kind"))
        join_kind = _KINDS.get((side, kind)) if not method else None
        if join_kind is None:
            what = " ".join(word for word in (method, side, kind) if word)
            self._refuse(f"{what} JOIN", place, "write JOIN ... ON")
        for name, value in join.args.items():
            if value and name not in ("this", "method", "side", "kind", "on", "using"):
                self._refuse(name.strip("_").upper(), place)
        right = self._table(join.this, names)
        on = tuple(self._plain(join.args.get("on")))
        using = tuple(self._part(self._start(column), column.name) for column in join.args.get("using") or ())
        if left is None or right is None or join_kind is None:
            return None
        return Joined(self._part(place, "join"), join_kind, left, right, on, using)

    def _table(self, node: exp.Expr, names: _Names) -> Relation | None:
        place = self._start(node)
        joins = node.args.get("joins") or ()
        if isinstance(node, exp.Lateral):
            self._refuse("LATERAL", self._before(place, TokenType.LATERAL), "join with a condition instead")
        elif isinstance(node, exp.Values) or (isinstance(node, exp.Table) and isinstance(node.this, exp.Values)):
            self._refuse("VALUES", place, "append the rows to a stream")
        elif isinstance(node, exp.Subquery):
            return self._joined(self._subquery(node, place, names), joins, names)
        elif not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            self._refuse("table functions", place, "a query reads streams and other queries", plural=True)
        elif node.args.get("db"):
            message = f'"{node.sql(dialect="duckdb")}" is not a stream'
            self._add_mistake(place, message, "write its plain name")
        else:
            return self._joined(self._stream(node, place, names), joins, names)
        return None

    def _stream(self, node: exp.Table, place: int, names: _Names) -> Relation | None:
        for name, value in node.args.items():
            if value and name not in ("this", "alias", "joins"):
                self._refuse(name.strip("_").upper(), place)
        alias, windows = self._alias(node)
        part = self._part(place, node.name)
        if node.name.lower() in names:
            self._unwindowed(windows)
            return Nested(part, names[node.name.lower()], alias or node.name)
        if len(windows) > 1:
            self._add_mistake(windows[1][0], "a stream has one window", "remove one of the two")
        return Named(part, alias, self._window(windows[0]) if windows else None)

    def _subquery(self, node: exp.Subquery, place: int, names: _Names) -> Relation | None:
        self._clauses(node, {"this", "alias", "joins", "with_"})
        alias, windows = self._alias(node)
        self._unwindowed(windows)
        if isinstance(node.this, exp.Table) or (isinstance(node.this, exp.Subquery) and _is_table(node.this)):
            if alias is not None:
                self._refuse("an alias after a joined relation", place, "name the streams in it")
            return self._table(node.this, names)
        query = self.query(node.this, self._with(node, names))
        return Nested(self._part(place, "("), query, alias) if query else None

    def _alias(self, node: exp.Expr) -> tuple[str | None, list[tuple[int, int]]]:
        """Return the alias of a relation, and the spans of the windows before or after it."""
        alias = node.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            self._refuse("column aliases after a name", self._start(node), "use AS in a select list", plural=True)
        spans = [owner.meta["window"] for owner in (node, alias) if owner is not None and "window" in owner.meta]
        name = node.alias or None
        if name is not None and "." in name:
            message = f'"{name}" cannot name a relation'
            self._add_mistake(self._start(node), message, "leave the dot out")
        return name, spans

    def _unwindowed(self, windows: Sequence[tuple[int, int]]) -> None:
        for first, _ in windows:
            self._refuse("a window after a sub-query", first, "write it after the stream, inside")

    def _window(self, span: tuple[int, int]) -> WindowText | None:
        try:
            return read_window(self._part(span[0], self.text[slice(*span)]))
        except DeclarationError as error:
            self.mistakes += error.mistakes
            return None

    # ------------------------------------------------------------------------------------------------ conditions

    def _plain(self, clause: exp.Expr | None) -> Iterator[Plain]:
        """Yield the conditions of ON or HAVING, where sub-queries are not supported."""
        for condition in self._conditions(clause, {}, members=False):
            if isinstance(condition, Plain):
                yield condition

    def _conditions(self, clause: exp.Expr | None, names: _Names, members: bool = True) -> list[Condition]:
        if clause is None:
            return []
        node = clause.this if isinstance(clause, (exp.Where, exp.Having)) else clause
        return list(self._conjuncts(node, names, members))

    def _conjuncts(self, node: exp.Expr, names: _Names, members: bool) -> Iterator[Condition]:
        inner = node.unnest()
        if isinstance(inner, exp.And):
            yield from self._conjuncts(inner.this, names, members)
            yield from self._conjuncts(inner.expression, names, members)
            return
        positive = inner.this.unnest() if isinstance(inner, exp.Not) else inner
        if members and _is_membership(positive):
            yield from self._membership(node, positive, isinstance(inner, exp.Not), names)
        elif part := self._expression(node):
            sides = (inner.this, inner.expression) if isinstance(inner, exp.EQ) else ()
            written = [self._expression(side) for side in sides]
            yield Plain(part, (written[0], written[1]) if len(written) == 2 and written[0] and written[1] else None)

    def _membership(self, whole: exp.Expr, node: exp.Expr, negated: bool, names: _Names) -> Iterator[Condition]:
        part = self._part(self._start(whole), "")
        value = None
        if isinstance(node, exp.In):
            if isinstance(node.this.unnest(), exp.Tuple):
                self._refuse("IN with several values", self._start(node), "write EXISTS with one condition for each")
            value = self._expression(node.this)
        query = self.query(node.args["query"] if isinstance(node, exp.In) else node.this, names)
        if query is not None and (value is not None or isinstance(node, exp.Exists)):
            yield Membership(part, negated, value, query)

    # ------------------------------------------------------------------------------------------------ expressions

    def _expression(self, node: exp.Expr) -> Part | None:
        """Return an expression as written; None if something in it is refused."""
        refused = next(
            (
                inner_node
                for inner_node in node.walk()
                if isinstance(inner_node, (exp.Query, exp.Exists)) or _is_in(inner_node)
            ),
            None,
        )
        if isinstance(refused, exp.Exists) and not isinstance(refused.this, exp.Query):
            refused = None  # the function `exists` over a list
        if refused is not None:
            self._subexpression(refused, node)
            return None
        if "span" not in node.meta:
            self._add_mistake(self._start(node), f'"{node.sql(dialect="duckdb")}" is not an expression')
            return None
        first, last = node.meta["span"]
        spans = {span for span in map(_extent, node.walk()) if span and first <= span[0] and span[1] <= last}
        inner = sorted(((start - first, end - first) for start, end in spans), key=lambda piece: (piece[0], -piece[1]))
        return Part(self.text[first:last], *position(self.text, first), tuple(inner))

    def _subexpression(self, node: exp.Expr, whole: exp.Expr) -> None:
        place = min(self._start(node), self._start(whole)) if "span" not in node.meta else self._start(node)
        if isinstance(node, exp.Exists):
            self._refuse("EXISTS inside an expression", place, _ALONE)
        elif isinstance(node, exp.In):
            self._refuse("IN with a sub-query inside an expression", place, _ALONE)
        elif isinstance(node.parent, (exp.Any, exp.All)):
            self._refuse("ANY or ALL with a sub-query", place, "use IN or EXISTS in WHERE")
        else:
            self._refuse("a scalar sub-query", self._before(place, TokenType.L_PAREN), _IN_FROM)

    # ------------------------------------------------------------------------------------------------ places

    def _part(self, offset: int, text: str) -> Part:
        return Part(text, *position(self.text, offset))

    def _start(self, node: exp.Expr) -> int:
        """Return the offset at which a node begins; 0 if the parser has not recorded it."""
        spans: list[int] = [inner.meta["span"][0] for inner in node.walk() if "span" in inner.meta]
        starts: list[int] = [inner.meta["start"] for inner in node.walk() if "start" in inner.meta]
        return min(spans or starts or [0])

    def _clause(self, value: Any, kind: TokenType) -> int:
        """Return the offset of the keyword of a clause; `value` is what follows the keyword."""
        nodes = [node for node in (value if isinstance(value, list) else [value]) if isinstance(node, exp.Expr)]
        place = min((self._start(node) for node in nodes), default=0)
        return self._before(place or len(self.text), kind)

    def _before(self, offset: int, kind: TokenType) -> int:
        """Return the offset of the last token of a kind up to an offset; the offset itself if there is none."""
        starts = [token.start for token in self.tokens if token.token_type is kind and token.start <= offset]
        return starts[-1] if starts else min(offset, max(0, len(self.text) - 1))

    def _refuse(self, what: str, offset: int, hint: str | None = None, plural: bool = False) -> None:
        self._add_mistake(offset, f"{what} {'are' if plural else 'is'} not supported", hint)

    def _add_mistake(self, offset: int, message: str, hint: str | None = None) -> None:
        self.mistakes.append(self._part(offset, "").mistake(message, hint))


def _is_table(node: exp.Subquery) -> bool:
    inner = node.this
    return isinstance(inner, exp.Table) or (isinstance(inner, exp.Subquery) and _is_table(inner))


def _is_in(node: exp.Expr) -> bool:
    return isinstance(node, exp.In) and node.args.get("query") is not None


def _is_membership(node: exp.Expr) -> bool:
    return _is_in(node) or (isinstance(node, exp.Exists) and isinstance(node.this, exp.Query))


def _extent(node: exp.Expr) -> tuple[int, int] | None:
    """Return the span of a node. In a chain like `a + b + c` the parser records none for inner nodes: take that of their ends."""
    if "span" in node.meta:
        first, last = node.meta["span"]
        return int(first), int(last)
    if isinstance(node, exp.Binary):
        left, right = _extent(node.this), _extent(node.expression)
        return (left[0], right[1]) if left and right else None
    return None
