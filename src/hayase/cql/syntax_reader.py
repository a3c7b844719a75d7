"""Converts sqlglot's tree into the syntax of a query. Whatever CQL does not support is refused by name, with its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, product
from typing import Any, Literal

from sqlglot import Token, TokenType, exp

from hayase.core.errors import DeclarationError, Mistake
from hayase.cql.named_windows import NamedWindows
from hayase.cql.over_text import outermost, read_over
from hayase.cql.syntax import (
    Combined,
    Condition,
    Constant,
    Item,
    Joined,
    Membership,
    Named,
    Nested,
    Ordering,
    OrderItem,
    OverText,
    Part,
    Plain,
    Query,
    Relation,
    Select,
    StarChange,
    Subquery,
    Unnested,
    WindowText,
    normalize_token,
)  # fmt: skip
from hayase.cql.window_functions import read_window_call
from hayase.cql.windows_text import read_window
from hayase.lifetimes.plans import JoinKind

__all__ = ["Reader", "position"]

_FIRST = "write: select ... from ..."
_JSON_EACH = "write unnest(j::json[]) for an array in json, unnest(json_keys(j)) for the names of an object"
_FILTERED = "filter a side of the join: left join (select ... from b where exists (...)) as b on ..."
_ALONE = "write it in WHERE or in the select list"
_IN_FROM = "write it in WHERE, in HAVING or in the select list, or put the sub-query into FROM and join with it"

_CLAUSES: dict[str, tuple[str, TokenType, str | None]] = {
    "laterals": ("LATERAL", TokenType.LATERAL, "join with a condition instead"),
    "sample": ("sampling", TokenType.USING, None),
    "into": ("INTO", TokenType.INTO, "the result is a stream of the query's name"),
}
_ORDERING = {"order", "limit", "offset"}
_SELECT = {
    "expressions", "from_", "where", "group", "joins", "having", "distinct", "with_", "qualify", "windows", *_ORDERING,
}  # fmt: skip
_COMBINED = {"this", "expression", "distinct", "with_", "by_name", *_ORDERING}
_MOST_ROWS = 64
"""The rows that VALUES may have: each is a branch of the plan."""
_MOST_SETS = 64
"""The grouping sets that a query may have: each is an aggregate of its own."""
_KINDS: dict[tuple[str, str], JoinKind] = {
    ("", ""): "inner", ("", "INNER"): "inner", ("", "CROSS"): "inner", ("", "SEMI"): "semi", ("", "ANTI"): "anti",
    ("LEFT", ""): "left", ("RIGHT", ""): "right", ("FULL", ""): "full",
    ("LEFT", "OUTER"): "left", ("RIGHT", "OUTER"): "right", ("FULL", "OUTER"): "full",
}  # fmt: skip

_SIGNS: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.GTE: ">=", exp.GT: ">", exp.LTE: "<=", exp.LT: "<"}
_Names = Mapping[str, tuple[Query, tuple[str, ...]]]
"""The queries that WITH names, in lower case, with the aliases of their columns."""


def position(text: str, offset: int) -> tuple[int, int]:
    """Return the line and column of an offset, counted from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


