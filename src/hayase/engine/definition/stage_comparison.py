"""Compares the stages of two versions of a pipeline: which continue with their state, which begin anew, which are refused.

A change that would need a reset is refused, with a message that says what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hayase.core.declarations import StreamDeclaration, TableDeclaration
from hayase.core.errors import DeclarationError, StageChanged, UnknownName
from hayase.core.stages import MAIN, OPERATIONS, Stage
from hayase.engine.definition.definitions import Definition, StageChange, StageRecord, Start, stages_of

__all__ = ["begin_anew", "can_be_built", "compare", "record_of", "records_after", "with_readers"]


def compare(
    current: Definition | None, stages: Mapping[str, Stage], anew: Mapping[str, Start] | None = None
) -> dict[str, StageChange]:
    """Return what becomes of every stage when `stages` replace the current ones and those in `anew` begin anew."""
    known = {record.name: record for record in current.records} if current else {}
    changes: dict[str, StageChange] = {}
    for name, stage in stages.items():
        if name not in known:
            changes[name] = "added"
        elif name in (anew or {}):
            changes[name] = "anew"
        elif known[name].fingerprint == stage.fingerprint:
            changes[name] = "kept"
        else:
            assert current is not None
            old = _stage_of(current, name)
            goes_on = old is not None and _is_known(known[name], old) and _is_safe(old, stage)
            changes[name] = "changed" if goes_on else "refused"
    return changes | {name: "removed" for name in known if name not in stages}


def _stage_of(current: Definition, name: str) -> Stage | None:
    """Return a stage of the current definition; None if an earlier release of Hayase accepted a declaration that this
    one refuses."""
    try:
        return stages_of(current).get(name)
    except DeclarationError:
        return None


def _is_known(record: StageRecord, old: Stage) -> bool:
    """Return whether a query or table has the same fingerprint as when it was recorded. If another release of Hayase
    recorded it, that release may have kept state where this one needs none. Stages of other kinds run functions, which
    can change without their declarations, so they always pass."""
    is_query = old.every is None and old.state_digest is None and old.lane == MAIN
    return record.fingerprint == old.fingerprint or not is_query


def _is_safe(old: Stage, new: Stage) -> bool:
    """Return whether `new` can continue with the state of `old`.

    A stateless stage, or a firing one without a digest of its state, may compute something else from the next
    record on if its output schema is the same. A stage with the same digest as before continues with its state. The content
    of a table must be what its rules make of the events.
    """
    if isinstance(new.output, TableDeclaration):
        from hayase.tables.table_planner import can_continue

        return can_continue(old, new)
    if (old.output, old.lane) != (new.output, new.lane):
        return False
    if new.state_digest == "" == old.state_digest:
        return True  # it may also read other streams
    same_inputs = [input_.stream for input_ in old.inputs] == [input_.stream for input_ in new.inputs]
    stateless = all(stage.kernel is None or stage.every is not None for stage in (old, new))
    return same_inputs and (stateless if new.state_digest is None else old.state_digest == new.state_digest)


def with_readers(resets: dict[str, Start], stages: Mapping[str, Stage]) -> dict[str, Start]:
    """Return `resets`, extended by all stages that read the output of a reset stage, directly or through others."""
    names = {stage.query for stage in stages.values()}
    for name in resets:
        if name not in names:
            raise UnknownName("stage", name, names)
    known = -1
    while len(resets) > known:  # more than one pass only for loops of jobs
        known = len(resets)
        for stage in stages.values():
            if stage.query in resets:
                resets.setdefault(stage.name, resets[stage.query])
            elif stage.name not in resets and any(input_.stream in resets for input_ in stage.inputs):
                resets[stage.name] = "earliest"
    return resets


def records_after(
    current: Definition | None, stages: Mapping[str, Stage], anew: Mapping[str, Start], version: int
) -> tuple[StageRecord, ...]:
    """Return the records of `stages` in the next version; StageChanged if one of them would need a reset."""
    known = {record.name: record for record in current.records} if current else {}
    records = []
    changes = compare(current, stages, anew)
    refused = [name for name, change in changes.items() if change == "refused"]
    if refused:
        raise StageChanged(_way_out(refused, known, stages))
    for name, change in changes.items():
        if change in ("added", "anew"):
            records.append(record_of(stages[name], version, anew.get(name, "earliest")))
        elif change in ("kept", "changed"):
            records.append(record_of(stages[name], known[name].generation, known[name].start))
    return tuple(records)


def record_of(stage: Stage, generation: int, start: Start) -> StageRecord:
    """Return what the home records of a stage."""
    inputs = tuple(dict.fromkeys(input_.stream for input_ in stage.inputs))
    closings = [(stage.inputs[number].stream, step, offset, length) for number, step, offset, length in stage.closings]
    return StageRecord(
        stage.name, stage.fingerprint, generation, start, inputs, stage.output, stage.every, stage.tables_read, stage.lane,
        tuple(dict.fromkeys(closings)),
    )  # fmt: skip


def _way_out(refused: Sequence[str], known: Mapping[str, StageRecord], stages: Mapping[str, Stage]) -> str:
    """Return the error message for refused stages: what to do about them, and which readers would begin anew with them."""
    names = list(dict.fromkeys(stages[stage].query for stage in refused))
    if len(names) == 1:
        message = _way_out_of_one(known[refused[0]], stages[refused[0]])
    else:
        listed = ", ".join(f'"{name}"' for name in names)
        message = (
            f"stages {listed} have changed, and what they remember does not fit their new definitions; put the old "
            f"definitions back, build the new ones beside them with `hayase apply --beside`, or begin anew with `hayase reset "
            f"{' '.join(names)} --from earliest` (or `--from now`)"
        )
    anew = with_readers(dict.fromkeys(names, "earliest"), stages)
    behind = dict.fromkeys(stages[stage].query for stage in anew if stage in known and stages[stage].query not in names)
    return message + (f"; {', '.join(behind)}, which read what they write, begin anew with them" if behind else "")


def _way_out_of_one(record: StageRecord, stage: Stage) -> str:
    name = stage.query
    if stage.lane == OPERATIONS and record.output != stage.output:
        return (
            f'operation "{name}" would write ({stage.stream.schema}), and what it has written is '
            f"({record.output.schema if isinstance(record.output, StreamDeclaration) else 'a table'}); call what writes "
            f"something else by another name, or {begin_anew(name)}"
        )
    if _has_old_sets(record, stage):
        return (
            f'table "{name}" has columns that were declared ORSet when that was the last-writer-wins set, which is LWWSet now; '
            f"declare them LWWSet, and the table goes on as it was, or rebuild it with observed removals: `hayase reset {name} "
            "--from earliest`"
        )
    beside = "build the new one beside it with `hayase apply --beside`, " if can_be_built(stage) else ""
    return (
        f'stage "{name}" has changed, and what it remembers does not fit its new definition; put the old '
        f"definition back, {beside}or begin anew with `hayase reset {name} --from earliest` (or `--from now`)"
    )


def can_be_built(stage: Stage | None) -> bool:
    """Return whether a stage can be built beside an older version: one of a query."""
    return (
        stage is not None and stage.lane == MAIN and stage.every is None and isinstance(stage.output, StreamDeclaration)
    )


def _has_old_sets(record: StageRecord, stage: Stage) -> bool:
    """Return whether a table's declaration is unchanged and has ORSet columns that an earlier release wrote."""
    if not isinstance(record.output, TableDeclaration) or not isinstance(stage.output, TableDeclaration):
        return False
    same = stage.output.columns[: len(record.output.columns)] == record.output.columns
    return same and any(kind == "ORSet" for _, kind in record.output.columns)


def begin_anew(operation: str) -> str:
    """Return the advice for an operation that is to write another schema than before."""
    return f"let it begin anew: `hayase reset {operation} --from earliest` (or now), or `hayase ops update --reset earliest`"
