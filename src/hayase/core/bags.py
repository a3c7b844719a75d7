"""Aggregates as functions of a bag of rows: which there are, their SQL, and their evaluation over many bags at once.

A bag is what a group contains at an instant. DuckDB evaluates the functions, so they mean what they mean there, but the
order of rows is always stated: `list`, `string_agg`, `first` and the like have one result, and so have sums of floats.
Aggregates that are defined in Python (`hayase.core.algebra`) fold the rows of a bag in that order.

A template is the SQL of a call with `{0}`, `{1}`, ... for its columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.algebra import Aggregate
from hayase.core.data_classes import dataclass
from hayase.core.expression_limits import LARGEST, TOO_LARGE
from hayase.core.expressions import cast, error_message, run_statement, value_sizes
from hayase.core.reasons import Reason, ReasonKind

__all__ = [
    "BAG", "BAG_FUNCTIONS", "BAG_SYNONYMS", "BagCall", "BagFunction", "BagResult", "Evaluation", "call_sql", "differ",
    "evaluate", "fold_sql",
]  # fmt: skip

BAG = "__bag"
"""The column with the number of the bag that a row is in."""


@dataclass(frozen=True, slots=True)
class BagFunction:
    """A function of a bag: the number of its columns, and how many constants may follow them.

    `ordered`: its result depends on the order of the rows. `rounded`: it depends on the order of equal or rounded values, so
    that its own columns order the rows. `distinct`: it takes DISTINCT. `within`: its column may stand in WITHIN GROUP (ORDER BY
    ...). `name` is DuckDB's.
    """

    name: str
    columns: int = 1
    constants: tuple[int, int] = (0, 0)
    ordered: bool = False
    rounded: bool = False
    distinct: bool = False
    within: bool = False


def _functions() -> dict[str, BagFunction]:
    pairs = ("corr", "covar_pop", "covar_samp", "regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2")
    moments = ("skewness", "kurtosis", "kurtosis_pop", "product", "sem", "sum", "avg", "var_samp", "var_pop")
    functions = [
        *(BagFunction(name, 2, rounded=True) for name in (*pairs, "regr_slope", "regr_sxx", "regr_sxy", "regr_syy")),
        *(BagFunction(name, rounded=True, distinct=True) for name in (*moments, "stddev_samp", "stddev_pop")),
        *(BagFunction(name, distinct=True) for name in ("median", "mad", "bit_and", "bit_or", "bit_xor")),
        *(BagFunction(name, constants=(1, 1)) for name in ("min", "max")),
        *(BagFunction(name, 2, (0, 1), ordered=True) for name in ("arg_min", "arg_max")),
        *(BagFunction(name, ordered=True) for name in ("first", "last", "any_value")),
        *(BagFunction(name, 1, (1, 1), distinct=True, within=True) for name in ("quantile_cont", "quantile_disc")),
        BagFunction("mode", rounded=True, within=True),
        BagFunction("entropy", rounded=True),
        BagFunction("histogram", constants=(0, 1)),
        BagFunction("count_if"),
        BagFunction("list", ordered=True, distinct=True),
        BagFunction("string_agg", constants=(0, 1), ordered=True, distinct=True),
    ]  # fmt: skip
    return {function.name: function for function in functions}


BAG_FUNCTIONS = _functions()
"""The functions of a bag by name."""

BAG_SYNONYMS = {
    "array_agg": "list", "group_concat": "string_agg", "listagg": "string_agg", "quantile": "quantile_disc",
    "percentile_cont": "quantile_cont", "percentile_disc": "quantile_disc", "countif": "count_if",
}  # fmt: skip
"""Synonyms and the functions that they stand for."""

_FLOATS = {"sum": "fsum", "avg": "favg"}
"""The functions that add floats without losing their digits."""


@dataclass(frozen=True, slots=True)
class BagCall:
    """A call as it is written: the types of its columns, its constants, the order of the rows and the FILTER, as SQL.

    `order` is empty if the function does not depend on it; `descending` belongs to WITHIN GROUP.
    """

    kinds: tuple[pa.DataType, ...]
    constants: tuple[str, ...] = ()
    distinct: bool = False
    order: str = ""
    descending: bool = False
    condition: str | None = None

    def filtered(self, *conditions: str) -> str:
        """Return the FILTER of the call with more conditions, or nothing if there are none."""
        stated = [*conditions, *([self.condition] if self.condition else [])]
        return f" FILTER ({' AND '.join(stated)})" if stated else ""


def call_sql(function: BagFunction, call: BagCall) -> str:
    """Return the template of a call.

    >>> call_sql(BAG_FUNCTIONS["list"], BagCall((pa.int64(),), order='"time" NULLS LAST'))
    'list({0} ORDER BY "time" NULLS LAST)'
    """
    name, constants = function.name, call.constants
    if name in ("arg_min", "arg_max"):
        order = ", ".join(filter(None, ["{1}" if name == "arg_min" else "{1} DESC", call.order]))
        chosen = call.filtered("{0} IS NOT NULL", "{1} IS NOT NULL")
        if constants:
            return f"(list({{0}} ORDER BY {order}){chosen})[1:{constants[0]}]"
        return f"first({{0}} ORDER BY {order}){chosen}"
    if call.distinct and name not in ("list", "string_agg"):
        values = f"list(DISTINCT {{0}} ORDER BY {{0}}){call.filtered('{0} IS NOT NULL')}"
        inner = _FLOATS.get(name, name) if pa.types.is_floating(call.kinds[0]) else name
        arguments = ", ".join([values, f"'{inner}'", *constants])
        return f"list_aggregate({arguments})"
    if call.descending and function.constants != (0, 0):
        return f"{name.replace('quantile', 'percentile')}({constants[0]}) WITHIN GROUP (ORDER BY {{0}} DESC){call.filtered()}"
    columns = [f"{{{at}}}" for at in range(function.columns)]
    if name == "string_agg" and not pa.types.is_string(call.kinds[0]):
        columns = ["CAST({0} AS VARCHAR)"]
    order = call.order
    if call.distinct or not function.ordered:
        words = " DESC" if call.descending else ""
        stated = (f"{column}{words} NULLS LAST" for column in columns if function.rounded or call.distinct)
        order = ", ".join(stated)
    arguments = ", ".join([*columns, *constants])
    ordered = f" ORDER BY {order}" if order else ""
    return f"{name}({'DISTINCT ' if call.distinct else ''}{arguments}{ordered}){call.filtered()}"


def fold_sql(call: BagCall) -> str:
    """Return the template of the list of arguments that Python folds."""
    fields = ", ".join(f"'v{at}': {{{at}}}" for at in range(len(call.kinds)))
    order = call.order or ", ".join(f"{{{at}}}" for at in range(len(call.kinds)))
    return f"list({{{{{fields}}}}} ORDER BY {order}){call.filtered()}"


# ---------------------------------------------------------------------------------------------------- evaluation


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A call to be evaluated: its SQL, the type of its result, and what the user wrote.

    If `fold` names an aggregate of `core.algebra`, the SQL gives the list of its arguments, and Python folds them.
    """

    sql: str
    kind: pa.DataType
    text: str = ""
    fold: str | None = None
    constant: float | None = None

    @property
    def value(self) -> str:
        """The SQL whose values `results` takes."""
        return self.sql if self.fold is not None else cast(self.sql, self.kind)

    def results(self, values: pa.Array) -> pa.Array:
        """Return the results for the values of the SQL."""
        if self.fold is None:
            return values if values.type.equals(self.kind, check_metadata=True) else values.cast(self.kind)
        aggregate = Aggregate.from_name(self.fold).at(self.constant)
        nothing: list[tuple[object, ...]] = [()] * aggregate.arity
        bags = ([*zip(*(row.values() for row in rows))] if rows else nothing for rows in values.to_pylist())
        return pa.array([aggregate.of(*columns) for columns in bags], self.kind)