class Reader:
    """Converts the trees of one text, and collects mistakes so that all are reported at once."""

    def __init__(self, text: str, tokens: Sequence[Token]):
        self.text, self.tokens = text, tokens
        self.mistakes: list[Mistake] = []
        self._windows = NamedWindows(self)

    # ------------------------------------------------------------------------------------------------ queries

    def query(self, tree: exp.Expr, names: _Names) -> Query | None:
        """Convert a query; return None if it has mistakes that leave nothing to convert."""
        if "stream" in tree.meta:
            name = str(tree.meta["stream"]).capitalize()
            hint = "write it before the query, in parentheses, or before a sub-query in FROM"
            self._add_mistake(self._start(tree), f"{name} must enclose a whole query, once", hint)
            return None
        if isinstance(tree, exp.Subquery) and not isinstance(tree.this, exp.Table):
            self._clauses(tree, {"this", "alias", "with_", *_ORDERING})
            inner, ordering = self.query(tree.this, self._with(tree, names)), self._ordering(tree)
            if inner is None or ordering is None:
                return inner
            star = Item(inner.part, star=True)
            return Select(inner.part, (star,), Nested(inner.part, inner), ordering=ordering)
        if isinstance(tree, exp.Select):
            around, self._windows = self._windows, NamedWindows(self, tree)
            select = self._select(tree, self._with(tree, names))
            self._windows = around
            return select
        if isinstance(tree, exp.SetOperation):
            return self._combined(tree, self._with(tree, names))
        if isinstance(tree, exp.Values):
            source = self._values(tree, names)
            return Select(source.part, (Item(source.part, star=True),), source) if source else None
        self._add_mistake(self.tokens[0].start, "a query begins with select", _FIRST)
        return None

    def _with(self, tree: exp.Expr, names: _Names) -> _Names:
        clause = tree.args.get("with_")
        if clause is None:
            return names
        if clause.args.get("recursive"):
            self.refuse("WITH RECURSIVE", self._clause(clause, TokenType.WITH), "a query cannot read itself")
            return names
        known = dict(names)
        for cte in clause.expressions:
            if (query := self.query(cte.this, known)) is not None:
                known[cte.alias.lower()] = query, _column_aliases(cte)
        return known

    def _combined(self, tree: exp.SetOperation, names: _Names) -> Query | None:
        self._clauses(tree, _COMBINED)
        left, right = self.query(tree.this, names), self.query(tree.expression, names)
        if left is None or right is None:
            return None
        kind: Literal["union", "except", "intersect"] = "union"
        if not isinstance(tree, exp.Union):
            kind = "except" if isinstance(tree, exp.Except) else "intersect"
        by_name = bool(tree.args.get("by_name"))
        return Combined(right.part, kind, not tree.args.get("distinct"), left, right, self._ordering(tree), by_name)

    def _select(self, tree: exp.Select, names: _Names) -> Query | None:
        self._clauses(tree, _SELECT)
        distinct = tree.args.get("distinct")
        on = distinct.args.get("on") if distinct is not None else None
        keys = (
            [self.expression(node) for node in (on.expressions if isinstance(on, exp.Tuple) else [on.unnest()])]
            if on
            else []
        )
        items = [self._item(node, names) for node in tree.expressions]
        if not items:
            self._add_mistake(self._start(tree), "the select list is empty", "write select * to take all columns")
        clause = tree.args.get("from_")
        source = self._table(clause.this, names) if clause else Constant(self.part(self._start(tree), "select"))
        source = self._joined(source, tree.args.get("joins") or (), names)
        where = self._conditions(tree.args.get("where"), names)
        having = self._plain(tree.args.get("having"), names)
        group, sets = self._group(tree.args.get("group"))
        qualify = list(self._plain(tree.args.get("qualify"), None))
        ordering = self._ordering(tree)
        if source is None:
            return None
        part = self.part(self._start(tree.expressions[0]) if items else 0, "select")
        kept = tuple(item for item in items if item is not None)
        group_all = tree.args.get("group") is not None and bool(tree.args["group"].args.get("all"))
        return Select(
            part, kept, source, tuple(where), group, tuple(having), distinct is not None and not on,
            tuple(key for key in keys if key), tuple(qualify), ordering, sets, group_all,
        )  # fmt: skip

    def _ordering(self, tree: exp.Expr) -> Ordering | None:
        """Convert ORDER BY, LIMIT or FETCH FIRST, and OFFSET."""
        order, limit, offset = (tree.args.get(name) for name in ("order", "limit", "offset"))
        if not (order or limit or offset):
            return None
        place = self._clause(order or limit or offset, TokenType.ORDER_BY)
        items = [self.order_item(node) for node in order.expressions] if order else []
        options = limit.args.get("limit_options") if limit else None
        if limit is not None and options is not None and options.args.get("percent"):
            self.refuse("LIMIT in percent", self._start(limit), "write a number of rows")
        ties = bool(options is not None and options.args.get("with_ties"))
        if limit is not None and ties and not items:
            self._add_mistake(self._start(limit), "WITH TIES needs an order", "write ORDER BY before it")
        count = None
        if limit is not None:
            count = self._count("LIMIT", limit.args.get("count" if isinstance(limit, exp.Fetch) else "expression"), 1)
        skipped = self._count("OFFSET", offset.expression, 0) if offset else 0
        return Ordering(self.part(place, "order"), tuple(item for item in items if item), count, skipped, ties)

    def order_item(self, node: exp.Expr) -> OrderItem | None:
        if isinstance(node.this, exp.Var):
            self.refuse(
                "ORDER BY ALL",
                self._start(node) or self._before(len(self.text), TokenType.ORDER_BY),
                "name the columns",
            )
            return None
        part = self.expression(node.this)
        return OrderItem(part, bool(node.args.get("desc")), bool(node.args.get("nulls_first"))) if part else None

    def _count(self, what: str, node: exp.Expr | None, least: int) -> int:
        """Return the number of rows of LIMIT or OFFSET."""
        if node is None:  # FETCH FIRST ROW
            return 1
        if isinstance(node, exp.Literal) and not node.is_string and node.this.isdecimal() and int(node.this) >= least:
            return min(int(node.this), 1 << 62)
        hint = "leave the clause out to keep all rows" if what == "LIMIT" else None
        self._add_mistake(self._start(node), f"{what} takes a whole number from {least} on", hint)
        return least

    def _item(self, node: exp.Expr, names: _Names) -> Item | None:
        bare = node.unalias()
        inner = bare.unnest()
        if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
            star = inner if isinstance(inner, exp.Star) else inner.this
            if isinstance(node, exp.Alias):
                self.refuse("* AS", self._start(bare))
            of = inner.table if isinstance(inner, exp.Column) else None
            changes = tuple(self._star_changes(star))
            return Item(self.part(self._start(bare), "*"), star=True, of=of, changes=changes)
        part = self.expression(bare, names, in_list=True)
        return Item(part, node.alias if isinstance(node, exp.Alias) else None) if part else None

    def _star_changes(self, star: exp.Expr) -> Iterator[StarChange]:
        """Yield what EXCLUDE, REPLACE and RENAME after a star do with its columns."""
        for entry in star.args.get("except_") or ():
            yield StarChange(self.part(self._start(entry), entry.name))
        for entry in star.args.get("replace") or ():
            value = self.expression(entry.this)
            if value is not None:
                yield StarChange(self.part(self._start(entry), entry.alias), value)
        for entry in star.args.get("rename") or ():
            yield StarChange(self.part(self._start(entry), entry.this.name), new=entry.alias)

    def _group(self, group: exp.Expr | None) -> tuple[tuple[Part, ...], tuple[tuple[int, ...], ...] | None]:
        """Return the expressions of GROUP BY, each once, and its grouping sets, as places among them; None if it has none."""
        if group is None:
            return (), None
        place = self._clause(group, TokenType.GROUP_BY)
        for name, value in group.args.items():
            if name not in ("expressions", "all") and value is not None and value != []:
                self.refuse(f"GROUP BY {name.upper().replace('_', ' ')}", place, "write GROUP BY ROLLUP (...)")
        parts: dict[str, Part] = {}

        def placed(node: exp.Expr) -> tuple[int, ...]:
            part = self.expression(node)
            if part is not None:
                parts.setdefault(normalize_token(part.text), part)
            return (list(parts).index(normalize_token(part.text)),) if part is not None else ()

        sets = [
            tuple(dict.fromkeys(chain(*chosen)))
            for chosen in product(*(_sets(node, placed) for node in group.expressions))
        ]
        grouped = any(isinstance(node, _GROUPINGS) for node in group.expressions)
        if len(sets) > _MOST_SETS:
            self._add_mistake(place, f"GROUP BY with {len(sets)} grouping sets", f"write at most {_MOST_SETS}")
        return tuple(parts.values()), tuple(sets) if grouped else None

    def _clauses(self, tree: exp.Expr, read: set[str]) -> None:
        """Refuse every clause that is not in `read`."""
        for name, value in tree.args.items():
            if value and name not in read:
                what, token, hint = _CLAUSES.get(name, (_clause_name(name), TokenType.SELECT, None))
                self.refuse(what, self._clause(value, token), hint)

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
        natural, asof = method == "NATURAL", method == "ASOF"
        join_kind = _KINDS.get((side, kind)) if not method or natural or asof else None
        if asof and (join_kind not in ("inner", "left") or kind == "CROSS"):
            join_kind = None
        if join_kind is None:
            what = " ".join(word for word in (method, side, kind) if word)
            self.refuse(f"{what} JOIN", place, "write ASOF JOIN or ASOF LEFT JOIN" if asof else "write JOIN ... ON")
        for name, value in join.args.items():
            if value and name not in ("this", "method", "side", "kind", "on", "using"):
                self.refuse(_clause_name(name), place)
        right = self._table(join.this, names)
        on = tuple(self._join_conditions(join, names, join_kind == "inner" and not asof))
        using = tuple(self.part(self._start(column), column.name) for column in join.args.get("using") or ())
        if left is None or right is None or join_kind is None:
            return None
        return Joined(self.part(place, "join"), join_kind, left, right, on, using, natural, asof)

    def _join_conditions(self, join: exp.Expr, names: _Names, is_inner: bool) -> list[Condition]:
        """Convert ON. Sub-queries are conditions of inner joins only: there they are as in WHERE."""
        on = join.args.get("on")
        if on is None or is_inner:
            return self._conditions(on, names)
        subqueries = [query for query in _inner_queries(on) if not _is_unnest(query)]
        if subqueries:
            place = min(self._start(query) for query in subqueries)
            self.refuse("a sub-query in ON of a join that is not an inner join", place, _FILTERED)
            return []
        return list(self._plain(on))

    def _table(self, node: exp.Expr, names: _Names) -> Relation | None:
        place = self._start(node)
        joins = node.args.get("joins") or ()
        if isinstance(node, exp.Lateral):
            self.refuse("LATERAL", self._before(place, TokenType.LATERAL), "join with a condition instead")
        elif isinstance(node, exp.Unnest):
            value = self.expression(node.expressions[0]) if len(node.expressions) == 1 else None
            if value is None:
                self.refuse("unnest of several lists", place, "unnest one after the other")
                return None
            part = self.part(place, "unnest")
            return self._joined(Unnested(part, value, node.alias or None, _column_aliases(node)), joins, names)
        elif isinstance(node, exp.Values):
            return self._joined(self._values(node, names), joins, names)
        elif isinstance(node, exp.Subquery):
            return self._joined(self._subquery(node, place, names), joins, names)
        elif not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            called = getattr(node, "name", "") or (node.this.name if isinstance(node.this, exp.Expr) else "")
            hint = _JSON_EACH if called.lower() == "json_each" else "a query reads streams and other queries"
            self.refuse("table functions", place, hint, plural=True)
        elif node.args.get("db"):
            message = f'"{node.sql(dialect="duckdb")}" is not a stream'
            self._add_mistake(place, message, "write its plain name")
        else:
            return self._joined(self._stream(node, place, names), joins, names)
        return None

    def _values(self, node: exp.Values, names: _Names) -> Constant | None:
        place = self.part(self._start(node), "values")
        rows: list[tuple[Part, ...]] = []
        for row in node.expressions:
            entries = [
                self.expression(entry) for entry in (row.expressions if isinstance(row, exp.Tuple) else [row.unnest()])
            ]
            rows.append(tuple(entry for entry in entries if entry is not None))
        lengths = {len(row) for row in rows}
        if len(lengths) > 1:
            self._add_mistake(self._start(node), "the rows of VALUES have different numbers of columns")
        if len(rows) > _MOST_ROWS:
            self._add_mistake(
                self._start(node), f"VALUES with {len(rows)} rows", f"write at most {_MOST_ROWS}, or use a stream"
            )
        return Constant(place, tuple(rows), node.alias or None, _column_aliases(node)) if len(lengths) == 1 else None

    def _stream(self, node: exp.Table, place: int, names: _Names) -> Relation | None:
        for name, value in node.args.items():
            if value and name not in ("this", "alias", "joins"):
                self.refuse(_clause_name(name), place)
        alias, windows = self._alias(node)
        part, columns = self.part(place, node.name), _column_aliases(node)
        call = node.meta.get("window_call")
        if len(windows) + (call is not None) > 1:
            self._add_mistake(windows[-1][0], "a stream has one window", "remove one of the two")
        window = self._window(windows[0]) if windows else None
        if call is not None:
            window = self._window(call, read_window_call)
        if node.name.lower() in names:
            query, named = names[node.name.lower()]
            return Nested(part, query, alias or node.name, columns + named[len(columns) :], window)
        return Named(part, alias, window, columns)

    def _subquery(self, node: exp.Subquery, place: int, names: _Names) -> Relation | None:
        self._clauses(node, {"this", "alias", "joins", "with_"})
        alias, windows = self._alias(node)
        if isinstance(node.this, exp.Table) or (isinstance(node.this, exp.Subquery) and _is_table(node.this)):
            for first, _ in windows:
                self.refuse("a window after a joined relation", first, "write it after the stream, inside")
            if alias is not None:
                self.refuse("an alias after a joined relation", place, "name the streams in it")
            return self._table(node.this, names)
        stream = node.meta.pop("stream", None)
        if stream is None and isinstance(node.this, exp.Subquery):  # in parentheses
            stream = node.this.meta.pop("stream", None)
        if len(windows) > 1:
            self._add_mistake(windows[-1][0], "a stream has one window", "remove one of the two")
        window = self._window(windows[0]) if windows else None
        query = self.query(node.this, self._with(node, names))
        part = self.part(place, "(")
        return Nested(part, query, alias, _column_aliases(node), window, stream) if query else None

    def _alias(self, node: exp.Expr) -> tuple[str | None, list[tuple[int, int]]]:
        """Return the alias of a relation, and the spans of the windows before or after it."""
        alias = node.args.get("alias")
        spans = [owner.meta["window"] for owner in (node, alias) if owner is not None and "window" in owner.meta]
        name = node.alias or None
        if name is not None and "." in name:
            message = f'"{name}" cannot name a relation'
            self._add_mistake(self._start(node), message, "leave the dot out")
        return name, spans

    def _window(self, span: tuple[int, int], read: Callable[[Part], WindowText] = read_window) -> WindowText | None:
        try:
            return read(self.part(span[0], self.text[slice(*span)]))
        except DeclarationError as error:
            self.mistakes += error.mistakes
            return None

    # ------------------------------------------------------------------------------------------------ conditions

    def _plain(self, clause: exp.Expr | None, names: _Names | None = None) -> Iterator[Plain]:
        """Yield the conditions of HAVING, or of ON, where sub-queries are not supported (`names` is None)."""
        for condition in self._conditions(clause, names, members=False):
            if isinstance(condition, Plain):
                yield condition

    def _conditions(self, clause: exp.Expr | None, names: _Names | None, members: bool = True) -> list[Condition]:
        if clause is None:
            return []
        node = clause.this if isinstance(clause, (exp.Where, exp.Having, exp.Qualify)) else clause
        return list(self._conjuncts(node, names, members))

    def _conjuncts(self, node: exp.Expr, names: _Names | None, members: bool) -> Iterator[Condition]:
        inner = node.unnest()
        if isinstance(inner, exp.And):
            yield from self._conjuncts(inner.this, names, members)
            yield from self._conjuncts(inner.expression, names, members)
            return
        positive = inner.this.unnest() if isinstance(inner, exp.Not) else inner
        if members and names is not None and _is_membership(positive):
            yield from self._membership(node, positive, isinstance(inner, exp.Not), names)
        elif part := self.expression(node, names):
            sign = next((sign for kind, sign in _SIGNS.items() if isinstance(inner, kind)), None)
            sides = (inner.this, inner.expression) if sign and not part.subqueries else ()
            written = [side for side in map(self.expression, sides) if side]
            if sign is None or len(written) < 2:
                yield Plain(part)
            elif sign == "=":
                yield Plain(part, (written[0], written[1]))
            else:
                yield Plain(part, comparison=(sign, written[0], written[1]))

    def _membership(self, whole: exp.Expr, node: exp.Expr, negated: bool, names: _Names) -> Iterator[Condition]:
        part = self.part(self._start(whole), "")
        value = None
        if isinstance(node, exp.In):
            if isinstance(node.this.unnest(), exp.Tuple):
                self.refuse("IN with several values", self._start(node), "write EXISTS with one condition for each")
            value = self.expression(node.this)
        query = self.query(node.args["query"] if isinstance(node, exp.In) else node.this, names)
        if query is not None and (value is not None or isinstance(node, exp.Exists)):
            yield Membership(part, negated, value, query)

    # ------------------------------------------------------------------------------------------------ expressions

    def expression(self, node: exp.Expr, names: _Names | None = None, in_list: bool = False) -> Part | None:
        """Return an expression as written; None if something in it is refused.

        Without `names`, sub-queries are; UNNEST is, unless it is in the select list.
        """
        inner_queries = list(_inner_queries(node))
        unnested = [query for query in inner_queries if _is_unnest(query) and not in_list]
        refused = [query for query in inner_queries if names is None or isinstance(query.parent, (exp.Any, exp.All))]
        if refused or unnested:
            self._subexpression((unnested or refused)[0], node)
            return None
        if "span" not in node.meta:
            self._add_mistake(self._start(node), f'"{node.sql(dialect="duckdb")}" is not an expression')
            return None
        first, last = node.meta["span"]
        spans = {span for span in map(_extent, node.walk()) if span and first <= span[0] and span[1] <= last}
        inner = sorted(((start - first, end - first) for start, end in spans), key=lambda piece: (piece[0], -piece[1]))
        subqueries = [self._subquery_inside(query, first, names or {}) for query in inner_queries]
        if None in subqueries:
            return None
        known = tuple(subquery for subquery in subqueries if subquery is not None)
        below = {id(part) for query in inner_queries for part in query.walk()}
        windows = [window for window in outermost(node) if id(window) not in below]
        if known and windows:
            hint = "compute one of them in a sub-query in FROM"
            self.refuse("a sub-query and a window function in one expression", first, hint)
            return None
        overs = tuple(over for over in (self._over(window, first) for window in windows) if over)
        return Part(self.text[first:last], *position(self.text, first), tuple(inner), known, overs)

    def _subquery_inside(self, node: exp.Expr, first: int, names: _Names) -> Subquery | None:
        """Convert a sub-query inside an expression that begins at `first`."""
        inner = node.this if isinstance(node, exp.Not) else node
        start, end = (_extent(node) or _extent(inner)) or (first, first)
        part = self.part(start, self.text[start:end])
        value = self.expression(inner.this) if isinstance(inner, exp.In) else None
        tree = (
            inner.args["query"] if isinstance(inner, exp.In) else inner.this if isinstance(inner, exp.Exists) else inner
        )
        if _is_unnest(inner):
            inside = self.expression(inner.this if isinstance(inner, exp.Explode) else inner.expressions[0])
            return Subquery("unnest", start - first, end - first, part, None, inside) if inside else None
        query = self.query(tree, names)
        if query is None or (isinstance(inner, exp.In) and value is None):
            return None
        kind: Literal["scalar", "exists", "in"] = "scalar"
        if isinstance(inner, exp.Exists | exp.In):
            kind = "exists" if isinstance(inner, exp.Exists) else "in"
        return Subquery(kind, start - first, end - first, part, query, value, isinstance(node, exp.Not))

    def _over(self, node: exp.Window, base: int) -> OverText | None:
        """Convert a call of a window function, which is part of the expression that begins at `base`."""
        first, last = node.meta["span"]
        whole = self.part(first, self.text[first:last])
        text = read_over(whole)
        if text is None:
            self.refuse("this form of a window function", first, "write function(arguments) over (...)")
            return None
        window = self._windows.resolve(node, text.frame, whole)
        if window is None:
            return None
        inside = [*text.arguments, *window.partition, *(item.part for item in window.order)]
        if any(part.overs for part in inside) or any(node is not inner for inner in node.find_all(exp.Window)):
            self.refuse("a window function inside of another one", first, "compute the inner one in a sub-query")
            return None
        return replace(
            text, start=first - base, end=last - base, partition=window.partition, order=window.order, frame=window.frame,
        )  # fmt: skip

    def _subexpression(self, node: exp.Expr, whole: exp.Expr) -> None:
        place = min(self._start(node), self._start(whole)) if "span" not in node.meta else self._start(node)
        inner = node.this if isinstance(node, exp.Not) else node
        if _is_unnest(inner):
            self.refuse("unnest here", place, "write it in the select list, or in FROM: from s, unnest(s.list) as u(x)")
        elif isinstance(inner, exp.Exists):
            self.refuse("EXISTS here", place, _ALONE)
        elif isinstance(inner, exp.In):
            self.refuse("IN with a sub-query here", place, _ALONE)
        elif isinstance(node.parent, (exp.Any, exp.All)):
            self.refuse("ANY or ALL with a sub-query", place, "use IN or EXISTS in WHERE")
        else:
            self.refuse("a scalar sub-query here", self._before(place, TokenType.L_PAREN), _IN_FROM)

    # ------------------------------------------------------------------------------------------------ places

    def part(self, offset: int, text: str) -> Part:
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

    def refuse(self, what: str, offset: int, hint: str | None = None, plural: bool = False) -> None:
        self._add_mistake(offset, f"{what} {'are' if plural else 'is'} not supported", hint)

    def refuse_at(self, part: Part, message: str, hint: str | None = None) -> None:
        """Note a mistake at a part of the query."""
        self.mistakes.append(part.mistake(message, hint))

    def _add_mistake(self, offset: int, message: str, hint: str | None = None) -> None:
        self.mistakes.append(self.part(offset, "").mistake(message, hint))


