"""Negative tuples and the direct method agree, snapshot by snapshot, on every kind of node and every cut into steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from benchmarks.negative_tuples.kernel import NegativeKernel
from hypothesis import event, given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.core.stages import OFFSET, TIME, Kernel
from hayase.core.times import BEGINNING
from hayase.lifetimes.kernel import KernelConfig, QueryKernel
from hayase.lifetimes.plans import (
    ADDED,
    ROW_ID,
    VALID_FROM,
    VALID_TO,
    Aggregate,
    Call,
    Changes,
    Instants,
    Join,
    Lifetimes,
    Multiset,
    Node,
    Partition,
    Range,
    Rows,
    Scalar,
    ToStream,
    Unbounded,
    UnionAll,
    Windowed,
)

COLUMNS = pa.schema({"k": pa.int64(), "v": pa.int64(), "s": pa.string()})
OTHERS = pa.schema({"k1": pa.int64(), "v1": pa.int64(), "s1": pa.string()})
TICKS = pa.schema({TIME: pa.int64(), OFFSET: pa.int64()})
STREAM = pa.schema([*COLUMNS, pa.field("even", pa.bool_()), *TICKS])
TOLD = pa.schema([*COLUMNS, *pa.schema({ROW_ID: pa.int64(), VALID_FROM: pa.int64(), VALID_TO: pa.int64()}), *TICKS])
CHANGED = pa.schema([*COLUMNS, pa.field(ADDED, pa.bool_()), *TICKS])
SCHEMAS = (STREAM, STREAM, TICKS, TICKS, TOLD, CHANGED)
LAST = 14

# ---------------------------------------------------------------------------------------------------- inputs

Record = dict[str, Any]
times = st.lists(st.integers(0, LAST), max_size=14).map(sorted)
row = st.fixed_dictionaries(
    {
        "k": st.sampled_from([0, 1, 2, None]),
        "v": st.sampled_from([0, 1, 2, 5, None]),
        "s": st.sampled_from(["a", "b", None]),
    }
)


@st.composite
def streams(draw: st.DrawFn) -> list[list[Record]]:
    """The records of all inputs; those of a relation tell of it as another query would."""
    found: list[list[Record]] = []
    for _ in range(2):
        found.append([draw(row) | {TIME: time, OFFSET: at} for at, time in enumerate(draw(times))])
        for each in found[-1]:
            each["even"] = each[OFFSET] % 2 == 0
    found += [[{TIME: each[TIME], OFFSET: each[OFFSET]} for each in stream] for stream in found]
    told: list[Record] = []
    for number, start in enumerate(draw(times)):
        values = draw(row) | {ROW_ID: number, VALID_FROM: start}
        end = start + draw(st.integers(1, 9))
        if draw(st.booleans()):
            told.append(values | {VALID_TO: end, TIME: start})
        else:
            told += [values | {VALID_TO: None, TIME: start}, values | {VALID_TO: end, TIME: end}]
    told.sort(key=lambda each: each[TIME])
    changed = [draw(row) | {ADDED: draw(st.integers(0, 2)) > 0, TIME: time} for time in draw(times)]
    return [*found, *([each | {OFFSET: at} for at, each in enumerate(records)] for records in (told, changed))]


# ---------------------------------------------------------------------------------------------------- plans

slides = st.sampled_from([1, 1, 2, 3])
leaves = st.one_of(
    st.builds(
        lambda at, length, slide: Windowed(at, Range(length, slide), COLUMNS),
        st.integers(0, 1), st.integers(1, 6), st.none() | st.integers(2, 4),
    ),
    st.builds(
        lambda at, count, slide: Windowed(at, Rows(count, 2 + at, slide), COLUMNS),
        st.integers(0, 1), st.integers(1, 5), slides,
    ),
    st.builds(
        lambda at, count, slide, where: Windowed(at, Partition(("k",), count, slide), COLUMNS, where),
        st.integers(0, 1), st.integers(1, 3), slides, st.sampled_from([None, "even"]),
    ),
    st.sampled_from([Windowed(0, Unbounded(), COLUMNS), Lifetimes(4, COLUMNS), Changes(5, COLUMNS)]),
)  # fmt: skip


def selected(child: Node) -> Node:
    return Scalar(child, (("k", '"k"'), ("v", '"v" + 1'), ("s", '"s"')), '"v" < 5', COLUMNS)


def renamed(child: Node) -> Node:
    return Scalar(child, tuple((f"{each}1", f'"{each}"') for each in COLUMNS.names), None, OTHERS)


@dataclass(frozen=True)
class Made:
    """Nodes of the shapes that a join and an aggregate have, so that they can stand anywhere."""

    kind: Any
    keys: bool
    residual: bool

    def join(self, left: Node, right: Node) -> Node:
        alone = self.kind in ("semi", "anti")
        schema = COLUMNS if alone else pa.schema([*COLUMNS, *OTHERS])
        residual = '"v" <= "v1"' if self.residual else None
        return Join(self.kind, left, renamed(right), (("k", "k1"),) if self.keys else (), residual, schema)

    def plain(self, left: Node, right: Node) -> Node:
        both = self.join(left, right)
        if self.kind in ("semi", "anti"):
            return both
        columns = (("k", 'coalesce("k", "k1")'), ("v", '"v1"'), ("s", '"s"'))
        return Scalar(both, columns, None, COLUMNS)


made = st.builds(
    Made, st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]), st.booleans(), st.booleans()
)
KINDS = {"count": pa.int64(), "sum": pa.int64(), "min": pa.int64(), "max": pa.int64()}
functions = ["count", "sum", "avg", "min", "max", "var_samp", "var_pop", "stddev_samp", "stddev_pop"]
calls = st.one_of(
    st.just(Call("count", None)),
    st.builds(Call, st.sampled_from(functions), st.just("v")),
    st.builds(Call, st.just("count"), st.sampled_from(["v", "s"]), st.just(True)),
    st.builds(Call, st.sampled_from(["min", "max", "count"]), st.just("s")),
)


def aggregate(child: Node, keys: Sequence[str], chosen: Sequence[Call]) -> Node:
    columns = [COLUMNS.field(each) for each in keys]
    for at, call in enumerate(chosen):
        kind = KINDS.get(call.function, pa.float64())
        if call.function in ("min", "max") and call.argument == "s":
            kind = pa.string()
        columns.append(pa.field(f"c{at}", kind))
    return Aggregate(child, tuple(keys), tuple(chosen), pa.schema(columns))


def counted(child: Node) -> Node:
    """An aggregate with the columns that every relation has."""
    groups = aggregate(child, ("k", "s"), (Call("sum", "v"), Call("avg", "v")))
    return Scalar(groups, (("k", '"k"'), ("v", '"c0"'), ("s", '"s"')), None, COLUMNS)


INSTANTS = (
    Instants(0, Range(3, 2)),
    Instants(1, Unbounded()),
    Instants(2, Rows(1, 2, 3)),
    Instants(1, Partition(("k",), 1, 2)),
)


def streamed(kind: Any, child: Node, every: int | None) -> Node:
    """As the planner has it: what stays is not told as going and coming."""
    if kind == "rstream":
        return ToStream(kind, child, COLUMNS, every, () if every else INSTANTS)
    return ToStream(kind, Multiset("coalesce", (child,), COLUMNS), COLUMNS)


rules = st.sampled_from(["except", "except all", "intersect", "intersect all"])
relations = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(selected, inner),
        st.builds(lambda left, right: UnionAll((left, right), COLUMNS), inner, inner),
        st.builds(
            lambda rule, child: Multiset(rule, (child,), COLUMNS), st.sampled_from(["distinct", "coalesce"]), inner
        ),
        st.builds(lambda rule, left, right: Multiset(rule, (left, right), COLUMNS), rules, inner, inner),
        st.builds(lambda how, left, right: how.plain(left, right), made, inner, inner),
        st.builds(counted, inner),
    ),
    max_leaves=3,
)
plans = st.one_of(
    relations,
    st.builds(lambda how, left, right: how.join(left, right), made, relations, relations),
    st.builds(
        aggregate, relations, st.sampled_from([(), ("k",), ("k", "s")]), st.lists(calls, min_size=1, max_size=3)
    ),
    st.builds(streamed, st.sampled_from(["istream", "dstream", "rstream"]), relations, st.sampled_from([None, 2])),
)  # fmt: skip

# ---------------------------------------------------------------------------------------------------- judgement

Row = tuple[Any, ...]


def output(plan: Node) -> pa.Schema:
    own = ["changed_at"] if isinstance(plan, ToStream) else ["row_id", "valid_from", "valid_to", "changed_at"]
    return pa.schema([*plan.schema, *(pa.field(each, pa.int64()) for each in own)])


def rows_of(
    build: Callable[[KernelConfig], Kernel], plan: Node, records: list[list[Record]], clocks: list[int]
) -> list[Row]:
    """What a kernel tells in all, step by step."""
    kernel = build(KernelConfig(plan, output(plan), 1, (0, 1, 4, 5)))
    since, found = BEGINNING, []
    for version, clock in enumerate(clocks, start=1):
        inputs = [
            pa.RecordBatch.from_pylist([each for each in stream if since <= each[TIME] < clock], schema=schema)
            for stream, schema in zip(records, SCHEMAS)
        ]
        outcome = kernel.process(inputs, since, clock, version)
        assert outcome.rows.schema == output(plan)
        found += [tuple(map(rounded, each.values())) for each in outcome.rows.to_pylist()]
        since = clock
    return found


def rounded(value: Any) -> Any:
    return float(f"{value:.9g}") if isinstance(value, float) else value


def lifetimes(rows: Sequence[Row]) -> list[tuple[Row, int, int | None]]:
    """Of every row its values, start and last known end."""
    known: dict[int, tuple[Row, int, int | None]] = {}
    for *values, number, start, end, _ in rows:
        known[number] = (tuple(values), start, end)
    return list(known.values())


def snapshot(relation: Sequence[tuple[Row, int, int | None]], instant: int) -> Counter[Row]:
    return Counter(row for row, start, end in relation if start <= instant and (end is None or instant < end))


cuts = st.lists(st.integers(1, LAST + 12), max_size=4).map(lambda clocks: [*sorted(set(clocks)), LAST + 13])


@settings(max_examples=examples(25, 500))
@given(plans, streams(), cuts, cuts)
def test_both_methods_give_the_same_snapshots(
    plan: Node, records: list[list[Record]], clocks: list[int], others: list[int]
) -> None:
    event(type(plan).__name__)
    direct = rows_of(QueryKernel, plan, records, clocks)
    negative = rows_of(NegativeKernel, plan, records, others)
    if isinstance(plan, ToStream):
        assert Counter(direct) == Counter(negative)
        return
    one, other = lifetimes(direct), lifetimes(negative)
    for instant in sorted(
        {time for relation in (one, other) for _, *both in relation for time in both if time is not None}
    ):
        if instant < clocks[-1]:
            assert snapshot(one, instant) == snapshot(other, instant), f"at {instant}"
