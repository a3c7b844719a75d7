"""Parses the text of one query (sqlglot, DuckDB's dialect with CQL's additions) into syntax with line and column.

Expressions remain text, which DuckDB parses itself, so that nothing is lost in translation. Whatever CQL does not support is
refused by name, with line and column, and never read as something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal, cast

from sqlglot import ParseError, Token, TokenError, exp, tokenize

from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError, Mistake, by_place
from hayase.core.expressions import check_syntax
from hayase.cql.bare_names import find_bare_names, with_selects
from hayase.cql.dialect import StreamOperator, find_nested_operators, find_stream_operator, parse_statements
from hayase.cql.sqlglot_errors import mistake_of
from hayase.cql.syntax import Part, Query, named_relations, normalize_token
from hayase.cql.syntax_reader import Reader, position

__all__ = ["Part", "Statement", "parse"]


@dataclass(frozen=True, slots=True)
class Statement:
    """A parsed query; `stream` is the operator around it, if it yields a stream instead of a relation.

    `sources` are the streams, tables and queries that it reads, once for every occurrence. `canon` is the text without layout,
    comments and case: texts with equal canons mean the same.
    """

    query: Query
    stream: Literal["istream", "dstream", "rstream"] | None
    sources: tuple[Part, ...]
    canon: str


@lru_cache(maxsize=1024)
def parse(text: str, functions: frozenset[str] = frozenset()) -> Statement:
    """Parse a query. Raise DeclarationError with all mistakes in its syntax.

    `functions` are the names of the user's functions, in lower case.

    >>> statement = parse("Istream(select user_id from events [Rows 5] e join users u on e.user_id = u.id)")
    >>> statement.stream, [source.text for source in statement.sources]
    ('istream', ['events', 'users'])
    >>> parse("select * from events limit 0")
    Traceback (most recent call last):
    hayase.core.errors.DeclarationError: 1:28: LIMIT takes a whole number from 1 on; leave the clause out to keep all rows
    """
    try:
        without_comments = _without_comments(text)
        tokens = tokenize(without_comments, dialect="duckdb")
    except TokenError as error:
        raise DeclarationError([Mistake("cannot read the query", "is a quote left open?", line=1, column=1)]) from error
    bare = [tokens[at].start for at in find_bare_names(tokens)]
    written, tokens = tokens, with_selects(tokens, find_bare_names(tokens))
    operator, misplaced = find_stream_operator(tokens)
    if misplaced:
        raise DeclarationError([_misplaced_operator(text, token) for token in misplaced])
    nested = find_nested_operators(tokens)
    own_tokens = nested.tokens | (operator.tokens if operator else frozenset())
    kept = [token for at, token in enumerate(tokens) if at not in own_tokens]
    try:
        parsed = parse_statements(kept, text, nested.kinds, functions)
        query = _query(text, kept, parsed.statements)
    except ParseError as error:
        raise DeclarationError([mistake_of(error)]) from error
    except RecursionError as error:
        raise DeclarationError([_mistake(text, 0, "the query is nested too deeply", "cut it into several")]) from error
    spans = [(tokens[at].start, tokens[at].end + 1) for at in own_tokens]
    # sqlglot accepts some errors, such as an extra comma
    _check_syntax(_without_ties(_blank_out(text, [*spans, *parsed.windows]), written), bare)
    return Statement(
        query,
        _stream_kind(operator),
        tuple(relation.part for relation in named_relations(query)),
        _canon(without_comments, written),
    )


def _check_syntax(text: str, bare: Sequence[int]) -> None:
    """Let DuckDB check a text, with FROM before its bare names. The places of mistakes are those of the text."""
    for start in reversed(bare):
        text = f"{text[:start]}{_FROM}{text[start:]}"
    try:
        check_syntax(text)
    except DeclarationError as error:
        if not bare:
            raise
        places = [position(text, start + number * len(_FROM)) for number, start in enumerate(bare)]
        moved = []
        for mistake in error.mistakes:
            before = [at for line, at in places if line == mistake.line and at < (mistake.column or 1)]
            moved.append(replace(mistake, column=(mistake.column or 1) - len(_FROM) * len(before)))
        raise DeclarationError(moved) from error


_FROM = "from "


def _without_comments(text: str) -> str:
    """Replace comments by blanks: sqlglot reads GROUP BY as one token, but not with a comment inside."""
    tokens = tokenize(text, dialect="duckdb")
    ends = [0, *(token.end + 1 for token in tokens)]
    starts = [*(token.start for token in tokens), len(text)]
    return _blank_out(text, list(zip(ends, starts)))


def _query(text: str, tokens: list[Token], statements: tuple[exp.Expr, ...]) -> Query:
    if len(statements) != 1:
        message = (
            "one query is one statement; this text has several" if statements else "there is no query in this text"
        )
        raise DeclarationError([_mistake(text, 0, message, "write: select ... from ...")])
    reader = Reader(text, tokens)
    query = reader.query(statements[0], {})
    if query is None or reader.mistakes:
        mistakes = dict.fromkeys(reader.mistakes)  # a query named by WITH may have been read twice
        raise DeclarationError(sorted(mistakes, key=by_place))
    return query


def _stream_kind(operator: StreamOperator | None) -> Literal["istream", "dstream", "rstream"] | None:
    return cast('Literal["istream", "dstream", "rstream"]', operator.kind) if operator else None


def _canon(bare: str, tokens: list[Token]) -> str:
    written = [bare[token.start : token.end + 1] for token in tokens]
    return " ".join(normalize_token(word) for word in written if word != ";")


def _without_ties(text: str, tokens: list[Token]) -> str:
    """Replace WITH TIES of a FETCH clause, which DuckDB's parser does not know, by ONLY."""
    words = [token.text.lower() for token in tokens]
    for at in range(2, len(tokens)):
        if words[at - 1 : at + 1] == ["with", "ties"] and words[at - 2] in ("row", "rows"):
            first, last = tokens[at - 1], tokens[at]
            text = text[: first.start] + "only" + _blank_out(text, [(last.start, last.end + 1)])[first.end + 1 :]
    return text


def _blank_out(text: str, spans: list[tuple[int, int]]) -> str:
    """Replace these spans of the text by spaces; everything else keeps its place."""
    characters = list(text)
    for first, last in spans:
        characters[first:last] = [character if character == "\n" else " " for character in characters[first:last]]
    return "".join(characters)


# ---------------------------------------------------------------------------------------------------- mistakes


def _mistake(text: str, offset: int, message: str, hint: str | None = None) -> Mistake:
    line, column = position(text, offset)
    return Mistake(message, hint, line=line, column=column)


def _misplaced_operator(text: str, token: Token) -> Mistake:
    name = token.text.capitalize()
    hint = "write it before the query, in parentheses, or before a sub-query in FROM"
    return _mistake(text, token.start, f"{name} must enclose a whole query, once", hint)
