"""SQL functions of the user: a call is replaced by the expression that it stands for, before the query is parsed.

The expression is put in parentheses, and so is each argument that is more than a name or a constant, so that operators bind as
they are written. Names cannot be captured: a function reads nothing but its arguments, and the parameter of a lambda in it is
renamed if an argument has that name too. Calls in arguments and in other functions are replaced as well.

`Expansion` knows where each piece of the new text comes from, so that a mistake has its place in the query as it was written.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field, replace

from sqlglot import Token, TokenError, TokenType, tokenize

from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError, Mistake
from hayase.core.expressions import parse_body
from hayase.core.function_data import recursion
from hayase.core.function_declarations import FunctionDeclaration
from hayase.cql.syntax import Part

__all__ = ["Expansion", "Macros"]

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_SIMPLE = re.compile(r'\w+(\.\w+)*|"[^"]*"|\'[^\']*\'')


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of text: as written from `origin` on or, if it comes from a function, standing for the call at `origin`."""

    text: str
    origin: int
    function: str | None = None


@dataclass(frozen=True, slots=True)
class Expansion:
    """A query whose calls of SQL functions are replaced. `notes` says of each function what it stands for."""

    text: str
    written: str
    pieces: tuple[_Piece, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)

    def placed(self, mistake: Mistake) -> Mistake:
        """Return a mistake in the new text at its place in the text as written."""
        if not self.notes or mistake.line is None:
            return mistake
        piece, start = self._piece(_offset(self.text, mistake.line, mistake.column or 1))
        if piece.function is None:
            line, column = _position(self.written, piece.origin + start)
            return replace(mistake, line=line, column=column)
        line, column = _position(self.written, piece.origin)
        note = self.notes[piece.function]
        message = mistake.message if note in mistake.message else f"{mistake.message} ({note})"
        return replace(mistake, message=message, line=line, column=column)

    def noted(self, part: Part) -> str:
        """Return what the functions in a part of the new text stand for, in parentheses; empty if there are none in it."""
        if not self.notes:
            return ""
        start = _offset(self.text, part.line, part.column)
        names = {piece.function for at, piece in self._placed_pieces() if start <= at < start + len(part.text)}
        listed = "; ".join(note for name, note in self.notes.items() if name in names)
        return f" ({listed})" if listed else ""

    def _placed_pieces(self) -> Iterator[tuple[int, _Piece]]:
        at = 0
        for piece in self.pieces:
            yield at, piece
            at += len(piece.text)

    def _piece(self, offset: int) -> tuple[_Piece, int]:
        """Return the piece at an offset of the new text, and the offset inside of it."""
        starts = [at for at, _ in self._placed_pieces()]
        number = max(bisect_right(starts, offset) - 1, 0)
        return self.pieces[number], offset - starts[number]


