"""What tools for PostgreSQL write and DuckDB does not read: replaced in the text of a statement, outside of quotes.

Functions that describe a database are macros; they say what is true of a home: one user, everything visible, nothing indexed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import sqlglot
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from hayase.wire.column_types import NAMES

__all__ = [
    "DATABASE",
    "FIRST_HIDDEN",
    "FUNCTIONS",
    "USER",
    "VERSION",
    "is_about_the_catalogue",
    "statements",
    "translated",
]

DATABASE, USER = "hayase", "hayase"
VERSION = "16.0"
FIRST_HIDDEN = 1_000_000
"""Relations with this number and above are found by the name of their schema only."""
_TYPES = " ".join(f"WHEN {oid} THEN '{name}'" for oid, name in NAMES.items())


_WORDS_IN_QUOTES = (
    "all analyse analyze and any array as asc asymmetric at both case cast check collate column constraint create default "
    "deferrable desc describe distinct do else end except false fetch for foreign from group having in initially intersect into "
    "lambda lateral leading limit not null offset on only or order pivot placing primary qualify references returning select show "
    "some summarize symmetric table then to trailing true union unique unpivot using variadic when where window with"
)
"""Words that DuckDB reads as the name of a column only in quotes."""
_RESERVED = ", ".join(f"'{word}'" for word in _WORDS_IN_QUOTES.split())


def _json_object(pairs: int) -> str:
    """One form of json_build_object, which DuckDB has under another name, for so many names with values."""
    names = ", ".join(f"name{at}, value{at}" for at in range(pairs))
    return f"({names}) AS json_object({', '.join(f'name{at}::VARCHAR, value{at}' for at in range(pairs))})"


_MACROS = {
    "json_build_object": ", ".join(map(_json_object, range(11))),
    "format_type": f"(kind, modifier) AS CASE kind WHEN 18 THEN '\"char\"' WHEN 19 THEN 'name' WHEN 26 THEN 'oid' "
    f"WHEN 1043 THEN 'character varying' {_TYPES} ELSE '???' END",
    "version": f"() AS 'PostgreSQL {VERSION} (Hayase)'",
    "current_database": f"() AS '{DATABASE}'",
    "current_catalog": f"() AS '{DATABASE}'",
    "current_schema": "() AS 'public'",
    "current_schemas": "(implicit) AS ['pg_catalog', 'public']",
    "pg_backend_pid": "() AS 1",
    "pg_get_userbyid": f"(role) AS '{USER}'",
    "pg_table_is_visible": f"(relation) AS relation < {FIRST_HIDDEN}",
    "pg_collation_is_visible": "(item) AS true",
    "pg_type_is_visible": "(kind) AS true",
    "pg_function_is_visible": "(kind) AS true",
    "pg_get_expr": "(tree, relation, pretty := false) AS NULL::VARCHAR",
    "pg_get_indexdef": "(relation, place := 0, pretty := false) AS NULL::VARCHAR",
    "pg_get_constraintdef": "(item, pretty := false) AS NULL::VARCHAR",
    "pg_get_viewdef": "(relation, pretty := false) AS NULL::VARCHAR",
    "pg_get_ruledef": "(rule, pretty := false) AS NULL::VARCHAR",
    "pg_get_triggerdef": "(rule, pretty := false) AS NULL::VARCHAR",
    "pg_get_serial_sequence": "(relation, place) AS NULL::VARCHAR",
    "pg_get_partkeydef": "(relation) AS NULL::VARCHAR",
    "pg_get_statisticsobjdef_columns": "(item) AS NULL::VARCHAR",
    "obj_description": "(item, class := '') AS NULL::VARCHAR",
    "col_description": "(item, place) AS NULL::VARCHAR",
    "shobj_description": "(item, class) AS NULL::VARCHAR",
    "pg_encoding_to_char": "(encoding) AS 'UTF8'",
    "pg_is_in_recovery": "() AS false",
    "pg_my_temp_schema": "() AS 0",
    "pg_is_other_temp_schema": "(item) AS false",
    "pg_relation_is_publishable": "(item) AS false",
    "pg_relation_size": "(item, fork := '') AS 0",
    "pg_table_size": "(item) AS 0",
    "pg_total_relation_size": "(item) AS 0",
    "pg_database_size": "(item) AS 0",
    "pg_stat_get_numscans": "(item) AS 0",
    "has_schema_privilege": "(a, b, c := '') AS true",
    "has_table_privilege": "(a, b, c := '') AS true",
    "has_column_privilege": "(a, b, c := '', d := '') AS true",
    "has_any_column_privilege": "(a, b, c := '') AS true",
    "has_database_privilege": "(a, b, c := '') AS true",
    "has_function_privilege": "(a, b, c := '') AS true",
    "pg_get_keywords": "() AS TABLE SELECT keyword_name AS word, 'U' AS catcode, keyword_category AS catdesc "
    "FROM duckdb_keywords()",
    "quote_ident": f"(name) AS CASE WHEN regexp_full_match(name, '[a-z_][a-z0-9_]*') AND name NOT IN ({_RESERVED}) THEN name "
    "ELSE '\"' || replace(name, '\"', '\"\"') || '\"' END",
    "parse_ident": "(name) AS string_split(replace(name, '\"', ''), '.')",
    "array_lower": "(items, dimension) AS CASE WHEN len(items) > 0 THEN 1 END",
    "array_upper": "(items, dimension) AS nullif(len(items), 0)",
    "to_regclass": "(name) AS NULL::BIGINT",
    "to_regtype": "(name) AS NULL::BIGINT",
    "pg_get_function_result": "(item) AS NULL::VARCHAR",
    "pg_get_function_arguments": "(item) AS NULL::VARCHAR",
    "pg_get_function_identity_arguments": "(item) AS NULL::VARCHAR",
    "current_setting": f"(name, missing := false) AS CASE lower(name) WHEN 'server_version_num' THEN '160000' "
    f"WHEN 'server_version' THEN '{VERSION}' WHEN 'search_path' THEN 'public' WHEN 'timezone' THEN 'UTC' END",
    "set_config": "(name, setting, is_local) AS setting",
    "inet_server_addr": "() AS NULL::VARCHAR",
    "inet_server_port": "() AS NULL::INTEGER",
    "_pg_expandarray": "(items) AS {'x': NULL::BIGINT, 'n': NULL::BIGINT}",
}
FUNCTIONS = tuple(f"__pg_{name}{body}" for name, body in _MACROS.items())
"""The macros, as CREATE MACRO takes them."""

_QUOTED = re.compile(r"('(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/)", re.DOTALL)
_NAMED = re.compile(rf"\b(?:(?:pg_catalog|information_schema)\s*\.\s*)?({'|'.join(_MACROS)})\s*\(", re.IGNORECASE)
_WORDS = re.compile(r"(?<![.\w])(current_user|session_user|current_role|current_catalog)\b(?!\s*\()", re.IGNORECASE)
_RULES = (
    (re.compile(r"operator\s*\(\s*pg_catalog\s*\.\s*([^)\s]+)\s*\)", re.IGNORECASE), r"\1"),
    (re.compile(r"collate\s+(pg_catalog\s*\.\s*)?(default|\"default\"|\"C\")", re.IGNORECASE), ""),
    (re.compile(r"(::|\bas\s+)\s*(pg_catalog\s*\.\s*)?(oid|xid|regnamespace)\b", re.IGNORECASE), r"\1bigint"),
    (re.compile(r"(::|\bas\s+)\s*(pg_catalog\s*\.\s*)?(regtype|regproc|regprocedure|regclass|regrole|name|text|varchar|bpchar"
                r"|information_schema\.\w+)\b(?!\s*[,.])", re.IGNORECASE), r"\1varchar"),
    (re.compile(r"(::|\bas\s+)\s*(pg_catalog\s*\.\s*)(\w+)", re.IGNORECASE), r"\1\3"),
    (_NAMED, lambda found: f"__pg_{found[1].lower()}("),
    (_WORDS, f"'{USER}'"),
    (re.compile(r"\bpg_catalog\s*\.\s*(\w+)\s*\(", re.IGNORECASE), r"\1("),
    (re.compile(r"(\bas\s+)(select|table|update|delete|insert|references)(?=\s*[,)]|\s+from\b)", re.IGNORECASE), r'\1"\2"'),
)  # fmt: skip
_CLASS = re.compile(
    r"'((?:[^']|'')*)'\s*::\s*(?:pg_catalog\s*\.\s*)?regclass(?:\s*::\s*(?:pg_catalog\s*\.\s*)?oid)?", re.IGNORECASE
)
_SEARCH_PATH = re.compile(
    r"select\s+case\s+when\s+trim\(s\[i\]\).*?string_to_array\(current_setting\('search_path'\),\s*','\)\s+s\b",
    re.IGNORECASE | re.DOTALL,
)
"""How Grafana asks which schemas are found without their names."""
_ITEMS = re.compile(r"'\{([^'{}\"]*)\}'\s*::\s*(?:text|varchar|name)\s*\[\]", re.IGNORECASE)
_FORMAT = re.compile(r"\bformat\s*\(\s*'((?:[^']|'')*%[sIL](?:[^']|'')*)'", re.IGNORECASE)
_CHAR = re.compile(r"::\s*(pg_catalog\s*\.\s*)?\"char\"", re.IGNORECASE)
_CATALOGUE = re.compile(r"\b(pg_\w+|information_schema)\b", re.IGNORECASE)


def is_about_the_catalogue(sql: str) -> bool:
    """Whether a statement asks about relations rather than for their rows."""
    return _CATALOGUE.search(sql) is not None


def translated(sql: str) -> str:
    """Return a statement as DuckDB reads it.

    >>> translated("select c.oid::pg_catalog.regclass from pg_catalog.pg_class c where relname OPERATOR(pg_catalog.~) '^(a)$'")
    "select c.oid::varchar from pg_catalog.pg_class c where relname ~ '^(a)$'"
    """
    sql = _CLASS.sub(r"(SELECT oid FROM pg_catalog.pg_class WHERE relname = '\1')", sql)
    sql = _CHAR.sub("::varchar", sql)
    sql = _SEARCH_PATH.sub("SELECT 'public'", sql)
    sql = _ITEMS.sub(r"string_split('\1', ',')", sql)
    sql = _FORMAT.sub(lambda found: f"printf('{re.sub('%[IL]', '%s', found[1])}'", sql)
    parts = _QUOTED.split(sql)
    for at in range(0, len(parts), 2):
        for pattern, replacement in _RULES:
            parts[at] = pattern.sub(replacement, parts[at])
    return "".join(parts)


def statements(sql: str) -> Iterator[tuple[int, str]]:
    """Yield the statements of a text, cut at semicolons, each with its place; those that are empty are left out.

    >>> list(statements("select ';' ; show x;"))
    [(0, "select ';' "), (12, ' show x')]
    """
    at = 0
    try:
        ends = [
            token.start for token in sqlglot.tokenize(sql, read="duckdb") if token.token_type == TokenType.SEMICOLON
        ]
    except SqlglotError:
        ends = []
    for end in (*ends, len(sql)):
        if sql[at:end].strip():
            yield at, sql[at:end]
        at = end + 1
