"""Calls of the user's Python functions in the expressions of a query: the SQL of the plan names each with its key."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import TokenType, tokenize

from hayase.core.errors import Mistake, suggestion
from hayase.core.function_declarations import FunctionDeclaration
from hayase.cql.macros import Expansion
from hayase.cql.syntax import Part
from hayase.cql.user_functions import function_versions, registered_functions

__all__ = ["FunctionCalls"]


class FunctionCalls:
    """The Python functions of a pipeline, as the queries call them. `keys` are their names in SQL, by name in lower case.

    `expansion` is the query whose expressions are resolved, if SQL functions in it were replaced.
    """

    def __init__(self, declared: Sequence[FunctionDeclaration] = (), expansion: Expansion | None = None) -> None:
        self.declared, self.expansion = declared, expansion or Expansion("", "")
        self.keys = registered_functions(declared)
        self.names = frozenset(self.keys)

    def inside(self, expansion: Expansion) -> FunctionCalls:
        """Return the same functions for the expressions of a query."""
        return FunctionCalls(self.declared, expansion)

    def with_keys(self, sql: str) -> str:
        """Return an expression that calls functions by their keys."""
        lowered = sql.lower()
        if not any(name in lowered for name in self.names):
            return sql
        tokens = tokenize(sql, dialect="duckdb")
        for at in range(len(tokens) - 2, -1, -1):
            token, before = tokens[at], tokens[at - 1].token_type if at else None
            is_call = tokens[at + 1].token_type is TokenType.L_PAREN and token.token_type is not TokenType.STRING
            if token.text.lower() in self.keys and is_call and before is not TokenType.DOT:
                sql = sql[: token.start] + self.keys[token.text.lower()] + sql[token.end + 1 :]
        return sql

    def with_versions(self, canon: str) -> str:
        """Return the canonical text of a query with the versions of the functions that it calls: its fingerprint has them."""
        words = set(canon.replace('"', "").split())
        versions = function_versions(one for one in self.declared if one.name.lower() in words)
        return " ".join([canon, *(versions[name] for name in sorted(versions))])

    def explained(self, part: Part, mistake: Mistake) -> Mistake:
        """Return a mistake that DuckDB found in a part: what the SQL functions in it stand for, and a hint for a function."""
        message, hint = mistake.message + self.expansion.noted(part), mistake.hint
        if message.startswith('unknown function "') and not (hint or "").startswith("did you mean"):
            near = suggestion(message.split('"')[1], [one.name for one in self.declared]) or ""
            hint = near if near.startswith("did you mean") else hint
        for declared in self.declared:
            if declared.sql is None and f"'{declared.name}(" in message:
                message = message.replace(
                    "Binder Error: No function matches the given name and argument types", "there is no"
                )
                message = message.replace(" You might need to add explicit type casts.", "").replace("'.", "'")
                hint = f"it is {declared.signature}; write CAST(...) around an argument of another type"
        return part.mistake(message, hint)