class Macros:
    """The SQL functions of a pipeline."""

    def __init__(self, functions: Iterable[FunctionDeclaration] = ()) -> None:
        declared = [one for one in functions if one.sql is not None]
        self._functions = {one.name.lower(): one for one in declared}
        self._bodies: dict[str, str] = {}
        """The expressions without calls of other SQL functions."""
        self.mistakes = recursion(declared)
        """The mistakes in functions that only show beside the others, each with the name of its function."""
        recursive = {name for name, _ in self.mistakes}
        for one in declared:
            if one.name.lower() not in recursive:
                try:
                    self._body_of(one, recursive)
                except DeclarationError as error:
                    self.mistakes += [
                        (one.name, replace(mistake, message=f'function "{one.name}": {mistake.message}', subject="sql"))
                        for mistake in error.mistakes
                    ]

    def _body_of(self, declared: FunctionDeclaration, recursive: Set[str]) -> str:
        name, sql = declared.name.lower(), _without_comments(declared.sql or "").rstrip()
        if name not in self._bodies:
            for called in sorted(parse_body(sql).functions & self._functions.keys()):
                if called in recursive:
                    raise DeclarationError([Part(sql, 1, 1).mistake(f"it calls {called}, which calls itself")])
                self._body_of(self._functions[called], recursive)
            self._bodies[name] = self.expand(sql).text
        return self._bodies[name]

    def expand(self, text: str) -> Expansion:
        """Replace all calls in a query. DeclarationError if one has the wrong arguments."""
        try:
            tokens = tokenize(text, dialect="duckdb") if self._functions else []
        except TokenError:  # the parser reports it
            tokens = []
        calls = list(self._calls(tokens))
        if not calls:
            return Expansion(text, text)
        pieces = tuple(self._expanded(text, tokens, 0, 0, len(text)))
        used = {piece.function for piece in pieces}
        notes = {name: _note(one) for name, one in self._functions.items() if name in used}
        return Expansion("".join(piece.text for piece in pieces), text, pieces, notes)

    def _calls(self, tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
        """Yield the outermost calls: the places of the name and of the closing parenthesis."""
        last = -1
        for at, token in enumerate(tokens[:-1]):
            if at <= last or token.text.lower() not in self._functions or token.token_type is TokenType.STRING:
                continue
            before = tokens[at - 1].token_type if at else None
            if tokens[at + 1].token_type is not TokenType.L_PAREN or before in (TokenType.DOT, TokenType.ALIAS):
                continue
            close = _closing(tokens, at + 1)
            if close is not None and not _names_columns(tokens, close):
                last = close
                yield at, close

    def _expanded(self, text: str, tokens: Sequence[Token], base: int, start: int, end: int) -> Iterator[_Piece]:
        """Yield the pieces of a text between two offsets; `tokens` are those of the text, which begins at `base` of the query."""
        at = start
        for first, close in self._calls(tokens):
            name, last = tokens[first], tokens[close]
            yield _Piece(text[at : name.start], base + at)
            yield from self._call(text, tokens[first : close + 2], base)
            at = last.end + 1
        yield _Piece(text[at:end], base + at)

    def _call(self, text: str, tokens: Sequence[Token], base: int) -> Iterator[_Piece]:
        """Yield the pieces of one call; the tokens are those of the call and the one after it, if there is one."""
        close = _closing(tokens, 1) or 0
        declared, origin = self._functions[tokens[0].text.lower()], base + tokens[0].start
        arguments = _arguments(tokens[2:close])
        after = tokens[close + 1].text.lower() if len(tokens) > close + 1 else ""
        self._check(declared, arguments, after, Part(text, *_position(text, tokens[0].start)))
        given = []
        for argument in arguments:
            start, end = argument[0].start, argument[-1].end + 1
            pieces = list(self._expanded(text, argument, base, start, end))
            given.append(pieces if _SIMPLE.fullmatch(text[start:end]) else _wrapped(pieces, origin, declared))
        yield from self._body(declared, given, origin)

    def _check(
        self, declared: FunctionDeclaration, arguments: Sequence[Sequence[Token]], after: str, place: Part
    ) -> None:
        wanted, given = len(declared.names), len(arguments)
        if declared.name.lower() not in self._bodies:
            raise DeclarationError([place.mistake(f"the function {declared.name} has a mistake", "correct it first")])
        if after in ("over", "filter"):
            message = f"{declared.name} is not an aggregate, and has no {after.upper()}"
            raise DeclarationError([place.mistake(message, "write the expression itself instead of the call")])
        if any(token.token_type is TokenType.COLON_EQ for argument in arguments for token in argument):
            raise DeclarationError([place.mistake(f"{declared.name} takes no named arguments", "write them in order")])
        if wanted != given or any(not argument for argument in arguments):
            count = (
                "no arguments" if not wanted else f"{wanted} argument{'s' if wanted > 1 else ''} ({declared.arguments})"
            )
            message = f"{declared.name} takes {count}, and is given {given if given else 'none'}"
            raise DeclarationError([place.mistake(message, _note(declared))])

    def _body(self, declared: FunctionDeclaration, given: Sequence[list[_Piece]], origin: int) -> Iterator[_Piece]:
        """Yield the expression of a function in parentheses, with the pieces of its arguments in place of their names."""
        name = declared.name.lower()
        sql = self._bodies[name]
        words = {token.text.lower() for pieces in given for piece in pieces for token in _tokens(piece.text)}
        places = {one.lower(): number for number, one in enumerate(declared.names)}
        parsed = parse_body(sql)
        pieces: dict[int, tuple[int, list[_Piece]]] = {}
        for reference in parsed.columns:
            end = reference.start + tokenize(sql[reference.start : reference.end], dialect="duckdb")[0].end + 1
            pieces[reference.start] = end, given[places[reference.parts[0].lower()]]
        pieces |= _renamed_lambdas(sql, parsed.lambdas & words, words, set(pieces), origin, name)
        yield _Piece("(", origin, name)
        at = 0
        for start, (end, replacement) in sorted(pieces.items()):
            yield _Piece(sql[at:start], origin, name)
            yield from replacement
            at = end
        yield _Piece(sql[at:], origin, name)
        yield _Piece(")", origin, name)


def _renamed_lambdas(
    sql: str, names: Set[str], taken: Set[str], arguments: Set[int], origin: int, function: str
) -> dict[int, tuple[int, list[_Piece]]]:
    """Return what replaces the parameters of lambdas that have one of these names, by the place at which each stands.

    `arguments` are the places of the function's own arguments, which are none of them.
    """
    if not names:
        return {}
    tokens = _tokens(sql)
    known = taken | {token.text.lower() for token in tokens}
    fresh = {
        name: next(f"{name}_{n}" for n in range(1, len(known) + 2) if f"{name}_{n}" not in known) for name in names
    }
    renamed: dict[int, tuple[int, list[_Piece]]] = {}
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None]):
        is_field = before is not None and before.token_type is TokenType.DOT
        is_name = token.token_type in (TokenType.VAR, TokenType.IDENTIFIER)
        is_key = after is not None and after.token_type in (TokenType.COLON_EQ, TokenType.L_PAREN)
        if token.text.lower() in names and token.start not in arguments and is_name and not is_field and not is_key:
            renamed[token.start] = token.end + 1, [_Piece(fresh[token.text.lower()], origin, function)]
    return renamed