_GROUPINGS = (exp.GroupingSets, exp.Rollup, exp.Cube)


def _sets(node: exp.Expr, placed: Callable[[exp.Expr], tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the grouping sets of an entry of GROUP BY."""
    if isinstance(node, exp.GroupingSets):
        return [group for inner in node.expressions for group in _sets(inner, placed)]
    if isinstance(node, exp.Rollup | exp.Cube):
        entries = [_set(inner, placed) for inner in node.expressions]
        if isinstance(node, exp.Rollup):
            return [tuple(chain(*entries[:length])) for length in range(len(entries), -1, -1)]
        chosen = (entry for length in range(len(entries), -1, -1) for entry in combinations(entries, length))
        return [tuple(chain(*entry)) for entry in chosen]
    return [_set(node, placed)]


def _set(node: exp.Expr, placed: Callable[[exp.Expr], tuple[int, ...]]) -> tuple[int, ...]:
    """Return the places of one expression, or of several in parentheses."""
    inner = node.expressions if isinstance(node, exp.Tuple) else [node.unnest()]
    return tuple(chain(*(placed(entry) for entry in inner)))


def _column_aliases(node: exp.Expr) -> tuple[str, ...]:
    alias = node.args.get("alias")
    return tuple(column.name for column in alias.args.get("columns") or ()) if isinstance(alias, exp.Expr) else ()


def _is_table(node: exp.Subquery) -> bool:
    inner = node.this
    return isinstance(inner, exp.Table) or (isinstance(inner, exp.Subquery) and _is_table(inner))


def _is_in(node: exp.Expr) -> bool:
    return isinstance(node, exp.In) and node.args.get("query") is not None


def _inner_queries(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the sub-queries of an expression, without those inside of others: EXISTS, [NOT] IN, or the query itself."""
    negated = isinstance(node, exp.Not) and _is_in(node.this) and "span" not in node.this.meta
    if negated or _is_membership(node) or _is_unnest(node) or isinstance(node, exp.Query):
        yield node
    else:
        for child in node.iter_expressions():
            yield from _inner_queries(child)


def _is_unnest(node: exp.Expr) -> bool:
    return isinstance(node, exp.Explode | exp.Unnest)


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


def _clause_name(name: str) -> str:
    """Return what a clause is called in SQL, by its name in sqlglot's tree."""
    return {"kind": "SELECT AS", "locks": "FOR UPDATE", "pivots": "PIVOT", "sample": "TABLESAMPLE"}.get(
        name, name.strip("_").upper().replace("_", " ")
    )
