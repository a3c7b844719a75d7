"""Expressions in DuckDB's SQL over Arrow batches: filters, computed columns, keys, arguments. Only this module imports duckdb.

Guarantees:

- An expression is a pure function of one row. Whatever could give another result on a second run (clocks, random numbers,
  sub-queries, window functions, parameters) is refused by name when the expression is bound.
- A row whose expression raises (bad cast, overflow) is refused alone, with the reason; other rows are not affected. `where`
  is evaluated first and always completely (use CASE to guard one condition by another); the selected expressions are
  evaluated only where it holds. The outcome of a row does not depend on other rows.
- Rows keep their order, and `input_rows` holds the input row of every output row.
- Division by zero gives NULL. Integer overflow and failing casts raise; NaN and NULL are ordinary values.
- Types are those that a stream can have. Other types of DuckDB are cast (unsigned and 128-bit integers, enums, UUIDs,
  other timestamps) or refused (intervals, times of day, bits, unions).
"""

# ruff: noqa: S608 - building statements out of expressions is the purpose; `bind` has parsed each of them alone

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal, Protocol

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core import purity
from hayase.core.comparisons import Kind, comparisons, differ, equalities_as_less_than, kind_of, kind_text
from hayase.core.data_classes import dataclass
from hayase.core.duckdb_errors import hint_of, is_mixed_comparison, message_of, unexpected_word
from hayase.core.errors import DeclarationError, HayaseError, Mistake, by_place, suggestion
from hayase.core.expression_limits import LARGEST, MACROS, MEMORY, TOO_LARGE
from hayase.core.function_catalogue import LISTED, Catalogue, catalogue
from hayase.core.reasons import Reason, ReasonKind
from hayase.core.scalar_functions import FUNCTIONS, Failures, attach, keys_in, shown, with_rows
from hayase.core.stages import Mapped, Refusals

__all__ = [
    "EXPLAINED",
    "Bound",
    "ParsedExpression",
    "Projection",
    "aggregate_type",
    "bind",
    "cast",
    "check",
    "check_function_name",
    "check_syntax",
    "common_type",
    "condition",
    "listed_functions",
    "parse_body",
    "parse_expression",
    "window_type",
    "window_values",
]  # fmt: skip

EXPLAINED = 100
"""How many refused rows of a batch have DuckDB's message in their reason; the others have only the expression."""

_ROW, _KEEP, _VIEW = "__row", "__keep", "__batch"

# ---------------------------------------------------------------------------------------------------- connections

_SETTINGS = {
    "threads": "1",  # the engine runs one task per core; it also keeps rows in order
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": MEMORY,
}
# Optimizers that do not change expressions. With the others, whether a row raises depends on the statement: a filter
# split at its ANDs raises on other rows than TRY flags; a common subexpression is computed once, outside of TRY; a
# selected expression may move below the filter; and `x + 1 > 0` is rewritten to `x > -1`, which does not overflow.
_OPTIMIZERS = {"unused_columns", "column_lifetime"}
_thread = threading.local()


def thread_connection(sql: str = "") -> duckdb.DuckDBPyConnection:
    """Return the connection of this thread, with the functions that expressions in `sql` call.

    A connection from before a fork is not used: its threads and locks belong to the parent.
    """
    connections: dict[int, duckdb.DuckDBPyConnection] = _thread.__dict__.setdefault("connections", {})
    connection = connections.get(os.getpid())
    if connection is None:
        connection = duckdb.connect(":memory:", config=_SETTINGS)
        optimizers = {str(name) for (name,) in connection.execute("FROM duckdb_optimizers()").fetchall()}
        connection.execute(f"SET disabled_optimizers = '{','.join(sorted(optimizers - _OPTIMIZERS))}'").fetchall()
        connection.execute("SET TimeZone = 'UTC'").fetchall()
        connection.execute(
            "SET enable_progress_bar = false"
        ).fetchall()  # which an interactive Python, or -c, would print
        connection.execute("SET lock_configuration = true").fetchall()
        connections[os.getpid()] = connection
        _thread.attached, _thread.limited = set(), set()
    text = sql.lower()
    for name in MACROS.keys() - _thread.limited:
        if name in text:  # also within a longer word: to create one takes 1 ms, all of them a tenth of a small query
            connection.execute(f"CREATE TEMP MACRO {MACROS[name]}").fetchall()
            _thread.limited.add(name)
    if len(_thread.attached) < len(FUNCTIONS):
        missing = [function for key, function in list(FUNCTIONS.items()) if key not in _thread.attached]
        attach(connection, missing, _failures(), _sql_type)
        _thread.attached |= {function.key for function in missing}
    return connection


def _failures() -> Failures:
    """Return the failures of functions in the statements of this thread."""
    failures: Failures = _thread.__dict__.setdefault("failures", Failures())
    return failures


def run_statement(sql: str, batch: pa.RecordBatch) -> pa.Table:
    connection = thread_connection(sql)
    connection.register(_VIEW, batch)
    try:
        return connection.sql(sql).to_arrow_table()
    finally:
        connection.unregister(_VIEW)


def error_message(error: Exception) -> str:
    """Return DuckDB's message for the user, without its excerpt of the generated statement; for other errors, their text."""
    if not isinstance(error, duckdb.Error):
        return f"{type(error).__name__}: {error}"
    if isinstance(error, duckdb.OutOfMemoryException):
        return f"it takes more memory than {MEMORY}"
    return shown(message_of(error))