def _note(declared: FunctionDeclaration) -> str:
    return f"{declared.signature} stands for {' '.join(_without_comments(declared.sql or '').split())}"


def _wrapped(pieces: list[_Piece], origin: int, declared: FunctionDeclaration) -> list[_Piece]:
    name = declared.name.lower()
    return [_Piece("(", origin, name), *pieces, _Piece(")", origin, name)]


def _names_columns(tokens: Sequence[Token], close: int) -> bool:
    """Return whether what looks like a call is the name of a WITH query and its columns: `name(a, b) as (select ...)`."""
    after = [token.text.lower() for token in tokens[close + 1 : close + 3]]
    return after in (["as", "("], ["as", "materialized"], ["as", "not"])


def _closing(tokens: Sequence[Token], opening: int) -> int | None:
    depth = 0
    for at in range(opening, len(tokens)):
        depth += (tokens[at].token_type in _OPENING) - (tokens[at].token_type in _CLOSING)
        if depth == 0:
            return at
    return None


def _arguments(tokens: Sequence[Token]) -> list[list[Token]]:
    """Return what commas outside of parentheses separate; nothing if there are no tokens."""
    arguments: list[list[Token]] = [[]] if tokens else []
    depth = 0
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth == 0 and token.token_type is TokenType.COMMA:
            arguments.append([])
        else:
            arguments[-1].append(token)
    return arguments


def _without_comments(sql: str) -> str:
    """Replace comments by blanks: what follows the expression would become part of one at its end."""
    tokens = tokenize(sql, dialect="duckdb")
    starts, ends = [*(token.start for token in tokens), len(sql)], [0, *(token.end + 1 for token in tokens)]
    words = [sql[token.start : token.end + 1] for token in tokens]
    blanks = [re.sub(r"[^\n]", " ", sql[end:start]) for end, start in zip(ends, starts)]
    return blanks[0] + "".join(word + blank for word, blank in zip(words, blanks[1:]))


def _tokens(text: str) -> list[Token]:
    """Return the tokens of a piece of text, which may begin or end inside of an expression but not inside of a word."""
    try:
        return list(tokenize(text, dialect="duckdb"))
    except TokenError:
        return []


def _offset(text: str, line: int, column: int) -> int:
    """Return the offset of a line and column, both counted from 1."""
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
    return start + column - 1


def _position(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
