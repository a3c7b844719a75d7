"""Random queries for the judge, from the whole grammar: each as CQL and as SQL for SQLite.

Expressions mean the same in DuckDB and SQLite, which gets the functions that it lacks from `reference`: no integer division, no
comparison of text with numbers, no booleans as values. Numbers have few binary digits, so that sums are exact in any order. Values
that are only about equal (averages, variances: type `approx`) are selected, but neither compared, grouped nor made distinct.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from given_streams import Stream, Window, windows
from hypothesis import strategies as st

Scope = dict[str, str]
"""The columns in scope, as written, with their types."""

_JOINS = [
    "JOIN",
    "JOIN",
    "INNER JOIN",
    "LEFT JOIN",
    "LEFT OUTER JOIN",
    "RIGHT JOIN",
    "FULL JOIN",
    "FULL OUTER JOIN",
    "CROSS JOIN",
    "ASOF JOIN",
    "ASOF LEFT JOIN",
]
_COMPARISONS = ["=", "<>", "<>", "<", "<=", "<=", ">", ">=", ">="]
_EXACT = ("int", "float", "text")


@dataclass(frozen=True)
class Made:
    """A query: its CQL, its SQL over the tables of a snapshot, and its columns with their types."""

    cql: str
    sql: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class View:
    """A named query that others read: a relation or a stream."""

    name: str
    columns: tuple[tuple[str, str], ...]
    is_stream: bool = False

    @property
    def types(self) -> dict[str, str]:
        return dict(self.columns)


@dataclass(frozen=True)
class Reading:
    """One source in a query's FROM, and the name of its table in SQLite."""

    table: str
    source: Stream | View
    window: Window

    @property
    def types(self) -> dict[str, str]:
        """The columns of the table, with those that its window adds."""
        unit = self.source.unit if isinstance(self.source, Stream) else None
        return {**self.source.types, **self.window.types(unit)}


