"""Lifetimes: the six queries of paper 1, figure 3, by negative tuples, directly, and directly with insertion sort (figure 4).

Kernel level, one process: Arrow batches of one size in, the result's changes out, every column of them summed up. Windows
are full before anything is measured, and methods take turns batch by batch, so that a drift of the machine meets all alike.

NT               every tuple passes every operator twice, as a plus and as a minus with the same values (`negative`)
DT               every tuple passes once, with both its times; the end of one that was open follows as a number and a time.
                 Neither method writes down the change of its state: NT has nothing to write it with
DT, insertion    the same with expiry queues kept in order by insertion, where there are any that fill: the join, the set
                 operation and the average over time windows. The ends of a row window are due as soon as they are known

Data, as far as the paper says: STRu a tuple per ms, ca of {a, b}, cb = 0..9 in turn, cc of {u, v, w}; STRb0 and STRb1 a
tuple per ms, half a ms apart, ca counting up, cb of a..e and cc of 0..9 in turn. Seed: 3. A size is the number of
tuples in the windows of a query: one window of a stream, or half of it over each of two.
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol
from unittest.mock import patch

import numpy as np
import psutil
import pyarrow as pa

from benchmarks.insertion_queue import InsertionQueue
from benchmarks.measure import median, until_idle
from benchmarks.negative_tuples.kernel import NegativeKernel
from hayase.core.keys import raw_values
from hayase.core.stages import OFFSET, TIME
from hayase.lifetimes.kernel import KernelConfig, in_order, operator
from hayase.lifetimes.plans import (
    Aggregate,
    Call,
    Join,
    Multiset,
    Node,
    Range,
    Rows,
    Scalar,
    UnionAll,
    Window,
    Windowed,
    children,
)
from hayase.lifetimes.relations import Delta, Span
from hayase.lifetimes.tuples import Passage, TupleStore

__all__ = ["QUERIES", "run"]

SEED = 3
BATCH = 65_536
"""Tuples in a step, of one stream or of two."""
SIZES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
LARGEST = 10_000_000
"""Directly, row windows only: the paper ran out of memory there."""
PATIENCE = 8.0
"""Seconds after which a method that has not even filled its windows is cut short."""
Kind = Literal["rows", "time"]
KINDS: tuple[Kind, ...] = ("rows", "time")
MS = 1000

# ---------------------------------------------------------------------------------------------------- data and queries

UNARY = pa.schema({"ca": pa.string(), "cb": pa.int64(), "cc": pa.string()})
BINARY = pa.schema({"ca": pa.int64(), "cb": pa.string(), "cc": pa.int64()})
RENAMED = pa.schema([pa.field(f"{each.name}1", each.type) for each in BINARY])
_TIMED = [pa.field(TIME, pa.int64()), pa.field(OFFSET, pa.int64())]


def unary(first: int, count: int) -> list[pa.RecordBatch]:
    """STRu from a number on, and its ticks."""
    random = np.random.default_rng((SEED, first))
    number = np.arange(first, first + count)
    columns = [
        pa.array(["a", "b"]).take(pa.array(random.integers(0, 2, count))),
        pa.array(number % 10),
        pa.array(["u", "v", "w"]).take(pa.array(random.integers(0, 3, count))),
    ]
    return _with_ticks([(columns, UNARY, number * MS, number)])


def binary(first: int, count: int, *, apart: bool = False) -> list[pa.RecordBatch]:
    """STRb0 and STRb1 from a number on, half of the tuples each, and their ticks; `apart` their columns' names differ."""
    number = np.arange(first // 2, (first + count) // 2)
    columns = [
        pa.array(number),
        pa.array(list("abcde")).take(pa.array(number % 5)),
        pa.array(number % 10),
    ]
    schemas = (BINARY, RENAMED if apart else BINARY)
    return _with_ticks([(columns, each, number * MS + at * MS // 2, number) for at, each in enumerate(schemas)])


def _with_ticks(streams: Sequence[tuple[list[pa.Array], pa.Schema, np.ndarray, np.ndarray]]) -> list[pa.RecordBatch]:
    records, ticks = [], []
    for columns, schema, times, offsets in streams:
        timed = [pa.array(times), pa.array(offsets)]
        records.append(pa.RecordBatch.from_arrays([*columns, *timed], schema=pa.schema([*schema, *_TIMED])))
        ticks.append(pa.RecordBatch.from_arrays(timed, schema=pa.schema(_TIMED)))
    return [*records, *ticks]


@dataclass(frozen=True)
class Query:
    """One of figure 3: its text, its data, and its plan over windows of its streams."""

    text: str
    data: Callable[[int, int], list[pa.RecordBatch]]
    schemas: tuple[pa.Schema, ...]
    root: Callable[..., Node]

    def window(self, kind: Kind, size: int, stream: int) -> Window:
        """So many tuples of all streams together, by number or by time."""
        count = size // len(self.schemas)
        return Rows(count, len(self.schemas) + stream) if kind == "rows" else Range(count * MS)

    def plan(self, kind: Kind, size: int) -> Node:
        """The plan over windows of a size."""
        leaves = [Windowed(at, self.window(kind, size, at), schema) for at, schema in enumerate(self.schemas)]
        return self.root(*leaves)


def _same(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, f'"{name}"') for name in names)


def _average(stream: Node) -> Node:
    value = pa.schema({"avg": pa.float64()})
    groups = Aggregate(stream, ("ca", "cc"), (Call("avg", "cb"),), pa.schema([*UNARY.remove(1), *value]))
    return Scalar(groups, _same("avg"), None, value)


QUERIES = {
    "selection": Query(
        "select * from STRu {0} where cb > 3", unary, (UNARY,),
        lambda stream: Scalar(stream, _same(*UNARY.names), '"cb" > 3', UNARY),
    ),
    "projection": Query(
        "select ca, cb from STRu {0}", unary, (UNARY,),
        lambda stream: Scalar(stream, _same("ca", "cb"), None, UNARY.remove(2)),
    ),
    "union": Query(
        "select * from STRb0 {0} union all select * from STRb1 {0}", binary, (BINARY, BINARY),
        lambda left, right: UnionAll((left, right), BINARY),
    ),
    "join": Query(
        "select * from STRb0 {0}, STRb1 {0} where STRb0.ca = STRb1.ca", partial(binary, apart=True), (BINARY, RENAMED),
        lambda left, right: Join("inner", left, right, (("ca", "ca1"),), None, pa.schema([*BINARY, *RENAMED])),
    ),
    "except": Query(
        "select * from STRb0 {0} except select * from STRb1 {0}", binary, (BINARY, BINARY),
        lambda left, right: Multiset("except", (left, right), BINARY),
    ),
    "average": Query("select avg(cb) as avg from STRu {0} group by ca, cc", unary, (UNARY,), _average),
}  # fmt: skip

# ---------------------------------------------------------------------------------------------------- methods


class Method(Protocol):
    """A kernel of one of the methods; returns a checksum over everything that a step gives."""

    def step(self, inputs: Sequence[pa.RecordBatch], since: int, clock: int, version: int) -> float: ...


class Negative:
    """NT."""

    def __init__(self, plan: Node) -> None:
        self._kernel = NegativeKernel(KernelConfig(plan, plan.schema))

    def step(self, inputs: Sequence[pa.RecordBatch], since: int, clock: int, version: int) -> float:
        signed = self._kernel.signed(inputs, since, clock, version)
        return _summed(signed.rows) + float(signed.time.sum() + signed.plus.sum() + signed.tag.sum())


class Direct:
    """DT: the operators of a plan, without the making of output rows, which NT does not make either."""

    def __init__(self, plan: Node) -> None:
        self._nodes = in_order(plan)
        self._operators: list[Any] = [operator(node) for node in self._nodes]

    def step(self, inputs: Sequence[pa.RecordBatch], since: int, clock: int, version: int) -> float:
        span = Span(since, clock, version)
        made: dict[int, Delta] = {}
        with patch.object(TupleStore, "changes", TupleStore.skip_changes):
            for node, each in zip(self._nodes, self._operators):
                given = [made[id(child)] for child in children(node)]
                made[id(node)] = each.advance(given if given else inputs, span).delta
        delta = made[id(self._nodes[-1])]
        numbers = (delta.start, delta.end, delta.id, delta.closed, delta.closed_end)
        return _summed(delta.rows) + float(sum(each.sum() for each in numbers))


class Inserting(Direct):
    """DT with insertion sort, over time windows of a length. All tuples pass the queue, also those that end in the step in
    which they came."""

    def __init__(self, plan: Node, length: int) -> None:
        with patch("hayase.lifetimes.tuples.ExpiryQueue", partial(InsertionQueue, length)):
            super().__init__(plan)

    def step(self, inputs: Sequence[pa.RecordBatch], since: int, clock: int, version: int) -> float:
        with patch.object(TupleStore, "advance", one_by_one):
            return super().step(inputs, since, clock, version)


def one_by_one(store: TupleStore, rows: pa.RecordBatch, delta: Delta, clock: int) -> Passage:
    """`TupleStore.advance`, as the three things that it does at once."""
    slots = store.add(rows, delta.start, delta.end, delta.id)
    store.close(delta.closed, delta.closed_end)
    gone = store.expire(clock)
    return Passage(slots, gone, store.end[gone])


def _summed(rows: pa.RecordBatch) -> float:
    """Something of every value."""
    total = 0.0
    for column in rows.columns:
        if pa.types.is_string(column.type):
            _, at, data = column.buffers()
            bounds = np.frombuffer(at, np.int32, len(column) + 1, 4 * column.offset)
            letters = np.frombuffer(data, np.uint8, bounds[-1]) if data else np.empty(0, np.uint8)
            total += float(letters[bounds[0] :].sum(dtype=np.int64) + bounds.sum(dtype=np.int64))
        else:
            total += float(raw_values(column, np.float64 if pa.types.is_floating(column.type) else np.int64).sum())
    return total


METHODS: dict[str, Callable[[Node, int], Method]] = {
    "NT": lambda plan, length: Negative(plan),
    "DT": lambda plan, length: Direct(plan),
    "DT, insertion": Inserting,
}


@dataclass
class Course:
    """A method on its way through a query's data, step by step."""

    query: Query
    method: Method
    batch: int
    at: int = 0
    spent: float = 0.0

    def step(self) -> float:
        """The next batch; seconds for it."""
        inputs = self.query.data(self.at, self.batch)
        streams = len(self.query.schemas)
        since, clock = (number // streams * MS for number in (self.at, self.at + self.batch))
        began = time.perf_counter()
        checksum = self.method.step(inputs, since, clock, self.at // self.batch + 1)
        taken = time.perf_counter() - began
        assert np.isfinite(checksum)
        self.at += self.batch
        self.spent += taken
        return taken

    def fill(self, size: int, patience: float) -> float | None:
        """Go on until the windows have been full for a batch. If that takes too long, the seconds of the last batch."""
        while self.at < size + self.batch:
            taken = self.step()
            if self.spent > patience and self.at < size:
                return taken
        return None


def measured(name: str, kind: Kind, size: int, methods: Sequence[str], steps: int, batch: int) -> dict[str, float]:
    """Tuples per second of methods on a query over windows of a size, which take turns."""
    query = QUERIES[name]
    length = size // len(query.schemas) * MS
    seconds: dict[str, list[float]] = {each: [] for each in methods}
    courses = {each: Course(query, METHODS[each](query.plan(kind, size), length), batch) for each in methods}
    patience = {each: PATIENCE if "insertion" in each else float("inf") for each in methods}
    for each, course in list(courses.items()):
        cut_short = course.fill(size, patience[each])
        if cut_short is not None:
            seconds[each].append(cut_short)
            del courses[each]
    for number in range(steps):
        for each in list(courses) if number % 2 == 0 else list(courses)[::-1]:
            if not seconds[each] or courses[each].spent < patience[each]:
                seconds[each].append(courses[each].step())
    return {each: batch / median(seconds[each]) for each in methods}


# ---------------------------------------------------------------------------------------------------- the experiment


def run(*, quick: bool, out: Path, spark: bool = False) -> dict[str, Any]:
    """Measure everything, print figure 4 as a table and draw it into `out`; `quick` makes it small."""
    if spark:
        return _through_a_lane(quick)
    sizes = SIZES[:3] if quick else SIZES
    batch, steps = (8_192, 4) if quick else (BATCH, 12)
    rates: dict[str, dict[str, dict[int, float]]] = {}
    for name in QUERIES:
        rates[name] = {}
        for kind in KINDS:
            methods = ["NT", "DT"] + ["DT, insertion"] * (kind == "time" and name in ("join", "except", "average"))
            for size in sizes:
                for method, rate in measured(name, kind, size, methods, steps, batch).items():
                    rates[name].setdefault(f"{method}, {kind}", {})[size] = rate
    largest = {} if quick else {name: _apart(name) for name in QUERIES}
    long = {name: _long(name, batch, 20 if quick else 200) for name in ("join", "except", "average")}
    for name, figures in largest.items():
        rates[name]["DT, rows"][LARGEST] = figures["tuples_per_second"]
    print_rates(rates)
    out.mkdir(parents=True, exist_ok=True)
    return {
        "batch": batch,
        "tuples_per_second": rates,
        "largest": largest,
        "long": long,
        "pictures": [str(draw(rates, out / "lifetimes.png"))],
        "ratios": ratios_of(rates, largest)
        | {f"{figure}_{name}": each[figure] for name, each in long.items() for figure in each if figure != "tuples"},
    }


def ratios_of(rates: dict[str, dict[str, dict[int, float]]], largest: dict[str, dict[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, by_method in rates.items():
        for kind in KINDS:
            direct, negative = by_method[f"DT, {kind}"], by_method[f"NT, {kind}"]
            for size, rate in negative.items():
                found[f"dt_over_nt_{name}_{kind}_{size}"] = direct[size] / rate
            if SIZES[-1] in negative:
                found[f"dt_{SIZES[-1]}_over_dt_10_{name}_{kind}"] = direct[SIZES[-1]] / direct[10]
    for name, figures in largest.items():
        found[f"memory_at_{LARGEST}_rows_over_8_GiB_{name}"] = figures["memory_bytes"] / 2**33
    return found


def _long(name: str, batch: int, steps: int) -> dict[str, float]:
    """A stream that goes on and on, its keys new for ever: the last tenth of it against the first, in time and memory."""
    query = QUERIES[name]
    course = Course(query, Direct(query.plan("rows", 10_000)), batch)
    course.fill(10_000, float("inf"))
    tenth = max(2, steps // 10)
    seconds, memory = [], []
    for _ in range(steps):
        seconds.append(course.step())
        memory.append(psutil.Process().memory_info().rss)
    return {
        "tuples": float(course.at),
        "time_last_over_first": median(seconds[-tenth:]) / median(seconds[:tenth]),
        "memory_last_over_first": median(memory[-tenth:]) / median(memory[:tenth]),
    }


def _apart(name: str) -> dict[str, float]:
    """The largest row windows, directly, in a process of their own: tuples per second, and the most memory it had."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(1) as pool:
        return pool.apply(_largest, (name,))


def _largest(name: str) -> dict[str, float]:
    rate = measured(name, "rows", LARGEST, ["DT"], 12, BATCH)["DT"]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"tuples_per_second": rate, "memory_bytes": float(memory)}


def print_rates(rates: dict[str, dict[str, dict[int, float]]]) -> None:
    """Figure 4 as a table: for every window size the throughput, to that of NT at 10 rows, and thousands of tuples/s."""
    sizes = sorted({size for by_method in rates.values() for each in by_method.values() for size in each})
    print(f"{'':30}" + "".join(f"{size:>18,}" for size in sizes))
    for name, by_method in rates.items():
        unit = by_method["NT, rows"][10]
        for method, by_size in by_method.items():
            cells = (
                f"{by_size[size] / unit:8.2f} {by_size[size] / 1000:8.0f}k" if size in by_size else "" for size in sizes
            )
            print(f"{name:11}{method:19}" + "".join(f"{cell:>18}" for cell in cells))


def draw(rates: dict[str, dict[str, dict[int, float]]], path: Path) -> Path:
    """Figure 4: a graph per query, throughput to that of NT at 10 rows against the size of the window."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, graphs = plt.subplots(2, 3, figsize=(13, 7), sharex=True)
    colours = {"NT": "C0", "DT": "C1", "DT, insertion": "C3"}
    for axes, (name, by_method) in zip(graphs.flat, rates.items()):
        unit = by_method["NT, rows"][10]
        for line, by_size in by_method.items():
            method, kind = line.rsplit(", ", 1)
            style = "-" if kind == "rows" else "--"
            relative = [each / unit for each in by_size.values()]
            axes.plot(list(by_size), relative, style, color=colours[method], marker="o", markersize=3, label=line)
        axes.set(title=name, xscale="log")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    for axes in graphs[1]:
        axes.set_xlabel("tuples in the windows")
    for axes in graphs[:, 0]:
        axes.set_ylabel("throughput (NT, 10 rows = 1)")
    handles = {label: line for axes in graphs.flat for line, label in zip(*axes.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=len(handles))
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path


# ---------------------------------------------------------------------------------------------------- through a lane

END_TO_END = (10, 10_000, 1_000_000)
SCHEMAS = {
    "STRu": "time bigint, ca string, cb bigint, cc string",
    "STRb0": "time bigint, ca bigint, cb string, cc bigint",
    "STRb1": "time bigint, ca bigint, cb string, cc bigint",
}


def _through_a_lane(quick: bool) -> dict[str, Any]:
    """The same queries end to end, from durable streams to a durable result: tuples per second once windows are full."""
    from hayase.engine.spark.session import local_master, open_session

    sizes = END_TO_END[:2] if quick else END_TO_END
    tuples = 200_000 if quick else 2_000_000
    rates: dict[str, dict[str, dict[int, float]]] = {}
    session = open_session(local_master(2), settings={"spark.driver.memory": "3g"})
    try:
        for name, query in QUERIES.items():
            rates[name] = {f"lane, {kind}": {} for kind in KINDS}
            for kind in KINDS:
                for size in sizes:
                    rates[name][f"lane, {kind}"][size] = _lane_rate(session, query, kind, size, tuples)
    finally:
        session.stop()
    last = sizes[-1]
    ratios = {
        f"lane_{last}_over_lane_10_{name}_{kind}": by_kind[f"lane, {kind}"][last] / by_kind[f"lane, {kind}"][10]
        for name, by_kind in rates.items()
        for kind in KINDS
    }
    return {"tuples": tuples, "lane_tuples_per_second": rates, "ratios": ratios}


def _lane_rate(session: Any, query: Query, kind: Kind, size: int, tuples: int) -> float:
    """Fill the windows, then time a run over everything that waits."""
    from hayase import Pipeline
    from hayase.core.stages import MAIN
    from hayase.engine.batch.gate import FileGate, Grants
    from hayase.engine.spark.runner import run_lanes

    streams = ["STRu"] if len(query.schemas) == 1 else ["STRb0", "STRb1"]
    count = size // len(streams)
    written = query.text.format(f"[Rows {count}]" if kind == "rows" else f"[Range {count} ms]")
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as home:
        p = Pipeline("lifetimes", home=home)
        for stream in streams:
            p.stream(stream, SCHEMAS[stream], time="time", time_unit="us")
        p.query("result", written)
        p.apply()
        with run_lanes(p.home, session=session) as lane:
            gate = FileGate(p.home.gate(MAIN))
            gate.set(Grants(limit=1_000_000))
            _append(p, query, streams, 0, size + BATCH)
            until_idle(lane)
            gate.set(Grants(open=False))
            _append(p, query, streams, size + BATCH, tuples)
            began = time.perf_counter()
            gate.set(Grants(limit=1_000_000))
            until_idle(lane)
            return tuples / (time.perf_counter() - began)


def _append(p: Any, query: Query, streams: Sequence[str], first: int, count: int) -> None:
    from hayase.streams import StreamLog

    for start in range(first, first + count, 500_000):
        inputs = query.data(start, min(500_000, first + count - start))
        for stream, batch in zip(streams, inputs):
            columns = [batch.column(TIME), *batch.columns[:3]]
            table = pa.table(columns, names=["time", "ca", "cb", "cc"])
            StreamLog.ensure(p.home.path, p.declaration.stream(stream)).append(table, now=time.time_ns() // 1000)