@dataclass(frozen=True, slots=True)
class BagResult:
    """The value of a call for every bag. Bags for which it cannot be computed have NULL, and a reason."""

    values: pa.Array
    failed: dict[int, Reason]


def evaluate(rows: pa.RecordBatch, bags: np.ndarray, calls: Sequence[Evaluation]) -> list[BagResult]:
    """Return the values of calls for each of `bags`, numbers in ascending order; the column `BAG` of `rows` has them.

    >>> rows = pa.record_batch({"x": [3, 1, 2], BAG: [0, 0, 4]})
    >>> sorted_list = Evaluation('list("x" ORDER BY "x")', pa.list_(pa.int64()))
    >>> evaluate(rows, np.array([0, 3, 4]), [sorted_list])[0].values.to_pylist()
    [[1, 3], None, [2]]
    """
    try:
        return [_checked(values, call.text) for values, call in zip(_evaluated(rows, bags, calls), calls)]
    except Exception as error:  # DuckDB's errors, and whatever a user's function raises
        if len(calls) > 1:
            return [result for call in calls for result in evaluate(rows, bags, [call])]
        return [_in_halves(rows, bags, calls[0], error)]


def _in_halves(rows: pa.RecordBatch, bags: np.ndarray, call: Evaluation, error: Exception) -> BagResult:
    """Evaluate each half of the bags among which a call fails. A single bag for which it fails has NULL."""
    if len(bags) > 1:
        middle = len(bags) // 2
        early = rows.column(BAG).to_numpy() < bags[middle]
        first = evaluate(rows.filter(pa.array(early)), bags[:middle], [call])[0]
        second = evaluate(rows.filter(pa.array(~early)), bags[middle:], [call])[0]
        later = {number + middle: reason for number, reason in second.failed.items()}
        return BagResult(pa.concat_arrays([first.values, second.values]), first.failed | later)
    kind = ReasonKind.FUNCTION if call.fold is not None else ReasonKind.EXPRESSION
    reason = Reason(kind, f'cannot compute "{call.text}" of a group; it is NULL meanwhile: {error_message(error)}')
    return BagResult(pa.nulls(1, call.kind), {0: reason})