# ---------------------------------------------------------------------------------------------------- types

_ATOMS = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "integer": pa.int32(), "bigint": pa.int64(),
    "utinyint": pa.int16(), "usmallint": pa.int32(), "uinteger": pa.int64(), "ubigint": pa.decimal128(20, 0),
    "hugeint": pa.decimal128(38, 0), "uhugeint": pa.decimal128(38, 0), "float": pa.float32(), "double": pa.float64(),
    "varchar": pa.string(), "enum": pa.string(), "uuid": pa.string(), "blob": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us"), "timestamp_ns": pa.timestamp("us"), "timestamp_ms": pa.timestamp("us"),
    "timestamp_s": pa.timestamp("us"), "timestamp with time zone": pa.timestamp("us", tz="UTC"),
    "time": pa.time64("us"),
}  # fmt: skip
_HINTS = {
    "interval": "keep it as a number: extract(epoch from ...)",
    "time with time zone": "cast it to string, or keep the timestamp",
    "null": "say which type it is: cast(null as string)",
}
_SQL = {
    pa.bool_(): "BOOLEAN", pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER", pa.int64(): "BIGINT",
    pa.float32(): "FLOAT", pa.float64(): "DOUBLE", pa.string(): "VARCHAR", pa.binary(): "BLOB", pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP", pa.timestamp("us", tz="UTC"): "TIMESTAMP WITH TIME ZONE",
    pa.time64("us"): "TIME", pa.uint64(): "UBIGINT",
}  # fmt: skip


def _arrow_type(kind: Any) -> pa.DataType:
    """Return the column type of a stream that holds the values of a DuckDB type."""
    name = str(kind.id)
    if name in _ATOMS:
        return _ATOMS[name]
    if name == "decimal":
        inner = dict(kind.children)
        return pa.decimal128(inner["precision"], inner["scale"])
    if name in ("list", "array"):
        return pa.list_(_arrow_type(kind.children[0][1]))
    if name == "map":
        return pa.map_(*(_arrow_type(part) for _, part in kind.children))
    if name == "struct":
        return pa.struct([pa.field(field, _arrow_type(inner)) for field, inner in kind.children])
    raise DeclarationError(f"a stream cannot hold a value of type {name}", _HINTS.get(name, "cast it to string"))


