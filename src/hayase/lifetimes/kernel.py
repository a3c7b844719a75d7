"""The kernel of a query: runs the operators of a plan for one bucket and emits result rows with their lifetimes.

`operator` maps a plan node to its operator; `QueryKernel` implements `hayase.core.stages.Kernel`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.keys import raw_values
from hayase.core.stages import OFFSET, TIME, FailedRows, Outcome, Refusals, Tuples
from hayase.core.times import BEGINNING
from hayase.lifetimes.aggregates import AggregateOperator
from hayase.lifetimes.asof_joins import AsofOperator
from hayase.lifetimes.instants import instants
from hayase.lifetimes.joins import JoinOperator
from hayase.lifetimes.leaves import LeafOperator, RowWindow, leaf
from hayase.lifetimes.list_elements import UnnestOperator
from hayase.lifetimes.multisets import MultisetOperator
from hayase.lifetimes.over_rows import OverOperator
from hayase.lifetimes.plans import (
    Aggregate,
    Asof,
    Bounded,
    Changes,
    Instants,
    Join,
    Lasting,
    Leaf,
    Lifetimes,
    Limited,
    Multiset,
    Node,
    Over,
    Recomputed,
    RunningOver,
    Scalar,
    Session,
    Shared,
    Top,
    ToStream,
    Unbounded,
    UnionAll,
    Unnest,
    Window,
    Windowed,
    children,
)
from hayase.lifetimes.relation_to_stream import ToStreamOperator
from hayase.lifetimes.relations import OPEN, Delta, Operator, Span
from hayase.lifetimes.scalars import ScalarOperator, UnionOperator
from hayase.lifetimes.state_registers import Registers
from hayase.lifetimes.time_limits import LastingOperator, LimitedOperator
from hayase.lifetimes.top_rows import ShownRows, TopOperator
from hayase.lifetimes.tuples import TupleStore

if TYPE_CHECKING:
    from hayase.lifetimes.shared_windows import SharedState

__all__ = ["KernelConfig", "QueryKernel", "endless", "in_order", "lifetime_rows", "operator"]


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """A plan and the columns of its output stream.

    `scale` is the number of microseconds in one unit of the output's times. `earliest` are inputs that are read only for
    the time of the first record: an aggregate without keys has its row from then on.
    """

    plan: Node
    output: pa.Schema
    scale: int = 1
    earliest: tuple[int, ...] = ()


class QueryKernel:
    """The kernel of a query for one bucket (`hayase.core.stages.Kernel`).

    A section of its state is named `<operator number>.<section of the operator>`.
    """

    def __init__(
        self, config: KernelConfig, bucket: int = 0, buckets: int = 1, shared: SharedState | None = None
    ) -> None:
        self._config = config
        self._nodes = in_order(config.plan)
        self._operators: list[Operator | LeafOperator] = [operator(node, shared) for node in self._nodes]
        numbers = {id(node): number for number, node in enumerate(self._nodes)}
        self._children = [tuple(numbers[id(child)] for child in children(node)) for node in self._nodes]
        self._emission = _Emission(config, bucket, buckets, _shown_rows(self._nodes, self._operators))
        self._began = Registers(("began",), (BEGINNING,))
        self._earliest = config.earliest if bucket == 0 else ()  # rows without a key all go to bucket 0
        self._is_placed = buckets > 1 and _in_log_order(config.plan)

    def process(self, inputs: Sequence[pa.RecordBatch], since: int, clock: int, version: int) -> Outcome:
        """Process a step and return the result rows that appear and end in it, with refusals and the change of state."""
        span = Span(since, clock, version, self._first_time(inputs))
        state = [_with_owner(_BEGAN, tuples) for tuples in self._began.changes(version)]
        spoiled: list[FailedRows] = []
        refused: dict[int, list[FailedRows]] = {}
        deltas: list[Delta] = []
        for number, (node, operator) in enumerate(zip(self._nodes, self._operators)):
            if isinstance(node, Leaf):
                step = operator.advance(inputs, span)
            else:
                step = operator.advance([deltas[child] for child in self._children[number]], span)
            deltas.append(step.delta)
            state += [_with_owner(str(number), tuples) for tuples in step.state]
            for lost in step.spoiled:
                leaf = _records_of(node) if lost.ids is not None else None
                if leaf is None:
                    spoiled.append(lost)
                    continue
                now, earlier = self._split_by_step(leaf, lost, inputs[leaf.input])
                refused.setdefault(leaf.input, []).append(now)
                spoiled += earlier
        rows, kept = self._emission.rows(deltas[-1], span)
        state += [_with_owner(_RESULT, tuples) for tuples in kept]
        refusals = [_refusals(batch, refused.get(number, ())) for number, batch in enumerate(inputs)]
        places = deltas[-1].id if self._is_placed else None
        return Outcome(rows, refusals if refused else (), state, spoiled, places=places)

    def _split_by_step(
        self, leaf: Windowed | Changes | Shared, lost: FailedRows, batch: pa.RecordBatch
    ) -> tuple[FailedRows, list[FailedRows]]:
        """Map spoiled tuples to records: those of this step, identified by their offsets, and those of earlier steps."""
        window = self._operators[next(number for number, node in enumerate(self._nodes) if node is leaf)]
        assert lost.ids is not None
        offsets = window.offsets_of(lost.ids) if isinstance(window, RowWindow) else lost.ids
        here = np.isin(offsets, raw_values(batch.column(OFFSET), np.int64))
        known = ~here & (offsets >= 0)
        earlier: list[FailedRows] = []
        for which, input in ((known, leaf.input), (~here & ~known, None)):
            if which.any():
                earlier.append(replace(_select(lost, which, offsets), input=input))
        return _select(lost, here, offsets), earlier

    def _first_time(self, inputs: Sequence[pa.RecordBatch]) -> int:
        """Return the time of the first record, or BEGINNING if there was none yet. It is kept once a step has seen it."""
        if self._began["began"] == BEGINNING:
            firsts = [inputs[number].column(TIME)[0].as_py() for number in self._earliest if inputs[number].num_rows]
            if firsts:
                self._began["began"] = min(firsts)
        return self._began["began"]

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Pass state to the operator that owns the section."""
        owner, inner = section.split(".", 1)
        self._owner(owner).restore(inner, rows, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Ask the operator that owns the section for its live rows."""
        owner, inner = section.split(".", 1)
        return self._owner(owner).live(inner, rows, version)

    def size(self, section: str) -> int:
        """Ask the operator that owns the section for its number of live tuples."""
        owner, inner = section.split(".", 1)
        return self._owner(owner).size(inner)

    def _owner(self, owner: str) -> Operator | LeafOperator | _Emission | Registers:
        if owner == _RESULT:
            return self._emission
        return self._began if owner == _BEGAN else self._operators[int(owner)]


_RESULT, _BEGAN = "result", "began"


def _with_owner(owner: str, tuples: Tuples) -> Tuples:
    return replace(tuples, section=f"{owner}.{tuples.section}")


def in_order(plan: Node) -> list[Node]:
    """Return the nodes of a plan, each once, children before parents."""
    nodes: dict[int, Node] = {}

    def visit(node: Node) -> None:
        if id(node) not in nodes:
            for child in children(node):
                visit(child)
            nodes[id(node)] = node

    visit(plan)
    return list(nodes.values())


def operator(node: Node, shared: SharedState | None = None) -> Operator | LeafOperator:
    """Return a new operator for a node, without state; its windows may be `shared` with those of other kernels."""
    match node:
        case Shared():
            from hayase.lifetimes.shared_windows import (
                SharedOperator,  # imports loops that other plans do not need
            )

            return SharedOperator(node, shared)
        case Windowed() | Lifetimes() | Changes():
            return leaf(node)
        case Instants():
            return instants(node)
        case Scalar():
            return ScalarOperator(node)
        case UnionAll():
            return UnionOperator(node)
        case Unnest():
            return UnnestOperator(node)
        case Join():
            return JoinOperator(node)
        case Limited():
            return LimitedOperator(node)
        case Lasting():
            return LastingOperator(node)
        case Asof():
            return AsofOperator(node)
        case Multiset():
            return MultisetOperator(node)
        case Aggregate():
            return AggregateOperator(node, endless(node.child))
        case Recomputed():
            from hayase.lifetimes.recomputed_aggregates import RecomputedOperator  # imports DuckDB

            return RecomputedOperator(node, endless(node.child))
        case Over():
            return OverOperator(node)
        case RunningOver():
            from hayase.lifetimes.running_over import RunningOverOperator  # imports folds

            return RunningOverOperator(node)
        case Top():
            return TopOperator(node)
        case ToStream():
            return ToStreamOperator(node)


def _in_log_order(plan: Node) -> bool:
    """Return whether the output has the order of its input's log at equal times: each of its rows is a record of a stream, with
    window functions. The ids of such rows are the offsets of the records."""
    node = plan.child if isinstance(plan, ToStream) and plan.kind == "istream" else plan
    while isinstance(node, Scalar):
        node = node.child
    return isinstance(node, RunningOver)


def endless(node: Node) -> bool:
    """Return whether no tuple of a relation ever ends."""
    match node:
        case Windowed(window=Bounded() | Session() as window):
            return window.keep >= OPEN and window.early is None
        case Windowed():
            return isinstance(node.window, Unbounded)
        case Shared():
            return bool(node.bounds) and all(window.keep >= OPEN for window in node.windows)
        case Join():
            return node.kind in ("inner", "semi") and endless(node.left) and endless(node.right)
        case Lasting():
            return True
        case Multiset():
            return not node.rule.startswith("except") and all(endless(child) for child in node.children)
        case Scalar() | UnionAll() | Unnest() | RunningOver():
            return all(endless(child) for child in children(node))
        case _:
            return False


def _records_of(node: Node) -> Windowed | Changes | Shared | None:
    """Return the leaf whose records a node can refuse: those that correspond one to one to the tuples of its child, or the
    node itself. None if there is none."""
    if isinstance(node, Changes | Shared):
        return node
    below = children(node)
    while len(below) == 1 and isinstance(below[0], Scalar | RunningOver):
        below = children(below[0])
    return below[0] if len(below) == 1 and isinstance(below[0], Windowed) and _is_one_to_one(below[0].window) else None


def _is_one_to_one(window: Window) -> bool:
    """Return whether a window has at most one tuple for each record."""
    match window:
        case Bounded():
            return window.kind == "tumble" and window.early is None
        case Session():
            return window.early is None
        case _:
            return True


def _select(lost: FailedRows, which: np.ndarray, ids: np.ndarray) -> FailedRows:
    """Select some of the spoiled tuples and give them other ids."""
    places = np.flatnonzero(which)
    return FailedRows(lost.rows.take(pa.array(places)), [lost.reasons[at] for at in places.tolist()], ids[places])


def _refusals(batch: pa.RecordBatch, lost: Sequence[FailedRows]) -> Refusals:
    """Return spoiled tuples as refusals of records, in the order of the batch."""
    reasons = {offset: reason for spoiled in lost for offset, reason in zip(spoiled.ids, spoiled.reasons)}  # type: ignore[arg-type]
    if not reasons:
        return Refusals()
    offsets = batch.column(OFFSET).to_numpy()
    rows = np.flatnonzero(np.isin(offsets, list(reasons)))
    return Refusals(rows, [reasons[offsets[row]] for row in rows])


# ---------------------------------------------------------------------------------------------------- the result


def _shown_rows(nodes: Sequence[Node], operators: Sequence[Operator | LeafOperator]) -> Callable[[], ShownRows] | None:
    """Return what gives the result rows that the last step closed, if they are those of a `Top` with some of its columns."""
    at, selections = len(nodes) - 1, []
    while isinstance(selection := operators[at], ScalarOperator) and selection.only_selects:
        selections.append(selection)
        at -= 1  # a Scalar has one child, which is the node before it
    top = operators[at]
    if not isinstance(top, TopOperator):
        return None
    top.tells_closed = True

    def shown() -> ShownRows:
        assert top.closed is not None
        rows = top.closed.rows
        for selection in reversed(selections):
            rows = selection.selected(rows)
        return ShownRows(rows, top.closed.start)

    return shown


class _Emission:
    """Turns the result of a plan into rows of the output stream.

    It emits one row when a tuple appears, and a second one when the tuple ends if the end was not known at first. The
    values of open tuples are kept for the second row, unless the operator that shows them has them anyway (`shown`).
    """

    def __init__(
        self, config: KernelConfig, bucket: int, buckets: int, shown: Callable[[], ShownRows] | None = None
    ) -> None:
        self._config, self._bucket, self._buckets = config, bucket, buckets
        self._is_stream = isinstance(config.plan, ToStream)
        ends = not self._is_stream and not endless(config.plan)
        self._shown = shown if ends else None
        self._open = TupleStore(config.plan.schema, "open") if ends and shown is None else None

    def rows(self, delta: Delta, span: Span) -> tuple[pa.RecordBatch, Sequence[Tuples]]:
        """Return the output rows of a step, in time order, and the change of the open tuples."""
        if self._is_stream:
            return stream_rows(self._config, delta), ()
        ids = delta.id * self._buckets
        ids += self._bucket
        if self._shown is not None and len(delta.closed):
            ended, ended_ids = self._shown(), delta.closed * self._buckets + self._bucket
            return self._together(delta, ids, ended.rows, ended_ids, ended.start, delta.closed_end), ()
        if self._open is None:
            return lifetime_rows(self._config, delta.rows, ids, delta.start, delta.end, delta.start), ()
        removed = self._open.settle(span.since)[1]
        self._open.release(removed)
        closed = self._open.close(delta.closed, delta.closed_end)
        rows, start, end = self._open.take(closed), self._open.start[closed], self._open.end[closed]
        closed_ids = self._open.id[closed] * self._buckets + self._bucket
        self._open.release(self._open.expire(span.clock))
        still = np.flatnonzero(delta.end == OPEN)
        if len(still):
            opened = delta.rows if len(still) == len(delta) else delta.rows.take(pa.array(still))
            self._open.add(opened, delta.start[still], delta.end[still], delta.id[still])
        kept = self._open.changes()
        if not len(closed):
            return lifetime_rows(self._config, delta.rows, ids, delta.start, delta.end, delta.start), kept
        return self._together(delta, ids, rows, closed_ids, start, end), kept

    def _together(
        self,
        delta: Delta,
        ids: np.ndarray,
        rows: pa.RecordBatch,
        closed_ids: np.ndarray,
        start: np.ndarray,
        end: np.ndarray,
    ) -> pa.RecordBatch:
        """Return the output rows of tuples that appear and of tuples that end, in time order."""
        changed = np.concatenate([end, delta.start])
        order = np.argsort(changed, kind="stable")
        both = pa.concat_batches([rows, delta.rows]).take(pa.array(order))
        every_id, every_start, every_end = (
            np.concatenate(pair)[order] for pair in ((closed_ids, ids), (start, delta.start), (end, delta.end))
        )
        return lifetime_rows(self._config, both, every_id, every_start, every_end, changed[order])

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        if self._open is not None:
            self._open.restore(rows, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        return rows.slice(0, 0) if self._open is None else self._open.live(rows, version)

    def size(self, section: str) -> int:
        return 0 if self._open is None else self._open.size()


def lifetime_rows(
    config: KernelConfig, rows: pa.RecordBatch, ids: np.ndarray, start: np.ndarray, end: np.ndarray, changed: np.ndarray
) -> pa.RecordBatch:
    """Return rows of an output stream with lifetimes (`core.declarations.LIFETIME_COLUMNS`)."""
    kind = config.output.field("valid_from").type
    valid_from = _output_times(start, config.scale, kind)
    valid_to = _output_times(end, config.scale, kind, mask=end == OPEN)
    changed_at = valid_from if changed is start else _output_times(changed, config.scale, kind)
    columns = [*rows.columns, pa.array(ids), valid_from, valid_to, changed_at]
    return pa.RecordBatch.from_arrays(columns, schema=config.output)


def stream_rows(config: KernelConfig, delta: Delta) -> pa.RecordBatch:
    """Return rows of an output stream of records: the values and their time."""
    kind = config.output.field("changed_at").type
    return pa.RecordBatch.from_arrays(
        [*delta.rows.columns, _output_times(delta.start, config.scale, kind)], schema=config.output
    )


def _output_times(instants: np.ndarray, scale: int, kind: pa.DataType, mask: np.ndarray | None = None) -> pa.Array:
    """Convert instants to the unit of the output, which is fine enough for all of them."""
    units = instants if scale == 1 else instants // scale
    return pa.array(units, mask=mask if mask is not None and mask.any() else None).cast(kind)
