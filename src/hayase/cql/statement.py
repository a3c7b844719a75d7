"""The text of one query, parsed (sqlglot, DuckDB's dialect) into a summary that keeps the place of every part.

Expressions stay the text that was written: DuckDB reads them itself, so that nothing is lost in a translation. Whatever
this version of CQL does not support is refused by name, with line and column, and never read as something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import ParseError, Token, TokenError, TokenType, exp, tokenize

from hayase.core.errors import DeclarationError, Mistake
from hayase.core.expressions import check_syntax
from hayase.cql.dialect import trees, without_windows

__all__ = ["Aggregate", "Item", "Part", "Statement", "parse"]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the query as it was written, and where it begins. Parts with equal `canon` mean the same."""

    text: str
    line: int
    column: int
    canon: str = ""
    name: str | None = None
    """The column's name, when the part is nothing but a column."""

    def mistake(self, message: str, hint: str | None = None) -> Mistake:
        """Something wrong that begins here."""
        return Mistake(message, hint, line=self.line, column=self.column)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`count` or `sum`; without an argument it is `count(*)`."""

    function: str
    argument: Part | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of the select list: `*`, an aggregate, or a scalar expression."""

    part: Part
    alias: str | None = None
    aggregate: Aggregate | None = None
    star: bool = False


@dataclass(frozen=True, slots=True)
class Statement:
    """`select items from stream [alias] [where ...] [group by ...]`. `canon` does not know layout, comments or case."""

    items: tuple[Item, ...]
    stream: Part
    relation: str
    where: Part | None
    group: tuple[Part, ...]
    canon: str


def parse(text: str) -> Statement:
    """The summary of a query's text, or all that is wrong with it.

    >>> found = parse("select user_id, count(*) as n from events where amount > 0 group by user_id")
    >>> found.stream.text, [item.part.text for item in found.items], found.where.text, found.group[0].name
    ('events', ['user_id', 'count(*)'], 'amount > 0', 'user_id')
    >>> parse("select * from events limit 3")
    Traceback (most recent call last):
    hayase.core.errors.DeclarationError: 1:22: LIMIT is not supported yet
    """
    try:
        tokens = tokenize(text, dialect="duckdb")
    except TokenError as error:
        raise DeclarationError([Mistake("cannot read the query", "is a quote left open?", line=1, column=1)]) from error
    kept, windows = without_windows(tokens)
    mistakes = [_mistake(text, each, "windows in [brackets] are not supported yet") for each in windows]
    try:
        found = trees(kept, text)
    except ParseError as error:
        raise DeclarationError(mistakes or [_syntax(error)]) from error
    except RecursionError as error:
        raise DeclarationError([_mistake(text, 0, "the query is nested too deeply", "cut it into several")]) from error
    if len(found) != 1:
        what = "one query is one statement; this text has several" if found else "there is no query in this text"
        raise DeclarationError([_mistake(text, 0, what, "write: select ... from ...")])
    reader = _Reader(text, tokens)
    mistakes += reader.refusals(found[0])
    if mistakes:
        raise DeclarationError(sorted(mistakes, key=lambda each: (each.line or 0, each.column or 0)))
    check_syntax(text)  # sqlglot overlooks some slips, such as a comma too many
    return reader.statement(found[0])


# ---------------------------------------------------------------------------------------------------- places


