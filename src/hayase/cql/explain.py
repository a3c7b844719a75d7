"""EXPLAIN: a query's logical plan and its stages, with map sides, keys and operators, as stable text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from hayase.core.declarations import PipelineDeclaration
from hayase.core.errors import DeclarationError, UnknownName
from hayase.core.scalar_functions import shown
from hayase.core.stages import OFFSET, Input, Lookup, Stage
from hayase.core.times import duration_text
from hayase.cql.columns import column_name, quoted
from hayase.cql.logical import describe, frame_text, options_text, order_text
from hayase.cql.planner import Planned, PlannedQuery, plan
from hayase.cql.stage_drafts import Draft, DraftInput, LookupStep, Step
from hayase.lifetimes import plans

__all__ = ["explain", "input_lines", "operator_text", "placement"]


def explain(declaration: PipelineDeclaration, query: str, lookups: Mapping[str, Lookup] = MappingProxyType({})) -> str:
    """Return the text that explains how a query runs. Raise DeclarationError if it has mistakes. `lookups` as for `plan`.

    >>> from hayase.core.declarations import QueryDeclaration, StreamDeclaration
    >>> events = StreamDeclaration("events", "time timestamp, user_id string, amount double", time="time")
    >>> big = QueryDeclaration("big", "select user_id from events where amount > 100")
    >>> print(explain(PipelineDeclaration("shop", (events,), (big,)), "big"))
    Query big
      select user_id from events where amount > 100
    <BLANKLINE>
    Logical plan
      Project user_id = "events.user_id"
        Filter "events.amount" > 100
          Source events as events [Unbounded]
    <BLANKLINE>
    Stage big: record by record, in the order of the log
      input 0: stream events
        reads time, user_id, amount
        where "events.amount" > 100
        gives user_id = "events.user_id", time = "events.time"
      output: stream big (user_id string, time timestamp)
    """
    planned = plan(declaration, lookups)
    match = {planned_query.name.lower(): planned_query for planned_query in planned.queries}.get(query.lower())
    if match is None:
        mistakes = [mistake for name, mistake in planned.mistakes if name.lower() == query.lower()]
        if mistakes or any(declared.name.lower() == query.lower() for declared in declaration.queries):
            raise DeclarationError(mistakes or [mistake for _, mistake in planned.mistakes])
        raise UnknownName("query", query, [declared.name for declared in declaration.queries])
    return shown("\n".join(_query(match, planned)))


def _query(query: PlannedQuery, planned: Planned) -> list[str]:
    text = [f"Query {query.name}", *_indent(query.text.strip().splitlines())]
    meaning = ["", "Logical plan", *_indent(describe(query.logical))]
    stages = [
        line for draft in query.drafts for line in ["", *_stage(draft), *_indent(_shared_with(draft.stage, planned))]
    ]
    return [*text, *meaning, *stages]


def _shared_with(stage: Stage, planned: Planned) -> list[str]:
    """Return a line with the other stages of the shared scan, if there are any."""
    if stage.shared_scan is None:
        return []
    group = stage.shared_scan.group
    others = [
        other.name
        for other in planned.stages
        if other.shared_scan and other.shared_scan.group == group and other != stage
    ]
    return [f"shares its pass over {stage.inputs[0].stream} with {', '.join(others)}"] if others else []


def _indent(lines: Sequence[str]) -> list[str]:
    return [f"  {line}".rstrip() for line in lines]


def _stage(draft: Draft) -> list[str]:
    stage = draft.stage
    lines: list[str] = []
    for number, (stage_input, draft_input) in enumerate(zip(stage.inputs, draft.draft_inputs)):
        views = "".join(f", through view {name}" for name in reversed(draft_input.views))
        lines += [
            f"input {number}: stream {stage_input.stream}{views}",
            *_indent(input_lines(stage_input, draft_input, stage.kernel is None)),
        ]
    if draft.plan is not None:
        lines += ["operators", *_indent(_operators(draft.plan))]
    output = stage.stream
    kind = "relation" if output.lifetimes else "stream"
    lines.append(f"output: {kind} {output.name} ({output.schema})")
    return [f"Stage {stage.name}: {placement(draft)}", *_indent(lines)]


def placement(draft: Draft) -> str:
    """Return where a stage runs."""
    if draft.stage.kernel is None:
        return "record by record, in the order of the log"
    keys = [
        stage_input.key
        for stage_input, draft_input in zip(draft.stage.inputs, draft.draft_inputs)
        if draft_input.role == "rows"
    ]
    return "in all buckets" if all(keys) else "in one bucket" if not any(keys) else "partly in one bucket"


def input_lines(stage_input: Input, draft_input: DraftInput, is_whole: bool) -> list[str]:
    """Return what the map side of an input does; `is_whole` if it is all that the stage does."""
    if draft_input.role == "ticks":
        columns = f" and its {', '.join(draft_input.columns)}" if draft_input.columns else ""
        return [f"the time of every record{columns}, to all buckets"]
    if draft_input.role == "instants":
        keys = f" and its {', '.join(draft_input.columns)}" if draft_input.columns else ""
        return [f"the time of every record{keys}, to one bucket"]
    if draft_input.role == "earliest":
        return ["the time of its first record"]
    if draft_input.role == "clock":
        return ["its clock"]
    lines = [f"reads {', '.join(draft_input.columns)}"]
    for step in draft_input.steps:
        lines += _step(step)
    if not is_whole:
        lines.append(_key(stage_input.key))
    return lines


def _step(step: Step | LookupStep) -> list[str]:
    if isinstance(step, LookupStep):
        return [_lookup(step)]
    where = [f"where {_one_line(step.where.sql)}"] if step.where else []
    outputs = ", ".join(
        output.name if column_name(output.value) == output.name else f"{output.name} = {_one_line(output.value.sql)}"
        for output in step.columns
    )
    return [*where, f"gives {outputs}"]


def _lookup(step: LookupStep) -> str:
    join = step.join
    keys = " and ".join(f"{part} = {name}" for part, name in zip(join.table.table.key, step.keys))
    taken = f", takes {', '.join(f'{join.alias}.{name}' for name in join.columns)}" if join.columns else ""
    nulls = ", nulls where it has no such row" if join.kind == "left" else ""
    return f"looks up table {join.table.table.name} by {keys}{taken}{nulls}"


def _key(key: tuple[str, ...]) -> str:
    if key == (OFFSET,):
        return "to any bucket, by offset"
    if key == (plans.ROW_ID,):
        return "to any bucket, by row"
    return f"to the bucket of {', '.join(key)}" if key else "to one bucket"


def _operators(node: plans.Node) -> list[str]:
    """Return a line for an operator and, indented below it, those of its inputs."""
    return [operator_text(node), *(line for child in plans.children(node) for line in _indent(_operators(child)))]


def operator_text(node: plans.Node) -> str:
    """Return a line about an operator, without its inputs."""
    match node:
        case plans.Windowed():
            ticks = f", by the times of input {node.window.ticks}" if isinstance(node.window, plans.Rows) else ""
            where = f", of which those with {node.where}" if node.where else ""
            return f"Window {_window(node.window)} of input {node.input}{ticks}{where}"
        case plans.Lifetimes():
            return f"Lifetimes of input {node.input}"
        case plans.Changes():
            return f"Changes of input {node.input}"
        case plans.Scalar():
            outputs = ", ".join(
                name if sql == quoted(name) else f"{name} = {_one_line(sql)}" for name, sql in node.columns
            )
            return f"Scalar {outputs}" + (f" where {_one_line(node.where)}" if node.where else "")
        case plans.Join():
            keys = " and ".join(f"{one} = {other}" for one, other in node.keys)
            residual = f" where {_one_line(node.residual)}" if node.residual else ""
            return f"Join {node.kind}" + (f" by {keys}" if keys else "") + residual
        case plans.Limited():
            length = f"{duration_text(node.length)} after its time" if node.length else "its time is over"
            return f"Limited: a row is kept until {length}"
        case plans.Lasting():
            return "Lasting rows of a join bounded by time"
        case plans.Asof():
            keys = " and ".join(f"{one} = {other}" for one, other in node.keys)
            first = node.order[0]
            sign = (">" if first.descending else "<") + ("" if node.strict else "=")
            order = ", ".join(order_text(key.column, key.descending, key.nulls_first) for key in node.order)
            condition = f"{node.column} {sign} {first.column}"
            return f"Asof join {node.kind}{f' by {keys}' if keys else ''}, the first with {condition} by {order}"
        case plans.UnionAll():
            return "Union all"
        case plans.Unnest():
            return f"Unnest {node.schema.names[-1]} of {node.list}"
        case plans.Multiset():
            return node.rule.capitalize()
        case plans.Aggregate():
            names = node.schema.names[len(node.keys) :]
            calls = ", ".join(f"{name} = {_call(call)}" for name, call in zip(names, node.calls))
            return "Aggregate" + (f" by {', '.join(node.keys)}" if node.keys else "") + (f": {calls}" if calls else "")
        case plans.Recomputed():
            bags = {
                bag.name: f"{bag.fold} of {_one_line(bag.sql)}" if bag.fold else _one_line(bag.sql) for bag in node.bags
            }
            kept = iter(node.calls)
            names = node.schema.names[len(node.keys) :]
            calls = ", ".join(f"{name} = {bags.get(name) or _call(next(kept))}" for name in names)
            by = f" by {', '.join(node.keys)}" if node.keys else ""
            return f"Aggregate{by}, recomputed for every group whose rows change: {calls}"
        case plans.Shared():
            names = node.schema.names[-len(node.calls) :] if node.calls else []
            calls = ", ".join(f"{name} = {_call(call)}" for name, call in zip(names, node.calls))
            by = f" by {', '.join(node.keys)}" if node.keys else ""
            where = f", of which those with {node.where}" if node.where else ""
            return f"Shared windows {_shared(node)} of input {node.input}{where}{by}" + (f": {calls}" if calls else "")
        case plans.Instants():
            ends = ", and their ends" if isinstance(node.window, plans.Range) else ""
            return f"Instants of {_window(node.window)}: the times of input {node.input}{ends}"
        case plans.Over():
            keys = f" by {', '.join(node.keys)}" if node.keys else ""
            calls = ", ".join(f"{call.name} = {_one_line(call.text)}" for call in node.calls)
            return f"Over{keys}, computed anew for a partition whenever it changes: {calls}"
        case plans.RunningOver():
            keys = f" by {', '.join(node.keys)}" if node.keys else ""
            return f"Over{keys}, one result for each record: {', '.join(map(_running_call, node.calls))}"
        case plans.Top():
            return _top(node)
        case plans.ToStream():
            return node.kind.capitalize()


def _top(node: plans.Top) -> str:
    offset = f" after {node.offset}" if node.offset else ""
    ties = " with ties" if node.ties else ""
    keys = f" of each {', '.join(node.keys)}" if node.keys else ""
    order = ", ".join(order_text(key.column, key.descending, key.nulls_first) for key in node.order)
    kept = ", keeping only these" if node.lasting and node.limit is not None else ""
    return f"Top {'all' if node.limit is None else node.limit}{offset}{ties}{keys} by {order}{kept}"


def _running_call(call: plans.RunningCall) -> str:
    if call.function in ("row_number", "rank", "dense_rank"):
        how = "counted"
    elif call.frame.kind == "unbounded":
        how = "running total"
    else:
        how = f"fold of {frame_text(call.frame)}"
    return f"{call.name} = {_one_line(call.text)} ({how})"


def _call(call: plans.Call) -> str:
    constant = None if call.constant is None else f"{call.constant:g}"
    listed = ", ".join(argument for argument in (call.argument or "*", call.second, constant) if argument is not None)
    return f"{call.function}({'distinct ' if call.distinct else ''}{listed})"


def _shared(node: plans.Shared) -> str:
    """Return the windows of a shared kernel, which all have the same kind and slide, or the same options."""
    first = node.windows[0]
    if node.bounds:
        tumbles = all(window.kind == "hop" and window.length == window.slide for window in node.windows)
        lengths = ", ".join(duration_text(window.length) for window in node.windows)
        word = {"hop": " Every ", "cumulate": " By "}.get(first.kind)
        step = f"{word}{duration_text(first.slide)}" if word and not tumbles else ""
        keep = None if all(window.keep == window.slide for window in node.windows) else first.keep
        name = "Tumble" if tumbles else first.kind.capitalize()
        return f"[{name} {lengths}{step}{options_text(first.offset, keep, None)}]"
    size = duration_text if first.kind == "range" else str
    lengths = ", ".join(size(window.length) for window in node.windows)
    slide = f" Slide {size(first.slide)}" if first.kind == "range" or first.slide != 1 else ""
    return f"[{first.kind.capitalize()} {lengths}{slide}{options_text(first.offset, None, None)}]"


def _window(window: plans.Window) -> str:
    match window:
        case plans.Range():
            slide = f" Slide {duration_text(window.slide)}" if window.slide is not None else ""
            return f"[Range {duration_text(window.length)}{slide}{options_text(window.offset, None, None)}]"
        case plans.Rows():
            slide = f" Slide {window.slide}" if window.slide != 1 else ""
            return f"[Rows {window.count}{slide}{_order(window.order)}]"
        case plans.Partition():
            slide = f" Slide {window.slide}" if window.slide != 1 else ""
            return f"[Partition By {', '.join(window.keys)} Rows {window.count}{slide}{_order(window.order)}]"
        case plans.Unbounded():
            return "[Unbounded]"
        case plans.Session():
            keys = f"Partition By {', '.join(window.keys)} " if window.keys else ""
            return f"[{keys}Session {duration_text(window.gap)}{_options(window, window.gap)}]"
        case plans.Bounded():
            word = {"hop": "Every", "cumulate": "By"}.get(window.kind)
            step = f" {word} {duration_text(window.step)}" if word else ""
            return f"[{window.kind.capitalize()} {duration_text(window.length)}{step}{_options(window, window.step)}]"


def _order(order: Sequence[plans.Order]) -> str:
    entries = [order_text(entry.column, entry.descending, entry.nulls_first) for entry in order]
    return f" Order By {', '.join(entries)}" if entries else ""


def _options(window: plans.Bounded | plans.Session, step: int) -> str:
    offset = window.offset if isinstance(window, plans.Bounded) else 0
    return options_text(offset, None if window.keep == step else window.keep, window.early)


def _one_line(sql: str) -> str:
    return " ".join(sql.split())