def _sql_type(kind: pa.DataType) -> str:
    if kind in _SQL:
        return _SQL[kind]
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_list(kind):
        return f"{_sql_type(kind.value_type)}[]"
    if pa.types.is_map(kind):
        return f"MAP({_sql_type(kind.key_type)}, {_sql_type(kind.item_type)})"
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{_quoted(field.name)} {_sql_type(field.type)}' for field in kind)})"
    raise HayaseError(
        f"a projection cannot give the Arrow type {kind}; use a type that `hayase.core.schemas.ddl` knows"
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# ---------------------------------------------------------------------------------------------------- binding


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound expression: its type as a column of a stream, and the input columns it reads."""

    kind: pa.DataType
    columns: frozenset[str]


@lru_cache(maxsize=4096)  # a pipeline is planned again for each declaration that is added, and when it is applied
def bind(sql: str, schema: pa.Schema, relation: str = "input") -> Bound:
    """Bind an expression to rows of `schema`. Raise DeclarationError with all mistakes in it.

    Mistakes have the line and column within `sql`, counted from 1.

    >>> bind("amount * 2", pa.schema({"amount": pa.float64()})).kind
    DataType(double)
    >>> bind("amuont * 2", pa.schema({"amount": pa.float64()}))
    Traceback (most recent call last):
    hayase.core.errors.DeclarationError: 1:1: unknown column "amuont"; did you mean "amount"?
    """
    parsed = parse_expression(sql)
    names = {column.lower(): column for column in schema.names}
    columns, mistakes = set(), list(parsed.mistakes)
    for reference in parsed.columns:
        name, unknown = _resolve_column(reference, names, relation, sql)
        columns.add(name)
        mistakes += [unknown] if unknown else []
    hint = "aggregates are allowed in the select list and in HAVING of a query"
    mistakes += [
        _mistake_at(sql, call.start, f"the aggregate {call.function} is not supported here", hint)
        for call in parsed.calls
    ]
    if mistakes:
        raise DeclarationError(sorted(mistakes, key=by_place))
    connection = thread_connection(sql)
    source = f" FROM {_VIEW} AS {_quoted(relation)}" if len(schema) else ""  # DuckDB has no tables without columns
    if source:
        connection.register(_VIEW, schema.empty_table())
    try:
        mixed = _mixed_comparisons(connection, sql, source)
        if mixed:
            raise DeclarationError(mixed)
        kind = connection.sql(f"SELECT (\n{sql}\n){source}").types[0]
        return Bound(_arrow_type(kind), frozenset(columns))
    except duckdb.Error as error:
        raise DeclarationError([Mistake(error_message(error), hint_of(error), line=1, column=1)]) from error
    except DeclarationError as error:
        raise DeclarationError(
            [replace(mistake, line=mistake.line or 1, column=mistake.column or 1) for mistake in error.mistakes]
        ) from None
    finally:
        if source:
            connection.unregister(_VIEW)


def _mixed_comparisons(connection: duckdb.DuckDBPyConnection, sql: str, source: str) -> list[Mistake]:
    """Return a mistake for every comparison of different kinds of values, such as a number with a text.

    DuckDB itself refuses only some of them.
    """
    tree = _syntax_tree(sql)
    all_comparisons = list(comparisons(tree))
    outside = [comparison for comparison in all_comparisons if not comparison.inside]
    mistakes: list[Mistake] = []
    sides = [_kind(connection, side, source) for comparison in outside for side in (comparison.left, comparison.right)]
    for comparison, left, right in zip(outside, sides[::2], sides[1::2]):
        if comparison.member:
            if not isinstance(left, tuple) or left[0] != "list":  # contains(text, text)
                continue
            left = left[1]
        if differ(left, right):
            line, column = purity.line_and_column(sql, comparison.place - len(_OPENING))
            message = f"a {kind_text(left)} is compared with a {kind_text(right)}"
            mistakes.append(Mistake(message, _conversion_hint(left, right, comparison.right), line=line, column=column))
    if len(outside) < len(all_comparisons) and not mistakes:
        try:
            connection.sql(f"{_select_statement(connection, equalities_as_less_than(tree))}{source}")
        except duckdb.Error as error:
            message = "inside a lambda, values of different kinds are compared"
            if is_mixed_comparison(error):
                mistakes.append(Mistake(message, "write CAST(...) around one side", line=1, column=1))
    return list(dict.fromkeys(mistakes))


def _kind(connection: duckdb.DuckDBPyConnection, side: Any, source: str) -> Kind:
    """Return the kind of a part of an expression; None, which can be compared with any kind, if it has no type of its own."""
    try:
        return kind_of(connection.sql(f"{_select_statement(connection, side)}{source}").types[0])
    except duckdb.Error:
        return None


@lru_cache(maxsize=1)
def _select_one() -> str:
    return str(thread_connection().execute("SELECT json_serialize_sql('SELECT 1')").fetchall()[0][0])


def _select_statement(connection: duckdb.DuckDBPyConnection, node: Any) -> str:
    """Return the statement that selects one node of a syntax tree."""
    statement = json.loads(_select_one())
    statement["statements"][0]["node"]["select_list"] = [node]
    return str(connection.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(statement)]).fetchall()[0][0])


def _conversion_hint(left: Kind, right: Kind, node: Mapping[str, Any]) -> str:
    """Return a hint how to make both sides of a comparison the same kind."""
    literal = node.get("literal") or {}
    if literal.get("kind") == "STRING" and left == "time":
        return f"write TIMESTAMP '{literal['text']}', or CAST(...) around one side"
    if literal.get("kind") == "STRING" and left == "number":
        return "write the number without quotes, or CAST(...) around one side"
    sql_types = {"number": "bigint", "text": "varchar", "time": "timestamp"}
    kinds = sorted(
        sql_types[side] for side in (left, right) if isinstance(side, str) and side in sql_types
    )  # text last
    return f"write CAST(... AS {kinds[0]}) around one side" if kinds else "write CAST(...) around one side"


def _resolve_column(
    reference: purity.Reference, names: Mapping[str, str], relation: str, sql: str
) -> tuple[str, Mistake | None]:
    """Return the column that a reference names, with or without the relation, and a mistake if there is no such column."""
    parts = reference.parts
    own = len(parts) > 1 and parts[0].lower() == relation.lower()
    name = parts[1] if own and parts[1].lower() in names else parts[0]
    if name.lower() in names:
        return names[name.lower()], None
    if name.lower() in purity.CLOCKS:
        return name, _mistake_at(sql, reference.start, f"{name.lower()} is not supported", purity.NOT_REPEATABLE)
    written = parts[1] if own else ".".join(parts)
    hint = suggestion(written, names.values())
    return name, _mistake_at(sql, reference.start, f'unknown column "{written}"', hint)


def _mistake_at(sql: str, start: int, message: str, hint: str | None = None) -> Mistake:
    return Mistake(message, hint, None, sql.count("\n", 0, start) + 1, start - sql.rfind("\n", 0, start))


@dataclass(frozen=True, slots=True)
class ParsedExpression:
    """A parsed expression before names are resolved; `equality` says whether it is `one = another`.

    `functions` are the names of the functions that it calls, `lambdas` the parameters of its lambdas, in lower case.
    """

    columns: tuple[purity.Reference, ...]
    calls: tuple[purity.Call, ...]
    mistakes: tuple[Mistake, ...]
    equality: bool
    functions: frozenset[str] = frozenset()
    lambdas: frozenset[str] = frozenset()


@lru_cache(maxsize=1024)
def parse_expression(sql: str, aggregates: frozenset[str] = frozenset()) -> ParsedExpression:
    """Return the columns and aggregate calls of an expression, and the mistakes that do not depend on what names refer to.

    `aggregates` are names of aggregates in addition to DuckDB's.

    >>> parsed = parse_expression("lower(e.name) || sum(n)")
    >>> parsed.columns[0].parts, parsed.calls[0].function
    (('e', 'name'), 'sum')
    """
    return _surveyed(sql, _catalogue().aggregates | aggregates)


@lru_cache(maxsize=1024)
def parse_body(sql: str) -> ParsedExpression:
    """Return the same of an expression that is the body of a function; the columns are also those inside of aggregates."""
    return _surveyed(sql, frozenset())


def _surveyed(sql: str, aggregates: frozenset[str]) -> ParsedExpression:
    tree = _syntax_tree(sql)
    scope = purity.Scope(sql, len(_OPENING), _catalogue().volatile, aggregates)
    purity.survey(tree, scope)
    equality = tree.get("type") == "COMPARE_EQUAL"
    # `CASE x WHEN 1 ... WHEN 2 ...` has x in the tree once for each WHEN
    columns, calls = tuple(dict.fromkeys(scope.columns)), tuple(dict.fromkeys(scope.calls))
    names = frozenset(scope.functions), frozenset(scope.lambdas)
    return ParsedExpression(columns, calls, tuple(dict.fromkeys(scope.mistakes)), equality, *names)


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return DuckDB's common type of two types, as in a UNION or a comparison.

    Types of different kinds, such as a number and a text, have none: DeclarationError.

    >>> common_type(pa.int32(), pa.float64())
    DataType(double)
    """
    if one == other:
        return one
    kinds = thread_connection().sql(f"SELECT NULL::{_sql_type(one)}, NULL::{_sql_type(other)}").types
    first, second = (kind_of(sql_type) for sql_type in kinds)
    if differ(first, second):
        message = f"a {kind_text(first)} and a {kind_text(second)} are different kinds of values"
        raise DeclarationError(message, _conversion_hint(first, second, {}))
    try:
        kind = thread_connection().sql(f"SELECT [NULL::{_sql_type(one)}, NULL::{_sql_type(other)}]").types[0]
    except duckdb.Error as error:
        raise DeclarationError(f"there is no common type of {one} and {other}", "cast one of them") from error
    return _arrow_type(kind.children[0][1])


@lru_cache(maxsize=1024)
def aggregate_type(sql: str, schema: pa.Schema) -> pa.DataType:
    """Return the type of an aggregate over rows of `schema`, as a column of a stream; raise DeclarationError if there is none.

    >>> aggregate_type('median("x")', pa.schema({"x": pa.int32()}))
    DataType(double)
    """
    connection = thread_connection(sql)
    connection.register(_VIEW, schema.empty_table())
    try:
        return _arrow_type(connection.sql(f"SELECT (\n{sql}\n) FROM {_VIEW}").types[0])
    except duckdb.Error as error:
        raise DeclarationError(error_message(error)) from error
    finally:
        connection.unregister(_VIEW)


def cast(sql: str, kind: pa.DataType) -> str:
    """Return the expression cast to a type."""
    return f"CAST((\n{sql}\n) AS {_sql_type(kind)})"


def check(
    columns: Sequence[tuple[str, str]], where: str | None, schema: pa.Schema, relation: str = "input"
) -> pa.Schema:
    """Return the schema of a projection, with all columns nullable. Raise DeclarationError with all its mistakes."""
    fields: list[pa.Field] = []
    mistakes: list[Mistake] = []
    for name, sql in columns:
        try:
            fields.append(pa.field(name, bind(sql, schema, relation).kind))
        except DeclarationError as error:
            mistakes += error.mistakes
    try:
        if where is not None:
            condition(where, schema, relation)
    except DeclarationError as error:
        mistakes += error.mistakes
    if mistakes:
        raise DeclarationError(mistakes)
    return pa.schema(fields)


def condition(sql: str, schema: pa.Schema, relation: str = "input") -> Bound:
    """Bind an expression that must be a boolean."""
    bound = bind(sql, schema, relation)
    if bound.kind != pa.bool_():
        hint = "compare it with something"
        raise DeclarationError([Mistake(f"a condition must be a boolean and this is a {bound.kind}", hint, None, 1, 1)])
    return bound


_OPENING = "SELECT (\n"
_NEVER_LAST = {
    "and", "as", "between", "by", "from", "having", "in", "is", "join", "like", "not", "on", "or", "select", "using",
    "where",
}  # fmt: skip
"""Words that cannot end an expression or a statement."""


def _syntax_tree(sql: str) -> Mapping[str, Any]:
    """Return DuckDB's syntax tree of one expression."""
    nodes = _parse(f"{_OPENING}{sql}\n)", sql)
    if len(nodes) != 1 or len(nodes[0]["select_list"]) != 1 or nodes[0]["from_table"]["type"] != "EMPTY":
        raise DeclarationError([Mistake(f'"{sql}" is not one expression', None, line=1, column=1)])
    expression: Mapping[str, Any] = nodes[0]["select_list"][0]
    return expression


def check_syntax(statement: str) -> None:
    """Raise DeclarationError if DuckDB's parser cannot read a statement, with the place of the unexpected word.

    >>> check_syntax("select sum(, 1) from events")
    Traceback (most recent call last):
    hayase.core.errors.DeclarationError: 1:12: syntax error at or near ","; check what comes right before it: ...
    """
    _parse(statement, statement)


def _parse(statement: str, sql: str) -> Sequence[Mapping[str, Any]]:
    """Return the statements of a text. Places of mistakes count within `sql`: the text, or the part of it after `_OPENING`."""
    answer = json.loads(thread_connection().execute("SELECT json_serialize_sql(?)", [statement]).fetchall()[0][0])
    if not answer["error"]:
        return [statement["node"] for statement in answer["statements"]]
    message = str(answer["error_message"])
    inside = int(answer.get("position") or 0) - (0 if statement is sql else len(_OPENING))
    line, column = purity.line_and_column(
        sql, min(inside, len(sql.encode()))
    )  # a text that ends too early fails at what follows it
    before = sql.encode()[: max(inside, 0)].decode(errors="ignore")
    word = unexpected_word(message)
    hint = None if word is None else _syntax_hint(word, sql, before)
    raise DeclarationError([Mistake(message.rstrip("."), hint, line=line, column=column)])


_NOT_ALONE = re.compile(
    r"(?<![\w\".])(at|authorization|binary|collation|concurrently|freeze|generated|glob|map|overlaps|positional|struct|unpack"
    r"|verbose)\s*",
    re.IGNORECASE,
)
"""Matches words that DuckDB's parser takes for the beginning of something else if they are the name of a column."""


def _syntax_hint(word: str, sql: str, before: str) -> str:
    """Return a hint for an unexpected word or sign, and the text before it."""
    last = re.search(r"\S+\s*$", before)
    if last and (name := _NOT_ALONE.search(last[0])) and name.end() == len(last[0]):
        return f'"{name[1]}" is a word of SQL; a column of that name is written in double quotes: "{name[1]}"'
    if not word or (word.lower() in _NEVER_LAST and sql.rstrip().lower().endswith(word.lower())):
        return "it ends too early: something must follow"
    if word.isidentifier() and f"{before}{word}".strip() == sql.strip():
        return f'it ends too early, as a JOIN without ON; or put "{word}" in double quotes, if it is a name'
    if word.isidentifier():
        return f'a column or stream of that name is written in double quotes: "{word}"'
    return "check what comes right before it: something is missing there, or too much"


def check_function_name(name: str) -> None:
    """Raise DeclarationError if a function of the user cannot have that name: it is one of DuckDB's, or a word of SQL.

    >>> check_function_name("Lower")
    Traceback (most recent call last):
    hayase.core.errors.DeclarationError: there is a function Lower already; choose another name
    """
    found = thread_connection().execute(
        "SELECT count(*) FROM duckdb_functions() WHERE lower(function_name) = ?", [name.lower()]
    )
    taken = bool(found.fetchall()[0][0])
    try:
        tree = _syntax_tree(f"{name}(1)")
        is_call = tree["class"] == "FUNCTION" and str(tree["function_name"]).lower() == name.lower()
    except DeclarationError:
        is_call = False
    if taken:
        raise DeclarationError(f"there is a function {name} already", "choose another name")
    if not is_call or name.lower() in _CQL_WORDS:
        raise DeclarationError(f"{name} is a word of the query language", "choose another name")


def listed_functions(kind: Literal["scalar", "aggregate"]) -> list[tuple[str, str]]:
    """Return the names of DuckDB's functions of a kind that queries may call, with the arguments of their shortest form.

    >>> [("lower", "string")] == [found for found in listed_functions("scalar") if found[0] == "lower"]
    True
    """
    kinds = ("scalar", "macro") if kind == "scalar" else (kind,)
    listed = """SELECT function_name, arg_min(parameters, len(parameters)) FROM duckdb_functions()
        WHERE internal AND list_contains(?, function_type) GROUP BY ALL ORDER BY ALL"""
    rows = thread_connection().execute(listed, [list(kinds)]).fetchall()
    volatile, aggregates = _catalogue()
    hidden = volatile if kind == "scalar" else frozenset[str]()
    others = aggregates if kind == "scalar" else frozenset[str]()
    return [
        (name, ", ".join(filter(None, arguments or ())))
        for name, arguments in rows
        if re.fullmatch("(?!(icu_)?collate_)[a-z][a-z0-9_]*", name) and name not in hidden and name not in others
    ]


_CQL_WORDS = frozenset({"istream", "dstream", "rstream", "tumble", "hop", "cumulate", "session", "descriptor"})


@lru_cache(maxsize=1)
def _catalogue() -> Catalogue:
    version = f"{duckdb.__version__}-{duckdb.__git_revision__}"
    return catalogue(version, lambda: thread_connection().execute(LISTED).fetchall())


# ---------------------------------------------------------------------------------------------------- evaluation


@dataclass(frozen=True, slots=True)
class Projection:
    """A map side: the named expressions for the rows that satisfy `where`, with the types of `schema` (see `check`).

    >>> schema = pa.schema({"price": pa.string()})
    >>> rows = pa.record_batch({"price": ["1", "two", "3"]}, schema=schema)
    >>> cents = (("cents", "price::int * 100"),)
    >>> mapped = Projection(cents, None, check(cents, None, schema))(rows)
    >>> mapped.rows.to_pylist(), mapped.input_rows.tolist(), mapped.refused.rows.tolist()
    ([{'cents': 100}, {'cents': 300}], [0, 2], [1])
    """

    columns: tuple[tuple[str, str], ...]
    where: str | None
    schema: pa.Schema
    relation: str = "input"

    def __call__(self, batch: pa.RecordBatch, texts: Sequence[str | None] = ()) -> Mapped:
        """Evaluate over a batch. `texts` are shown in the reasons of refused rows instead of the SQL: `where`, then the columns."""
        if not batch.num_rows:
            return Mapped(pa.RecordBatch.from_pylist([], schema=self.schema), np.empty(0, np.int64))
        numbered = batch.append_column(_ROW, pa.array(np.arange(batch.num_rows)))
        plain, _ = _statements(self)
        try:
            rows = run_statement(plain, numbered)
        except duckdb.Error:
            _failures().take()
            return self.row_by_row(batch, texts)
        failed = _failures().take()
        mapped = Mapped(self._typed(rows.columns[1:]), _input_rows(rows))
        return self._bounded(self._without_failed(mapped, failed, batch, texts) if failed else mapped)

    def _without_failed(
        self, mapped: Mapped, failed: Mapping[int, tuple[str, str]], batch: pa.RecordBatch, texts: Sequence[str | None]
    ) -> Mapped:
        """Refuse the rows for which a function failed, by the number of the row; `failed` has the function and the message."""
        kept = ~np.isin(mapped.input_rows, list(failed))
        others = ~np.isin(mapped.refused.rows, list(failed))
        reasons = {row: self._function_reason(batch, row, *failed[row], texts) for row in failed}
        reasons |= {
            row: mapped.refused.reasons[at] for at, row in enumerate(mapped.refused.rows.tolist()) if others[at]
        }
        rows = sorted(reasons)
        refused = Refusals(np.array(rows, np.int64), [reasons[row] for row in rows])
        return Mapped(mapped.rows.filter(pa.array(kept)), mapped.input_rows[kept], refused)

    def _function_reason(
        self, batch: pa.RecordBatch, row: int, key: str, message: str, texts: Sequence[str | None]
    ) -> Reason:
        """Return the reason for a failed function: the expression that called it, and the message."""
        candidates = [at for at, sql in enumerate(self._texts) if sql is not None and key in keys_in(sql)]
        at = candidates[0]
        for candidate in candidates[:-1]:  # more than one expression calls it: find the one that failed
            at = candidate
            sql = self.where if candidate == 0 else self.columns[candidate - 1][1]
            self._explained(batch, row, with_rows(f"(\n{sql}\n)", "0"))
            if _failures().take():
                break
            at = candidates[-1]
        text = (texts or self._texts)[at] or ""
        return Reason(ReasonKind.EXPRESSION, f'cannot compute "{"where " if at == 0 else ""}{shown(text)}": {message}')

    def _bounded(self, mapped: Mapped) -> Mapped:
        """Refuse the rows that have a value larger than `LARGEST`."""
        if mapped.rows.nbytes <= LARGEST:
            return mapped
        too_large = np.zeros(mapped.rows.num_rows, bool)
        for column in mapped.rows.columns:
            too_large |= value_sizes(column) > LARGEST
        if not too_large.any():
            return mapped
        rows = np.concatenate([mapped.refused.rows, mapped.input_rows[too_large]])
        reasons = [*mapped.refused.reasons, *[Reason(ReasonKind.EXPRESSION, TOO_LARGE)] * int(too_large.sum())]
        order = np.argsort(rows, kind="stable")
        refused = Refusals(rows[order], [reasons[index] for index in order])
        return Mapped(mapped.rows.filter(pa.array(~too_large)), mapped.input_rows[~too_large], refused)

    def _halves(self, batch: pa.RecordBatch, error: duckdb.Error, texts: Sequence[str | None]) -> Mapped:
        """Evaluate each half of a batch that takes too much memory. A single row that does is refused."""
        if batch.num_rows == 1:
            rows = pa.RecordBatch.from_pylist([], schema=self.schema)
            where, *columns = texts or self._texts
            listed = shown(", ".join(text for text in (*columns, where) if text))
            reason = Reason(ReasonKind.EXPRESSION, f'cannot compute "{listed}": {error_message(error)}')
            refused = Refusals(np.zeros(1, np.int64), [reason])
            return Mapped(rows, np.empty(0, np.int64), refused)
        middle = batch.num_rows // 2
        first, second = self(batch.slice(0, middle), texts), self(batch.slice(middle), texts)
        refused = Refusals(
            np.concatenate([first.refused.rows, second.refused.rows + middle]),
            [*first.refused.reasons, *second.refused.reasons],
        )
        rows = pa.Table.from_batches([first.rows, second.rows]).combine_chunks().to_batches()
        whole = rows[0] if rows else first.rows
        return Mapped(whole, np.concatenate([first.input_rows, second.input_rows + middle]), refused)

    def row_by_row(self, batch: pa.RecordBatch, texts: Sequence[str | None] = ()) -> Mapped:
        """Evaluate row by row, and refuse the rows that raise. This is slower, so `__call__` first tries without."""
        numbered = batch.append_column(_ROW, pa.array(np.arange(batch.num_rows)))
        _, guarded = _statements(self)
        try:
            rows = run_statement(guarded, numbered)
        except duckdb.OutOfMemoryException as error:
            _failures().take()
            return self._halves(batch, error, texts)
        except duckdb.Error as error:
            raise HayaseError(f"DuckDB could not run {guarded!r}: {error_message(error)}") from error
        input_rows, by_functions = _input_rows(rows), _failures().take()
        # The first expression that failed: -1 none, 0 `where`, 1.. the selected ones.
        blame = np.where(rows[_KEEP].to_numpy() > 1, 0, -1)
        for number in range(len(self.columns), 0, -1):
            failed = rows.column(number + 1).is_null().to_numpy()
            blame = np.where(failed & (blame != 0), number, blame)
        good = blame < 0
        kept = rows.filter(pa.array(good))
        values = [pc.struct_field(column, [0]) for column in kept.columns[2:]]
        refused = self._refusals(batch, input_rows[~good], blame[~good], texts or self._texts)
        mapped = Mapped(self._typed(values), input_rows[good], refused)
        return self._bounded(self._without_failed(mapped, by_functions, batch, texts) if by_functions else mapped)

    def _typed(self, columns: Sequence[pa.ChunkedArray]) -> pa.RecordBatch:
        arrays = [_as_type(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    @property
    def _texts(self) -> tuple[str | None, ...]:
        return self.where, *(sql for _, sql in self.columns)

    def _refusals(
        self, batch: pa.RecordBatch, rows: np.ndarray, blame: np.ndarray, texts: Sequence[str | None]
    ) -> Refusals:
        texts = [f"where {texts[0]}", *texts[1:]]
        statements = [f"(\n{self.where}\n)", *(_cast(self, number) for number in range(len(self.columns)))]
        reasons = []
        for count, (row, number) in enumerate(zip(rows.tolist(), blame.tolist())):
            message = ": " + self._explained(batch, row, statements[number]) if count < EXPLAINED else ""
            reasons.append(Reason(ReasonKind.EXPRESSION, f'cannot compute "{shown(texts[number] or "")}"{message}'))
        return Refusals(rows, reasons)

    def _explained(self, batch: pa.RecordBatch, row: int, sql: str) -> str:
        try:
            run_statement(f"SELECT {sql} AS v FROM {_VIEW} AS {_quoted(self.relation)}", batch.slice(row, 1))
        except duckdb.Error as error:
            return error_message(error)
        return "DuckDB raised an error"


# ---------------------------------------------------------------------------------------------------- window functions

_SNAPSHOT = "__snapshot"


class WindowCall(Protocol):
    """A call of a window function, and the order and frame of its window, in SQL over the columns of a batch."""

    @property
    def sql(self) -> str: ...

    @property
    def over(self) -> str: ...


def window_type(sql: str, over: str, schema: pa.Schema) -> pa.DataType:
    """Return the type of a window function over rows of `schema`. Raise DeclarationError if DuckDB cannot compute it."""
    connection = thread_connection(f"{sql} {over}")
    connection.register(_VIEW, schema.empty_table())
    try:
        return _arrow_type(connection.sql(f"SELECT {sql} OVER ({over}) FROM {_VIEW}").types[0])
    except duckdb.Error as error:
        raise DeclarationError([Mistake(error_message(error), None, line=1, column=1)]) from error
    finally:
        connection.unregister(_VIEW)


def window_values(
    batch: pa.RecordBatch, snapshots: np.ndarray, calls: Sequence[WindowCall], schema: pa.Schema
) -> pa.RecordBatch:
    """Return the values of window functions, for every row of a batch. Each number in `snapshots` is a partition.

    The last column of the result, a boolean, is true for rows of which a value does not fit its type; their values are NULL.
    """
    if not batch.num_rows:
        return pa.RecordBatch.from_pylist([], schema=schema)
    texts = [_window_sql(call, call.sql) for call in calls]
    plain = [cast(text, field.type) for text, field in zip(texts, schema)]
    try:
        return _window_rows(batch, snapshots, plain, "false", schema)
    except duckdb.ConversionException:
        guarded = [f"TRY_CAST({text} AS {_sql_type(field.type)})" for text, field in zip(texts, schema)]
        lost = " OR ".join(f"({text} IS NOT NULL AND {value} IS NULL)" for text, value in zip(texts, guarded))
        return _window_rows(batch, snapshots, guarded, lost, schema)
    except duckdb.OutOfRangeException:  # a sum of decimals leaves 128 bits: DuckDB raises for all rows
        return _window_values_by_snapshot(batch, snapshots, calls, schema)


def _window_sql(call: WindowCall, sql: str) -> str:
    return f"{sql} OVER (PARTITION BY {_SNAPSHOT} {call.over})"


def _window_rows(
    batch: pa.RecordBatch,
    snapshots: np.ndarray,
    values: Sequence[str],
    lost: str,
    schema: pa.Schema,
    source: str = _VIEW,
) -> pa.RecordBatch:
    """Return the values, in SQL over `source`, of all rows. They are NULL in rows for which `lost` holds, also in SQL, or of
    which a value is a decimal with too many digits."""
    numbered = batch.append_column(_ROW, pa.array(np.arange(batch.num_rows))).append_column(
        _SNAPSHOT, pa.array(snapshots)
    )
    rows = run_statement(f"SELECT {_ROW}, {', '.join(values)}, {lost} FROM {source}", numbered)
    order = pa.array(np.argsort(rows[_ROW].to_numpy()))
    arrays = [_as_type(column.take(order), field.type) for column, field in zip(rows.columns[1:], schema)]
    failed = arrays[-1]
    for array in arrays[:-1]:
        if pa.types.is_decimal(array.type):  # DuckDB sums in 128 bits, which hold some numbers of 39 digits
            largest = pa.scalar(Decimal((0, (9,) * array.type.precision, -array.type.scale)), array.type)
            failed = pc.or_(failed, pc.fill_null(pc.greater(pc.abs(array), largest), False))
    if pc.any(failed).as_py():
        arrays = [pc.if_else(failed, pa.scalar(None, array.type), array) for array in arrays[:-1]]
        arrays.append(failed)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _window_values_by_snapshot(
    batch: pa.RecordBatch, snapshots: np.ndarray, calls: Sequence[WindowCall], schema: pa.Schema
) -> pa.RecordBatch:
    """Return `window_values` of a batch that DuckDB refuses as a whole: halves of its snapshots, down to those that it refuses.

    In these, sums are computed from the list of values in each row's frame, where TRY catches the error of that row alone.
    """
    numbers = np.unique(snapshots)
    if len(numbers) > 1:
        halves = [snapshots < numbers[len(numbers) // 2], snapshots >= numbers[len(numbers) // 2]]
        parts = [window_values(batch.filter(pa.array(half)), snapshots[half], calls, schema) for half in halves]
        places = np.argsort(np.concatenate([np.flatnonzero(half) for half in halves]))
        return pa.concat_batches(parts).take(pa.array(places))
    columns, values, lost = [], [], ["false"]
    for number, (call, field) in enumerate(zip(calls, schema)):
        name, _, rest = call.sql.partition("(")
        if name.lower() in ("sum", "avg"):
            columns.append(f'{_window_sql(call, f"list({rest}")} AS "__{number}"')
            value = cast(f"list_aggregate(\"__{number}\", '{name}')", field.type)
            values.append(f"TRY({value})")
            lost.append(f"({values[-1]} IS NULL AND coalesce(list_aggregate(\"__{number}\", 'count'), 0) > 0)")
        else:
            columns.append(f'{_window_sql(call, call.sql)} AS "__{number}"')
            values.append(cast(f'"__{number}"', field.type))
    source = f"(SELECT *, {', '.join(columns)} FROM {_VIEW})"
    return _window_rows(batch, snapshots, values, " OR ".join(lost), schema, source)


def value_sizes(column: pa.Array) -> np.ndarray:
    """Return the approximate size in bytes of every value of a column; elements of lists count 8 bytes, or their length as text."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return np.asarray(pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False), np.int64)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        offsets = np.asarray(column.offsets.to_numpy(), np.int64)
        values = [column.keys, column.items] if pa.types.is_map(kind) else [column.values]
        sums = [np.concatenate([[0], np.cumsum(value_sizes(child))]) for child in values]
        return sum((total[offsets[1:]] - total[offsets[:-1]] for total in sums), np.zeros(len(column), np.int64))
    if pa.types.is_struct(kind):
        return sum((value_sizes(child) for child in column.flatten()), np.zeros(len(column), np.int64))
    return np.full(len(column), 8, np.int64)


def _cast(projection: Projection, number: int, row: str | None = None) -> str:
    """Return the SQL of a column; with the column `row`, failures of functions in it are noted."""
    sql = cast(projection.columns[number][1], projection.schema.field(number).type)
    return sql if row is None else with_rows(sql, row)


@lru_cache(maxsize=512)
def _statements(projection: Projection) -> tuple[str, str]:
    """Return the plain statement, which raises if any row does, and the guarded one, which flags such rows.

    Both evaluate `where` as a value in a projection of its own, not as a filter, because AND and OR of a filter may skip a
    part that the other statement evaluates. TRY gives NULL for a row that raises; a struct tells a genuine NULL from that.
    """
    casts = [_cast(projection, number, _ROW) for number in range(len(projection.columns))]
    values = "".join(f', {sql} AS "__{number}"' for number, sql in enumerate(casts))
    guarded = "".join(f', TRY(struct_pack(v := {sql})) AS "__{number}"' for number, sql in enumerate(casts))
    relation = _quoted(projection.relation)
    if projection.where is None:
        source = f"{_VIEW} AS {relation}"
        return f"SELECT {_ROW}{values} FROM {source}", f"SELECT {_ROW}, 1 AS {_KEEP}{guarded} FROM {source}"
    keep = f"coalesce((\n{with_rows(projection.where, _ROW)}\n), false)"
    kept = f"(SELECT *, {keep} AS {_KEEP} FROM {_VIEW} AS {relation}) AS {relation} WHERE {_KEEP}"
    flag = f"coalesce(TRY(CAST({keep} AS TINYINT)), 2)"
    flagged = f"(SELECT *, {flag} AS {_KEEP} FROM {_VIEW} AS {relation}) AS {relation} WHERE {_KEEP} > 0"
    return f"SELECT {_ROW}{values} FROM {kept}", f"SELECT {_ROW}, {_KEEP}{guarded} FROM {flagged}"


def _input_rows(rows: pa.Table) -> np.ndarray:
    input_rows: np.ndarray = rows[_ROW].to_numpy()
    assert np.all(input_rows[1:] > input_rows[:-1]), "DuckDB changed the order of rows"
    return input_rows


def _as_type(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.Array:
    """Return one array of exactly that type: DuckDB names the inner fields of lists and maps differently."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(whole, pa.ChunkedArray):
        raise HayaseError(
            f"a batch gives more than 2 GB in one column of type {kind}; read the stream in smaller batches"
        )
    return whole if whole.type.equals(kind, check_metadata=True) else whole.cast(kind)