def _position(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _mistake(text: str, offset: int, message: str, hint: str | None = None) -> Mistake:
    line, column = _position(text, offset)
    return Mistake(message, hint, line=line, column=column)


def _syntax(error: ParseError) -> Mistake:
    first = error.errors[0] if error.errors else {}
    length = len(first.get("highlight") or " ")
    what = str(first.get("description") or error).split(" for <class")[0]
    near = f' near "{first["highlight"]}"' if first.get("highlight") else ""
    column = max(1, (first.get("col") or length) - length + 1)  # sqlglot counts to the end of the token
    return Mistake(f"cannot read the query{near}: {what}", None, line=first.get("line"), column=column)


# ---------------------------------------------------------------------------------------------------- reading

_CLAUSES: dict[str, tuple[str, TokenType]] = {
    "with_": ("WITH", TokenType.WITH),
    "distinct": ("DISTINCT", TokenType.DISTINCT),
    "having": ("HAVING", TokenType.HAVING),
    "qualify": ("QUALIFY", TokenType.QUALIFY),
    "windows": ("WINDOW", TokenType.WINDOW),
    "order": ("ORDER BY", TokenType.ORDER_BY),
    "limit": ("LIMIT", TokenType.LIMIT),
    "offset": ("OFFSET", TokenType.OFFSET),
    "sample": ("sampling", TokenType.USING),
    "into": ("INTO", TokenType.INTO),
}
_READ = {"expressions", "from_", "where", "group", "joins"}


class _Reader:
    """Makes the summary of a tree, or tells what in it is not supported."""

    def __init__(self, text: str, tokens: Sequence[Token]):
        self.text, self.tokens = text, tokens

    def refusals(self, tree: exp.Expr) -> list[Mistake]:
        """Everything in the shape of the query that is not supported."""
        if isinstance(tree, exp.SetOperation):
            return [self._unsupported(type(tree).__name__.upper(), self._first(TokenType[type(tree).__name__.upper()]))]
        if isinstance(tree, exp.Anonymous) and tree.name.lower() in ("istream", "dstream", "rstream"):
            return [self._unsupported(tree.name.capitalize(), 0)]
        if not isinstance(tree, exp.Select):
            return [_mistake(self.text, 0, "a query begins with select", "write: select ... from ...")]
        return [*self._clauses(tree), *self._source(tree), *self._list(tree), *self._groups(tree)]

    def _clauses(self, tree: exp.Select) -> Iterator[Mistake]:
        for name, value in tree.args.items():
            if not value or name in _READ:
                continue
            what, token = _CLAUSES.get(name, (name.strip("_").upper(), TokenType.SELECT))
            yield self._unsupported(what, self._first(token))
        for join in tree.args.get("joins") or ():
            yield self._unsupported("joins", self._start(join), plural=True)

    def _source(self, tree: exp.Select) -> Iterator[Mistake]:
        clause = tree.args.get("from_")
        if clause is None:
            yield _mistake(self.text, 0, "a query needs a stream", "write: select ... from ...")
            return
        table = clause.this
        place = self._start(table)
        if not isinstance(table, exp.Table):
            yield self._unsupported("sub-queries in FROM", place, plural=True)
        elif not isinstance(table.this, exp.Identifier):
            yield self._unsupported("table functions", place, plural=True)
        elif table.args.get("db"):
            yield _mistake(self.text, place, f'"{table.sql(dialect="duckdb")}" is not a stream', "write its plain name")
        else:
            if table.args.get("joins"):
                yield self._unsupported("joins", place, plural=True)
            for name, value in table.args.items():
                if value and name not in ("this", "alias", "joins"):
                    yield self._unsupported(name.strip("_").upper(), place)
            if table.args.get("alias") and table.args["alias"].args.get("columns"):
                yield self._unsupported("column aliases behind a stream", place, plural=True)

    def _list(self, tree: exp.Select) -> Iterator[Mistake]:
        if not tree.expressions:
            yield _mistake(self.text, 0, "the select list is empty", "write select * to take all columns")
        for node in tree.expressions:
            inner = node.unalias().unnest()
            place = self._start(node.unalias())
            if _is_star(inner):
                star = inner if isinstance(inner, exp.Star) else inner.this
                if isinstance(node, exp.Alias):
                    yield self._unsupported("* AS", place)
                source = tree.args["from_"].this if tree.args.get("from_") else None
                if isinstance(inner, exp.Column) and source and inner.table.lower() != source.alias_or_name.lower():
                    hint = f'this query reads "{source.alias_or_name}"'
                    yield _mistake(self.text, place, f'unknown stream "{inner.table}"', hint)
                for name, value in star.args.items():
                    if value:
                        yield self._unsupported(f"* {name.strip('_').upper()}", place)
            elif "span" not in node.unalias().meta:
                yield _mistake(self.text, place, f'"{node.sql(dialect="duckdb")}" is not an expression')
            elif isinstance(inner, exp.Filter):
                yield self._unsupported("FILTER on an aggregate", place)
            elif isinstance(inner, (exp.Count, exp.Sum)):
                yield from self._arguments(inner, place)

    def _arguments(self, node: exp.Expr, place: int) -> Iterator[Mistake]:
        what = type(node).__name__.lower()
        if isinstance(node.this, exp.Distinct):
            yield self._unsupported(f"{what}(DISTINCT ...)", place)
        elif isinstance(node.this, (exp.Order, exp.Limit, exp.IgnoreNulls, exp.RespectNulls, exp.HavingMax)):
            yield self._unsupported(f"{what}({type(node.this).__name__.upper()} ...)", place)
        elif node.expressions or (node.this is None and what == "sum"):
            yield _mistake(self.text, place, f"{what} takes one argument")

    def _groups(self, tree: exp.Select) -> Iterator[Mistake]:
        group = tree.args.get("group")
        if group is None:
            return
        place = self._first(TokenType.GROUP_BY)
        for name, value in group.args.items():
            if name != "expressions" and value is not None and value != []:
                yield self._unsupported(f"GROUP BY {name.upper().replace('_', ' ')}", place)
        for node in group.expressions:
            if "span" not in node.meta:
                yield self._unsupported(f"GROUP BY {type(node).__name__.upper()}", place)

    def statement(self, tree: exp.Expr) -> Statement:
        """The summary of a tree in which nothing was refused."""
        table = tree.args["from_"].this
        stream = self._part(table, table.name)
        relation = table.alias or table.name
        where, group = tree.args.get("where"), tree.args.get("group")
        return Statement(
            items=tuple(self._item(each, relation) for each in tree.expressions),
            stream=stream,
            relation=relation,
            where=self._expression(where.this, relation) if where else None,
            group=tuple(self._expression(each, relation) for each in group.expressions) if group else (),
            canon=" ".join(
                _canonical(self.text[each.start : each.end + 1])
                for each in self.tokens
                if each.token_type is not TokenType.SEMICOLON
            ),
        )

    def _item(self, node: exp.Expr, relation: str) -> Item:
        bare = node.unalias()
        inner = bare.unnest()
        alias = node.alias if isinstance(node, exp.Alias) else None
        if _is_star(inner):
            return Item(self._part(bare, "*"), star=True)
        part = self._expression(bare, relation)
        if isinstance(inner, (exp.Count, exp.Sum)):
            argument = None
            if inner.this is not None and not isinstance(inner.this, exp.Star):
                argument = self._expression(inner.this, relation)
            return Item(part, alias, Aggregate(type(inner).__name__.lower(), argument))
        return Item(part, alias)

    def _expression(self, node: exp.Expr, relation: str) -> Part:
        first, last = node.meta["span"]
        plain = node.unnest().copy()
        for column in plain.find_all(exp.Column):
            if column.table.lower() == relation.lower() and not column.args.get("db"):
                column.set("table", None)
        for identifier in plain.find_all(exp.Identifier):
            identifier.set("this", identifier.name.lower())
        canon = plain.sql(dialect="duckdb", comments=False, identify=True, normalize_functions="lower")
        name = node.unnest().name if isinstance(node.unnest(), exp.Column) else None
        return Part(self.text[first:last], *_position(self.text, first), canon, name)

    def _part(self, node: exp.Expr, text: str) -> Part:
        line, column = _position(self.text, self._start(node))
        return Part(text, line, column)

    def _start(self, node: exp.Expr) -> int:
        """Where a node begins; the beginning of the query if the parser did not note it."""
        spans = [each.meta["span"][0] for each in node.walk() if "span" in each.meta]
        starts = [each.meta["start"] for each in node.walk() if "start" in each.meta]
        return min(spans or starts or [0])

    def _first(self, kind: TokenType) -> int:
        """Where the first token of a kind stands outside of all parentheses."""
        depth = 0
        for token in self.tokens:
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
            if token.token_type is kind and depth == 0:
                return token.start
        return 0

    def _unsupported(self, what: str, offset: int, plural: bool = False) -> Mistake:
        return _mistake(self.text, offset, f"{what} {'are' if plural else 'is'} not supported yet")


def _is_star(node: exp.Expr) -> bool:
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def _canonical(written: str) -> str:
    """A token without its case, except where it is quoted in one way or another and case means something."""
    return written if any(mark in written for mark in "'\"$") else written.lower()
