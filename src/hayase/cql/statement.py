"""The text of one query, parsed (sqlglot, DuckDB's dialect with CQL's additions) into syntax that knows its places.

Expressions stay the text that was written: DuckDB reads them itself, so that nothing is lost in a translation. Whatever
CQL does not support is refused by name, with line and column, and never read as something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from sqlglot import ParseError, Token, TokenError, exp, tokenize

from hayase.core.errors import DeclarationError, Mistake
from hayase.core.expressions import check_syntax
from hayase.cql.dialect import StreamOperator, find_stream_operator, parse_statements
from hayase.cql.sqlglot_errors import mistake_of
from hayase.cql.syntax import Part, Query, named_relations, normalize_token
from hayase.cql.syntax_reader import Reader, position

__all__ = ["Part", "Statement", "parse"]


@dataclass(frozen=True, slots=True)
class Statement:
    """A query, and whether it yields a stream instead of a relation.

    `sources` are the streams and queries that it reads, as often as they are written. `canon` is the text without
    layout, comments and case: texts with equal canons mean the same.
    """

    query: Query
    stream: Literal["istream", "dstream", "rstream"] | None
    sources: tuple[Part, ...]
    canon: str


def parse(text: str) -> Statement:
    """The syntax of a query, or all that is wrong with it.

    >>> found = parse("Istream(select user_id from events [Rows 5] e join users u on e.user_id = u.id)")
    >>> found.stream, [each.text for each in found.sources]
    ('istream', ['events', 'users'])
    >>> parse("select * from events limit 3")
    Traceback (most recent call last):
    hayase.core.errors.DeclarationError: 1:22: LIMIT is not supported; a relation has neither order nor end
    """
    try:
        bare = _without_comments(text)
        tokens = tokenize(bare, dialect="duckdb")
    except TokenError as error:
        raise DeclarationError([Mistake("cannot read the query", "is a quote left open?", line=1, column=1)]) from error
    operator, elsewhere = find_stream_operator(tokens)
    if elsewhere:
        raise DeclarationError([_misplaced_operator(text, each) for each in elsewhere])
    kept = [each for at, each in enumerate(tokens) if operator is None or at not in operator.tokens]
    try:
        found = parse_statements(kept, text)
        query = _query(text, kept, found.statements)
    except ParseError as error:
        raise DeclarationError([mistake_of(error)]) from error
    except RecursionError as error:
        raise DeclarationError([_mistake(text, 0, "the query is nested too deeply", "cut it into several")]) from error
    said = [(tokens[at].start, tokens[at].end + 1) for at in operator.tokens] if operator else []
    check_syntax(_blank_out(text, [*said, *found.windows]))  # sqlglot overlooks some slips, such as a comma too many
    return Statement(
        query, _stream_kind(operator), tuple(each.part for each in named_relations(query)), _canon(bare, tokens)
    )


def _without_comments(text: str) -> str:
    """The text with blanks for comments: sqlglot knows GROUP BY as one token, but not with a comment inside."""
    found = tokenize(text, dialect="duckdb")
    ends = [0, *(each.end + 1 for each in found)]
    starts = [*(each.start for each in found), len(text)]
    return _blank_out(text, list(zip(ends, starts)))


def _query(text: str, tokens: list[Token], statements: tuple[exp.Expr, ...]) -> Query:
    if len(statements) != 1:
        what = "one query is one statement; this text has several" if statements else "there is no query in this text"
        raise DeclarationError([_mistake(text, 0, what, "write: select ... from ...")])
    reader = Reader(text, tokens)
    query = reader.query(statements[0], {})
    if query is None or reader.mistakes:
        found = dict.fromkeys(reader.mistakes)  # what WITH names may have been read twice
        raise DeclarationError(sorted(found, key=lambda each: (each.line or 0, each.column or 0)))
    return query


def _stream_kind(operator: StreamOperator | None) -> Literal["istream", "dstream", "rstream"] | None:
    return cast('Literal["istream", "dstream", "rstream"]', operator.kind) if operator else None


def _canon(bare: str, tokens: list[Token]) -> str:
    written = [bare[each.start : each.end + 1] for each in tokens]
    return " ".join(normalize_token(each) for each in written if each != ";")


def _blank_out(text: str, spans: list[tuple[int, int]]) -> str:
    """The text with spaces where DuckDB is not to look; everything else keeps its place."""
    characters = list(text)
    for first, last in spans:
        characters[first:last] = [each if each == "\n" else " " for each in characters[first:last]]
    return "".join(characters)


# ---------------------------------------------------------------------------------------------------- mistakes


def _mistake(text: str, offset: int, message: str, hint: str | None = None) -> Mistake:
    line, column = position(text, offset)
    return Mistake(message, hint, line=line, column=column)


def _misplaced_operator(text: str, token: Token) -> Mistake:
    name = token.text.capitalize()
    hint = "write it before the query, in parentheses; what is inside may be a named query"
    return _mistake(text, token.start, f"{name} stands around the whole query, once", hint)