@dataclass
class Maker:
    """Draws queries, and collects what they read."""

    draw: st.DrawFn
    sources: list[Stream | View]
    prefix: str
    readings: list[Reading] = field(default_factory=list)
    aliases: int = 0

    def one(self, options: Iterable[str]) -> str:
        return self.draw(st.sampled_from(list(options)))

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) < percent

    # -- expressions ------------------------------------------------------------------------------------------------
    def expression(self, kind: str, scope: Scope, depth: int = 1) -> str:
        """Draw an expression of a type over the columns in scope."""
        columns = [text for text, column_kind in scope.items() if column_kind == kind]
        if depth == 0 or kind.startswith(("time", "approx", "bool")) or self.chance(50):
            if columns and (kind not in _EXACT or self.chance(85)):
                return self.one(columns)
            return self.literal(kind)
        part = lambda other=kind: self.expression(other, scope, depth - 1)  # noqa: E731
        match kind, self.draw(st.integers(0, 6)):
            case ("int", 0):
                return f"abs({part()})"
            case ("int", 1):
                return f"length({part('text')})"
            case ("int", 2):
                return f"({part()} % {self.one('23')})"
            case ("int", 3):
                return self.one([f"twice({part()})", f"octet_length(encode({part('text')}))"])
            case ("float", 0):
                return f"({part('int')} + {part()})"
            case ("float", 1):
                return f"({part()} / {self.one(['2.0', '4.0'])})"
            case ("float", 2):
                return f"abs({part()})"
            case ("float", 3):
                return f"halved({part()})"
            case ("text", 0):
                return f"substr({part()}, 1, 1)"
            case ("text", 1):
                return f"replace({part()}, 'a', 'c')"
            case ("text", 2):
                return f"({part()} || {part()})"
            case ("text", 3):
                own = [f"paired({part()}, {part()})", f"hex({part()})"]
                return self.one([*own, f"json_extract_string(json_object('k', {part()}), '$.k')"])
            case (_, 4):
                return f"CASE WHEN {self.predicate(scope, 0)} THEN {part()} ELSE {part()} END"
            case (_, 5):
                return f"coalesce({part()}, {part()})"
            case (_, 6):
                return f"nullif({part()}, {part()})"
        return f"({part()} {self.one('+-*')} {part()})"

    def literal(self, kind: str) -> str:
        match kind:
            case "int":
                return str(self.draw(st.integers(-1, 3))).replace("-1", "(-1)")
            case "float":
                return self.one(["0.5", "1.0", "2.25", "(-1.5)"])
            case "text":
                return self.one(["''", "'a'", "'b'", "'ab'"])
            case "approx":
                return f"({self.literal('float')} / 3.0)"
            case "bool":
                return "CAST(NULL AS BOOLEAN)"
        return f"CAST(NULL AS {'TIMESTAMPTZ' if kind == 'time:timestamp' else 'BIGINT'})"

    def exact(self, scope: Scope) -> str:
        """Draw a type whose values can be compared exactly."""
        return self.one(sorted({kind for kind in scope.values() if kind not in ("approx", "bool")} | {"int"}))

    def predicate(self, scope: Scope, depth: int = 1) -> str:
        """Draw a condition over the columns in scope."""
        choice = self.draw(st.integers(0, 11))
        if depth and choice < 4:
            pieces = [self.predicate(scope, depth - 1) for _ in range(2)]
            return f"({pieces[0]} AND {pieces[1]})" if choice < 2 else f"({pieces[0]} OR {pieces[1]})"
        if depth and choice == 4:
            return f"NOT ({self.predicate(scope, depth - 1)})"
        kind = self.exact(scope)
        first, second = self.expression(kind, scope, depth), self.other(kind, scope)
        if first == second:
            return f"{first} IS NOT NULL"
        match choice:
            case 5:
                return f"{first} IS {self.one(['', 'NOT '])}NULL"
            case 6 if kind in _EXACT:
                return f"{first} {self.one(['', 'NOT '])}BETWEEN {self.literal(kind)} AND {second}"
            case 7 if kind in _EXACT:
                listed = ", ".join(self.literal(kind) for _ in range(self.draw(st.integers(1, 4))))
                return f"{first} {self.one(['', 'NOT '])}IN ({listed})"
            case 8:
                return f"{first} IS {self.one(['', 'NOT '])}DISTINCT FROM {second}"
        return f"{first} {self.one(_COMPARISONS)} {second}"

    def other(self, kind: str, scope: Scope) -> str:
        """Draw the other side of a comparison."""
        return self.literal(kind) if kind in _EXACT and self.chance(60) else self.expression(kind, scope, 0)

    def meeting(self, left: Scope, right: Scope) -> str:
        """Draw a join condition: usually an equality between both sides, sometimes more, sometimes only a comparison."""
        both = sorted({*left.values()} & {*right.values()} - {"approx"})
        if not both or self.chance(10):
            return self.predicate({**left, **right})
        pieces = []
        for _ in range(self.draw(st.sampled_from([1, 1, 1, 2]))):
            kind = self.one(both)
            one, other = (self.one(t for t, k in scope.items() if k == kind) for scope in (left, right))
            if self.chance(15) and kind in _EXACT:
                one = self.expression(kind, left)
            if self.chance(30):
                one, other = other, one
            pieces.append(f"{one} {self.one(_COMPARISONS) if self.chance(25) else '='} {other}")
        if self.chance(25):
            pieces.append(self.predicate({**left, **right}))
        return " AND ".join(pieces)

    # -- sources ----------------------------------------------------------------------------------------------------
    def source(self, depth: int, *, names: bool = False) -> tuple[str, str, Scope]:
        """Draw a source with an alias; if `names`, only a name."""
        self.aliases += 1
        alias = f"t{self.aliases}"
        if depth and self.chance(20):
            inner = self.query(depth - 1)
            scope = {f"{alias}.{name}": kind for name, kind in inner.columns}
            return f"({inner.cql}) AS {alias}", f"({inner.sql}) AS {alias}", scope
        read = self.draw(st.sampled_from(self.sources))
        plain = not read.is_stream if isinstance(read, View) else read.signs is not None
        window = Window("unbounded", "") if plain else self.draw(windows(by_time=isinstance(read, View)))
        reading = Reading(f"{self.prefix}{len(self.readings)}", read, window)
        self.readings.append(reading)
        name = read.name
        if isinstance(read, Stream) and not plain and not names and self.chance(20):
            name = self.same_records(read, by_time=window.kind != "rows")
        cql = f"{name}{window.text} {self.one(['AS ', ''])}{alias}"
        return cql, f"{reading.table} AS {alias}", {f"{alias}.{name}": kind for name, kind in reading.types.items()}

    def same_records(self, read: Stream, *, by_time: bool) -> str:
        """Draw a sub-query with the records of a stream; records of one time may be in another order if only time matters."""
        select = f"SELECT {', '.join(read.types)} FROM {read.name}"
        union = f"({select} WHERE a > 0 UNION ALL {select} WHERE NOT coalesce(a > 0, false))"
        return self.one([f"({select})", f"Istream({select})", f"(Istream({select}))", *([union] if by_time else [])])

    def origin(self, depth: int) -> tuple[str, str, Scope, list[str], bool]:
        """Draw a FROM clause in both languages, its scope, the conditions for WHERE, and whether it has commas."""
        cql, sql, scope = self.source(depth)
        count = self.draw(st.sampled_from([1, 1, 1, 1, 2, 2, 2, 3]))
        commas = self.chance(35)
        conditions: list[str] = []
        for _ in range(count - 1):
            kind = "" if commas else self.one(_JOINS)
            more_cql, more_sql, more = self.source(0 if kind.startswith("ASOF") else depth)
            met = self.asof(scope, more, more_sql) if kind.startswith("ASOF") else None
            if met is not None:
                cql, sql = f"{cql} {kind} {more_cql} ON {met[0]}", f"{sql} {kind[5:]} {more_sql} ON {met[1]}"
            elif commas:
                cql, sql = f"{cql}, {more_cql}", f"{sql}, {more_sql}"
                if self.chance(85):
                    conditions.append(self.meeting(scope, more))
            elif kind == "CROSS JOIN" or kind.startswith("ASOF"):
                cql, sql = f"{cql} CROSS JOIN {more_cql}", f"{sql} CROSS JOIN {more_sql}"
            else:
                on = [self.meeting(scope, more)] * 2
                if kind in ("JOIN", "INNER JOIN") and self.chance(15):
                    both = {**scope, **more}
                    inner = self.subquery(both) if self.chance(60) else self.embedded(both)
                    on = [f"({text}) AND {condition}" for text, condition in zip(on, inner)]
                cql, sql = f"{cql} {kind} {more_cql} ON {on[0]}", f"{sql} {kind} {more_sql} ON {on[1]}"
            scope = {**scope, **more}
        return cql, sql, scope, conditions, commas and count > 1

    def asof(self, left: Scope, right: Scope, table: str) -> tuple[str, str] | None:
        """Draw the condition of an ASOF JOIN with a table of SQLite, which gets it as the row that is the first of those met. None
        if the sides have no columns of the same type."""
        kinds = sorted({*left.values()} & {*right.values()} - {"approx", "bool"})
        if not kinds or "approx" in right.values():
            return None
        drawn = [self.one(kinds) for _ in range(self.draw(st.sampled_from([1, 2, 2, 3])))]
        pairs = [[self.one(t for t, k in scope.items() if k == kind) for scope in (left, right)] for kind in drawn]
        sign = self.one([">=", ">=", ">", "<=", "<"])
        signs = [sign, *["="] * (len(pairs) - 1)]
        conditions = [f"{one} {own} {other}" for own, (one, other) in zip(signs, pairs)]
        if self.chance(25):
            conditions[0] = f"{pairs[0][1]} {sign.translate(str.maketrans('<>', '><'))} {pairs[0][0]}"
        alias = table.split()[-1]
        where = " AND ".join(conditions).replace(f"{alias}.", "first.")
        column = pairs[0][1].replace(f"{alias}.", "first.") + (" DESC" if sign[0] == ">" else "")
        ties = [f"first.{name.split('.')[1]} NULLS LAST" for name in right]
        order = ", ".join([column, *ties, "first.rowid"])
        first = f"SELECT first.rowid FROM {table.split()[0]} AS first WHERE {where} ORDER BY {order} LIMIT 1"
        return " AND ".join(conditions[1:] + conditions[:1]), f"{alias}.rowid = ({first})"

    def subquery(self, scope: Scope) -> tuple[str, str]:
        """Draw a condition with a sub-query, in both languages."""
        cql, sql, inner = self.source(0)
        negated = self.one(["", "NOT "])
        where = ""
        if self.chance(60):
            where = f" WHERE {self.meeting(inner, scope) if self.chance(60) else self.predicate(inner)}"
        both = sorted({*scope.values()} & {*inner.values()} & {*_EXACT})
        if not both or self.chance(50):
            if not where:
                where = f" WHERE {self.meeting(inner, scope)}"
            item = self.one(["1", "*", next(iter(inner))])
            return tuple(f"{negated}EXISTS (SELECT {item} FROM {text}{where})" for text in (cql, sql))  # type: ignore[return-value]
        kind = self.one(both)
        value, chosen = self.expression(kind, scope), self.expression(kind, inner)
        return tuple(f"{value} {negated}IN (SELECT {chosen} FROM {text}{where})" for text in (cql, sql))  # type: ignore[return-value]

    def embedded(self, scope: Scope) -> tuple[str, str]:
        """Draw a condition with a sub-query inside: EXISTS or IN in an OR, or a comparison with a scalar sub-query."""
        if self.chance(40):
            first = self.predicate(scope, 0)
            both = (f"({first} OR {condition})" for condition in self.subquery(scope))
            return tuple(f"NOT {text}" for text in both) if self.chance(25) else tuple(both)  # type: ignore[return-value]
        cql, sql, inner = self.source(0)
        kind = self.one(_EXACT)
        compared = sorted({*scope.values()} & {*inner.values()} - {"approx"})
        where = ""
        if compared and self.chance(50):
            shared = self.one(compared)
            where = " WHERE " + " = ".join(self.one(t for t, k in s.items() if k == shared) for s in (inner, scope))
        call = self.one(["max", "min", *(["count", "sum"] if kind == "int" else [])])
        value, compared_with = f"{call}({self.expression(kind, inner)})", self.expression(kind, scope)
        sign = self.one(_COMPARISONS)
        return tuple(f"{compared_with} {sign} (SELECT {value} FROM {text}{where})" for text in (cql, sql))  # type: ignore[return-value]

    # -- queries ----------------------------------------------------------------------------------------------------
    def select(self, depth: int, wanted: tuple[str, ...] | None = None) -> Made:
        """Draw one SELECT; `wanted` are the types that its columns must have."""
        cql, sql, scope, conditions, commas = self.origin(depth)
        own: list[tuple[str, str]] = [(condition, condition) for condition in conditions]
        single = len({text.split(".")[0] for text in scope}) == 1
        if single and self.chance(30):
            scope = {text.split(".")[1]: kind for text, kind in scope.items()}
        elif not commas and self.chance(8):  # a comma binds weaker than a join
            more_cql, more_sql, more = self.source(0)
            on, kind = self.meeting(scope, more), self.one(["SEMI", "ANTI"])
            cql = f"{cql} {kind} JOIN {more_cql} ON {on}"
            own.append(("", f"{'NOT ' if kind == 'ANTI' else ''}EXISTS (SELECT 1 FROM {more_sql} WHERE {on})"))
        if self.chance(40):
            text = self.predicate(scope)
            own.append((text, text))
        if self.chance(15):
            own.append(self.subquery(scope))
        if self.chance(12):
            own.append(self.embedded(scope))
        where_cql, where_sql = (" AND ".join(pair[n] for pair in own if pair[n]) for n in (0, 1))
        tails = tuple(f" WHERE {text}" if text else "" for text in (where_cql, where_sql))
        aggregated = self.chance(35)
        items, tail = self.aggregates(scope, wanted) if aggregated else (self.items(scope, wanted), "")
        exact = all(kind != "approx" for _, kind in items)
        computed: list[tuple[str, str]] = []
        named = ""
        if not aggregated and wanted is None and "approx" not in scope.values() and self.chance(20):
            cql_call, sql_call, kind = self.over(scope)
            if self.chance(30):
                cql_call, named = self.named(cql_call)
            computed.append((cql_call, sql_call))
            items, exact = [*items, ("@", kind)], False
        distinct = "DISTINCT " if exact and self.chance(10) else ""
        if single and not aggregated and wanted is None and not distinct and self.chance(10):
            columns = tuple((text.split(".")[-1], kind) for text, kind in scope.items())
            return Made(f"SELECT * FROM {cql}{tails[0]}", f"SELECT * FROM {sql}{tails[1]}", columns)
        listed = ", ".join(f"{text} AS c{number}" for number, (text, _) in enumerate(items))
        columns = tuple((f"c{number}", kind) for number, (_, kind) in enumerate(items))
        lists = [listed.replace("@", computed[0][side]) if computed else listed for side in (0, 1)]
        cql, sql = (
            f"SELECT {distinct}{chosen} FROM {source}{where}{tail}{clause}"
            for chosen, source, where, clause in ((lists[0], cql, tails[0], named), (lists[1], sql, tails[1], ""))
        )
        return Made(cql, sql, columns)

    def named(self, call: str) -> tuple[str, str]:
        """Give the window of a call a name, or its partition; return the call by that name, and the WINDOW clause."""
        before, _, window = call.partition(" OVER (")
        window = window.removesuffix(")")
        partition, order, rest = window.partition("ORDER BY ")
        if partition and order and self.chance(50):
            return f"{before} OVER (w {order}{rest})", f" WINDOW w AS ({partition.strip()})"
        return f"{before} OVER w", f" WINDOW w AS ({window})"

    def over(self, scope: Scope) -> tuple[str, str, str]:
        """Draw a call of a window function in both languages, and its type. SQLite gets the whole order, with NULLs last."""
        ordered = [text for text, kind in scope.items() if not kind.startswith("time")]
        keys = self.draw(st.lists(st.sampled_from(list(scope)), max_size=1))
        listed = self.draw(st.lists(st.sampled_from(ordered), max_size=2, unique=True)) if ordered else []
        ways = {text: self.one(["", " DESC", " NULLS FIRST", " DESC NULLS FIRST"]) for text in listed}
        whole = {**ways, **{text: "" for text in scope if text not in ways}}
        order, listed_order, whole_order = (
            ", ".join(
                f"{text}{way}{' NULLS LAST' if last and 'FIRST' not in way else ''}" for text, way in some.items()
            )
            for some, last in ((ways, False), (ways, True), (whole, True))
        )
        value = self.one(scope)
        number = self.one([text for text, kind in scope.items() if kind == "int"] or ["1"])
        frame = self.one(["ROWS 1 PRECEDING", "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING", "ROWS UNBOUNDED PRECEDING"])
        frame = " " + frame
        call, kind, tail = self.draw(
            st.sampled_from(
                [
                    ("row_number()", "int", ""), ("ntile(2)", "int", ""), (f"lag({value})", scope[value], ""),
                    (f"lead({value}, 2)", scope[value], ""), (f"first_value({value})", scope[value], frame),
                    (f"last_value({value})", scope[value], frame), (f"nth_value({value}, 2)", scope[value], frame),
                    (f"sum({number})", "approx", frame), (f"count({value})", "int", frame),
                    ("rank()", "int", None), ("dense_rank()", "int", None), (f"max({value})", scope[value], None),
                    (f"sum({number})", "approx", None), ("count(*)", "int", None),
                ]
            )
        )  # fmt: skip
        if "rank" in call and not order:
            call = "count(*)"
        used = listed_order if tail is None else whole_order
        texts = [
            f"{call} OVER ({' '.join(filter(None, (partition, f'ORDER BY {by}' if by else '')))}{tail or ''})"
            for by in (order, used)
            for partition in [f"PARTITION BY {keys[0]}" if keys else ""]
        ]
        return texts[0], texts[1], kind

    def items(self, scope: Scope, wanted: tuple[str, ...] | None) -> list[tuple[str, str]]:
        kinds = wanted or [self.one(sorted({*scope.values(), *_EXACT})) for _ in range(self.draw(st.integers(1, 3)))]
        return [(self.expression(kind, scope), kind) for kind in kinds]

    def aggregates(self, scope: Scope, wanted: tuple[str, ...] | None) -> tuple[list[tuple[str, str]], str]:
        """Draw the items of a grouped SELECT, and its GROUP BY and HAVING."""
        columns = [text for text, kind in scope.items() if kind != "approx"]
        keys: Scope = {}
        for _ in range(self.draw(st.sampled_from([0, 1, 1, 1, 2])) if columns else 0):
            text = self.one(columns)
            if scope[text] == "int" and self.chance(20):
                keys[f"({text} + {self.literal('int')})"] = "int"
            else:
                keys[text] = scope[text]
        items = []
        for kind in wanted or [None] * self.draw(st.integers(1, 4)):
            known = [text for text, key_kind in keys.items() if kind in (None, key_kind)]
            if known and self.chance(35):
                chosen = self.one(known)
                items.append((chosen, keys[chosen]))
            else:
                items.append(self.aggregate(scope, kind))
        if not keys and not any("(" in text for text, _ in items):
            items[0] = self.aggregate(scope, items[0][1])
        tail = f" GROUP BY {', '.join(keys)}" if keys else ""
        if self.chance(25):
            calls = dict(self.aggregate(scope, self.one(_EXACT)) for _ in range(2))
            tail += f" HAVING {self.predicate({**keys, **calls})}"
        return items, tail

    def aggregate(self, scope: Scope, kind: str | None) -> tuple[str, str]:
        """Draw an aggregate call of a type; return it with the type."""
        kind = kind or self.one([*_EXACT, "approx", "int"])
        if kind in (*_EXACT, "approx") and self.chance(25):
            return self.recomputed(scope, kind), kind
        if kind == "approx":
            argument = self.expression(self.one(["int", "float"]), scope)
            name = self.one(["avg", "avg", "var_samp", "var_pop", "stddev_samp", "stddev_pop", "variance", "stddev"])
            return f"{name}({argument})", kind
        if kind == "int" and self.chance(60):
            some = self.expression(self.exact(scope), scope)
            return self.one(["count(*)", f"count({some})", f"count(DISTINCT {some})"]), kind
        argument = self.expression(kind, scope)
        name = self.one(["min", "max"]) if kind not in ("int", "float") else self.one(["min", "max", "sum"])
        call = f"{name}({argument})"
        if kind in ("int", "float") and self.chance(15):
            return f"({call} + {self.literal(kind)})", kind
        return call, kind

    def recomputed(self, scope: Scope, kind: str) -> str:
        """Draw a call of an aggregate that nothing maintains. None of these depends on the order of rows."""
        if kind == "approx":
            number = self.expression(self.one(["int", "float"]), scope)
            other = self.expression(self.one(["int", "float"]), scope, 0)
            return self.one([f"median({number})", f"covar_pop({number}, {other})", f"regr_sxx({other}, {number})"])
        argument = self.expression(kind, scope)
        calls = [f"mode({argument})", f"quantile_disc({argument}, {self.one(['0.5', '0.9'])})"]
        if kind == "int":
            calls += [f"bit_{self.one(['and', 'or', 'xor'])}({argument})", f"sum(DISTINCT {argument})"]
        elif kind == "text":
            calls.append(f"string_agg(DISTINCT {argument})")
        elif kind == "float":
            calls.append(f"sum(DISTINCT {argument})")
        return self.one(calls)

    def plain(self, wanted: tuple[str, ...] | None) -> Made:
        """Draw a selection of columns of one source: set operations over two of these are rarely empty."""
        cql, sql, scope = self.source(0)
        kinds = wanted or tuple(self.one(scope.values()) for _ in range(self.draw(st.integers(1, 2))))
        items = [self.expression(kind, scope, 0) for kind in kinds]
        listed = ", ".join(f"{text} AS c{number}" for number, text in enumerate(items))
        columns = tuple((f"c{number}", kind) for number, kind in enumerate(kinds))
        return Made(f"SELECT {listed} FROM {cql}", f"SELECT {listed} FROM {sql}", columns)

    def query(self, depth: int, wanted: tuple[str, ...] | None = None) -> Made:
        """Draw a SELECT, or several combined by set operations, sometimes only their first rows."""
        made = self.combined(depth, wanted)
        comparable = "approx" not in dict(made.columns).values()
        return self.first_rows(made) if comparable and self.chance(20) else made

    def first_rows(self, made: Made) -> Made:
        """Order a query and take its first rows, of all or of each group. SQLite gets the whole order, with NULLs last."""
        names = [name for name, _ in made.columns]
        listed = self.draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
        entries = {name: self.one(["", " ASC", " DESC", " NULLS FIRST", " DESC NULLS FIRST"]) for name in listed}
        full = {**entries, **{name: "" for name in names if name not in entries}}
        text, order, whole = (
            ", ".join(f"{name}{way}{'' if 'FIRST' in way or not last else ' NULLS LAST'}" for name, way in some.items())
            for some, last in ((entries, False), (entries, True), (full, True))
        )
        cql = f"{made.cql} ORDER BY {text}" if text else made.cql
        columns, limit, kind = ", ".join(names), self.draw(st.integers(1, 4)), self.draw(st.integers(0, 3))
        if kind == 0 and made.cql.startswith("SELECT ") and not self._set(made) and "DISTINCT" not in made.cql:
            keys = ", ".join(self.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)))
            numbered = f"SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY {whole}) AS place FROM ({made.sql})"
            cql = cql.replace("SELECT", f"SELECT DISTINCT ON ({keys})", 1)
            return Made(cql, f"SELECT {columns} FROM ({numbered}) WHERE place = 1", made.columns)
        if kind == 1 and text:
            ranked = f"SELECT *, rank() OVER (ORDER BY {order}) AS place FROM ({made.sql})"
            return Made(
                f"{cql} FETCH FIRST {limit} ROWS WITH TIES",
                f"SELECT {columns} FROM ({ranked}) WHERE place <= {limit}",
                made.columns,
            )
        tail = f"LIMIT {limit} OFFSET {self.draw(st.integers(0, 2))}" if kind == 2 else f"LIMIT {limit}"
        return Made(f"{cql} {tail}", f"SELECT * FROM ({made.sql}) ORDER BY {whole} {tail}", made.columns)

    def combined(self, depth: int, wanted: tuple[str, ...] | None = None) -> Made:
        """Draw a SELECT, or several combined by set operations."""
        several = self.chance(25)
        if several and wanted is None and self.chance(20):
            return self.of_names()
        plain = several and self.chance(50)
        made = self.plain(wanted) if plain else self.select(depth, wanted)
        kinds = tuple(kind for _, kind in made.columns)
        if not several:
            return made
        for _ in range(self.draw(st.sampled_from([1, 1, 2]))):
            operation = self.one(["UNION ALL"] if "approx" in kinds else
                                 ["UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"])  # fmt: skip
            other = self.plain(kinds) if plain else self.select(max(depth - 1, 0), kinds)
            made = Made(
                f"({made.cql}) {operation} ({other.cql})" if self.chance(50) or " ALL (" in made.cql or self._set(made)
                else f"{made.cql} {operation} {other.cql}",
                _combined(made, other, operation),
                made.columns,
            )  # fmt: skip
        return made

    def of_names(self) -> Made:
        """Draw a set operation on names of streams and queries, without SELECT."""
        made = self.bare()
        kinds = tuple(kind for _, kind in made.columns)
        other = self.bare()
        if tuple(kind for _, kind in other.columns) != kinds:
            self.readings.pop()
            other = self.plain(kinds)
        several = ["UNION", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"]
        operation = self.one(["UNION ALL", *(several if "approx" not in kinds else [])])
        return Made(f"{made.cql} {operation} {other.cql}", _combined(made, other, operation), made.columns)

    def bare(self) -> Made:
        """Draw a name with its window, in the place of a query."""
        cql, sql, scope = self.source(0, names=True)
        columns = tuple((text.split(".")[1], kind) for text, kind in scope.items())
        text = re.sub(r" (AS )?t\d+$", "", cql)
        return Made(text, f"SELECT * FROM {sql}", columns)

    @staticmethod
    def _set(made: Made) -> bool:
        return re.search(r"\b(UNION|EXCEPT|INTERSECT)\b", made.cql) is not None


def _combined(left: Made, right: Made, operation: str) -> str:
    """Return a set operation for SQLite, which has no EXCEPT ALL and INTERSECT ALL: equal rows are numbered instead."""
    names = ", ".join(name for name, _ in left.columns)
    one, other = f"SELECT * FROM ({left.sql})", f"SELECT * FROM ({_renamed(left, right)})"
    if operation in ("EXCEPT ALL", "INTERSECT ALL"):
        counted = f"SELECT *, row_number() OVER (PARTITION BY {names}) AS copy FROM"
        return f"SELECT {names} FROM ({counted} ({one}) {operation.removesuffix(' ALL')} {counted} ({other}))"
    return f"{one} {operation} {other}"


def _renamed(left: Made, right: Made) -> str:
    pairs = zip(right.columns, left.columns)
    return f"SELECT {', '.join(f'{mine[0]} AS {theirs[0]}' for mine, theirs in pairs)} FROM ({right.sql})"


_KEYWORDS = frozenset(
    {
        *(
            "SELECT",
            "DISTINCT",
            "FROM",
            "WHERE",
            "GROUP",
            "BY",
            "HAVING",
            "AS",
            "ON",
            "IN",
            "EXISTS",
            "NOT",
            "AND",
            "OR",
        ),
        *(
            "JOIN",
            "INNER",
            "LEFT",
            "RIGHT",
            "FULL",
            "OUTER",
            "CROSS",
            "SEMI",
            "ANTI",
            "UNION",
            "ALL",
            "EXCEPT",
            "INTERSECT",
        ),
        *("ORDER", "LIMIT", "OFFSET", "ASC", "DESC", "NULLS", "FIRST", "FETCH", "WITH", "TIES"),
        *("OVER", "WINDOW", "PRECEDING", "FOLLOWING"),
        *("IS", "NULL", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "END"),
        *("TUMBLE", "HOP", "EVERY", "CUMULATE", "SESSION", "OFFSET", "KEEP", "EARLY"),
        *("RANGE", "SLIDE", "ROWS", "PARTITION", "NOW", "UNBOUNDED", "ISTREAM", "DSTREAM", "RSTREAM"),
    }
)


def spelled(text: str, style: str) -> str:
    """Return the text with its keywords in another case."""
    change: Mapping[str, object] = {"lower": str.lower, "upper": str.upper, "title": str.title, "odd": _odd}
    pieces = re.split(r"('[^']*')", text)
    return "".join(
        piece if piece.startswith("'") else
        re.sub(r"[A-Z]+", lambda word: change[style](word[0]) if word[0] in _KEYWORDS else word[0], piece)  # type: ignore[operator]
        for piece in pieces
    )  # fmt: skip


def _odd(word: str) -> str:
    return "".join(letter.upper() if at % 2 else letter.lower() for at, letter in enumerate(word))
