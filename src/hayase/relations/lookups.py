"""Lookups: a SELECT of columns of one relation in which columns equal constants, and nothing else.

A lookup of a row of a table by its whole key, or among the present rows of a query, is answered without DuckDB, which would take
longer to plan it than to run it. The answer is the one that DuckDB gives; for a column whose type it would change, and for a
comparison of different types, it is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from sqlglot import exp

from hayase.core.data_classes import dataclass
from hayase.relations.bounds import Bounds
from hayase.relations.conditions import parts_of
from hayase.relations.relation import PresentRows, Relation, among, is_compared
from hayase.relations.table_rows import TableRows

__all__ = ["Lookup", "answer_rows", "looked_up", "lookup_of", "lookup_schema"]

_TYPES = (pa.string(), pa.int64(), pa.int32(), pa.bool_(), pa.float64(), pa.date32(), pa.timestamp("us", "UTC"))
"""Types that DuckDB gives back as it gets them."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """The columns of the answer as they are written, None for all, and those that are compared, in lower case."""

    columns: tuple[str, ...] | None
    compared: tuple[str, ...]


def lookup_of(tree: exp.Query) -> Lookup | None:
    """Return a statement as a lookup; None if it is more than that."""
    if not isinstance(tree, exp.Select) or {name for name, value in tree.args.items() if value} != _CLAUSES:
        return None
    table = tree.args[_FROM].this
    if not isinstance(table, exp.Table) or {name for name, value in table.args.items() if value} - _TABLE:
        return None
    alias = table.args.get("alias")
    if alias is not None and alias.columns:
        return None
    columns = _selected(tree.expressions, table.alias_or_name)
    compared = [_compared(part, table.alias_or_name) for part in parts_of(tree.args["where"].this)]
    names = tuple(name.lower() for name in compared if name is not None)
    if columns is None or len(names) < len(compared) or len(set(names)) < len(names):
        return None
    return Lookup(columns or None, names)


_FROM = "from_" if "from_" in exp.Select.arg_types else "from"
_CLAUSES = {"expressions", _FROM, "where"}
_TABLE = {"this", "db", "alias", "version"}


def _selected(expressions: Sequence[exp.Expr], name: str) -> tuple[str, ...] | None:
    """Return the columns of a SELECT, none for a star; None if there is something else among them."""
    if len(expressions) == 1 and isinstance(expressions[0], exp.Star):
        return () if not any(expressions[0].args.values()) else None
    columns = [_column(each, name) for each in expressions]
    names = tuple(each for each in columns if each is not None)
    return names if len(names) == len(columns) and len({each.lower() for each in names}) == len(names) else None


def _column(node: exp.Expr, name: str) -> str | None:
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star) or node.args.get("db"):
        return None
    return node.name if not node.table or node.table.lower() == name.lower() else None


def _compared(part: exp.Expr, name: str) -> str | None:
    """Return the column that a condition says to be equal to a constant or a parameter."""
    if not isinstance(part, exp.EQ):
        return None
    column = _column(part.left, name)
    is_plain = isinstance(part.right, exp.Literal) or (
        isinstance(part.right, exp.Parameter | exp.Placeholder) and str(part.right.name).isdigit()
    )
    return column if is_plain else None


def lookup_schema(lookup: Lookup, relation: Relation) -> pa.Schema | None:
    """Return the columns of the answer; None if DuckDB should say which."""
    schema = relation.schema
    names = schema.names if lookup.columns is None else lookup.columns
    if any(name not in schema.names or schema.field(name).type not in _TYPES for name in names):
        return None
    return pa.schema([pa.field(name, schema.field(name).type) for name in names])


def looked_up(lookup: Lookup, relation: Relation, bounds: Bounds) -> pa.Schema | None:
    """Return the columns of the answer if the lookup can be done here with these values, else None."""
    if isinstance(relation, TableRows):
        if not set(relation.key) <= set(lookup.compared):
            return None
    elif not isinstance(relation, PresentRows):
        return None
    fields = {field.name.lower(): field for field in relation.schema}
    if len(fields) < len(relation.schema) or any(
        name not in fields or not is_compared(fields[name].type, bounds.among.get(name, ())) for name in lookup.compared
    ):
        return None
    return lookup_schema(lookup, relation)


def answer_rows(batches: Iterable[pa.RecordBatch], bounds: Bounds, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the answer among those of the relation."""
    for batch in batches:
        rows = among(batch, bounds)
        if rows.num_rows:
            yield pa.record_batch([rows.column(name) for name in schema.names], schema=schema)