def _evaluated(rows: pa.RecordBatch, bags: np.ndarray, calls: Sequence[Evaluation]) -> list[pa.Array]:
    values = ", ".join(f"{call.value} AS v{at}" for at, call in enumerate(calls))
    found = run_statement(f"SELECT {BAG}, {values} FROM __batch GROUP BY {BAG} ORDER BY {BAG}", rows)  # noqa: S608
    numbers, columns = found[BAG].to_numpy(), found.columns[1:]
    if len(numbers) < len(bags):  # some are empty
        nothing = run_statement(f"SELECT {values} FROM __batch", rows.slice(0, 0))  # noqa: S608
        places = np.searchsorted(numbers, bags)
        there = np.isin(bags, numbers)
        chosen = pa.array(np.where(there, places, len(numbers)))
        columns = [
            pa.chunked_array([*column.chunks, *none.chunks], column.type).take(chosen)
            for column, none in zip(columns, nothing.columns)
        ]
    return [call.results(_array(column)) for call, column in zip(calls, columns)]


def _array(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)


def _checked(values: pa.Array, text: str) -> BagResult:
    """Refuse values that are larger than `LARGEST`."""
    if values.nbytes <= LARGEST:
        return BagResult(values, {})
    too_large = value_sizes(values) > LARGEST
    reason = Reason(ReasonKind.EXPRESSION, f'"{text}" of a group is NULL meanwhile: {TOO_LARGE}')
    kept = pc.if_else(pa.array(too_large), pa.scalar(None, values.type), values) if too_large.any() else values
    return BagResult(kept, dict.fromkeys(np.flatnonzero(too_large).tolist(), reason))


def differ(one: Sequence[pa.Array], other: Sequence[pa.Array]) -> np.ndarray:
    """Return for every row whether the columns of `one` and `other` differ; NULL equals NULL, and NaN equals NaN.

    >>> differ([pa.array([1.0, None, float("nan")])], [pa.array([1.0, 2.0, float("nan")])]).tolist()
    [False, True, False]
    """
    if not one or not len(one[0]):
        return np.zeros(len(one[0]) if one else 0, np.bool_)
    names = [f"{side}{at}" for side in "ab" for at in range(len(one))]
    batch = pa.RecordBatch.from_arrays([*one, *other], names)
    condition = " OR ".join(f"a{at} IS DISTINCT FROM b{at}" for at in range(len(one)))
    return np.asarray(run_statement(f"SELECT {condition} AS v FROM __batch", batch)["v"].to_numpy(), np.bool_)  # noqa: S608
