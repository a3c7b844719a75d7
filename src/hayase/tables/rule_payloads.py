"""Evaluation of update rules: for each update of a source's rules the events that cause it, their keys and parameters.

An event that fails in one rule is refused for that rule only. In detail:

- a branch does not apply to an event for which its condition returns false, null or no result. More than one result is refused,
  since it is not clear which one counts (`any(...)` combines them);
- each part of a key is one text, number or boolean. Null, arrays, objects and several results are refused; if there is no
  result (`.user // empty`), the update does not apply to the event;
- the value may have any number of results, also none. Each result is a payload: `.items[]` adds every item to a set. Each payload
  needs its own version, so they are numbered: the first result has the update's number, each further one 65,536 more. Null is a
  value like any other; the column type accepts or refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from hayase.core.data_classes import dataclass
from hayase.tables.jq import Events, Jq, Refused, Several
from hayase.tables.rules import MOST_UPDATES, Branch, RuleSet, Update

__all__ = ["EvaluatedUpdate", "Keys", "Outcome", "Payload", "Refusal", "payloads"]

Key: TypeAlias = tuple[str | bool | int | float | Decimal, ...]
_KEYS = {str, bool, int, float, Decimal}
_KINDS = {type(None): "null", list: "an array", dict: "an object"}


class Payload(NamedTuple):
    """One update by one event."""

    table: str
    key: Key
    column: str
    method: str | None
    parameter: Any
    number: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """An event that failed in a rule: its position, the rule, the jq program that failed, and the reason."""

    event: int
    rule: str
    program: str
    reason: str


@dataclass(frozen=True, slots=True)
class EvaluatedUpdate:
    """One update of the rules, evaluated for a batch: lists of equal length with the events to which it applies, their keys and
    parameters, and the numbers for their versions."""

    table: str
    update: Update
    events: Sequence[int]
    keys: Sequence[Key]
    parameters: Sequence[Any]
    numbers: Sequence[int]

    @property
    def rule(self) -> str:
        """How refusals name the update: its number in the file, its table and column."""
        return f"update {self.update.number + 1} ({self.table}.{self.update.column})"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The updates and refusals of a batch of events."""

    events: int
    updates: list[EvaluatedUpdate] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    def by_event(self) -> list[list[Payload]]:
        """Return the payloads of each event, in the order of the updates."""
        by_event: list[list[Payload]] = [[] for _ in range(self.events)]
        for evaluated in self.updates:
            update = evaluated.update
            for event, key, parameter, number in zip(
                evaluated.events, evaluated.keys, evaluated.parameters, evaluated.numbers, strict=True
            ):
                payload = Payload(evaluated.table, key, update.column, update.method, parameter, number)
                by_event[event].append(payload)
        return by_event


def payloads(rules: RuleSet, source: str, events: Events, jq: Jq) -> Outcome:
    """Evaluate the rules of a source for a batch of its events.

    >>> from hayase.tables.rules import SourceRules, TableRules
    >>> total = TableRules("users", (Update(0, (".user",), "total", ".amount", "incr"),))
    >>> rules = RuleSet((SourceRules("sales", (Branch(".amount != 0", (total,)),)),))
    >>> payloads(rules, "sales", Events([{"user": "taro", "amount": 5}]), Jq()).by_event()[0][0]
    Payload(table='users', key=('taro',), column='total', method='incr', parameter=5, number=0)
    """
    outcome = Outcome(len(events))
    for position, branch in enumerate(rules.branches(source)):
        concerned = _matching_events(position, branch, events, jq, outcome)
        if not concerned:
            continue
        taken = events if len(concerned) == len(events) else events.take(concerned)
        results: dict[str, Sequence[Any]] = {}
        keys: dict[tuple[str, ...], Keys | None] = {}
        for table in branch.tables:
            for update in table.updates:
                for program in (*update.key, update.value):
                    if program not in results:
                        results[program] = jq.evaluate(program, taken)
                if update.key not in keys:
                    keys[update.key] = _plain_keys([results[program] for program in update.key])
                plain = keys[update.key]
                outcome.updates.append(_evaluated(table.table, update, concerned, results, plain, outcome))
    return outcome


def _matching_events(position: int, branch: Branch, events: Events, jq: Jq, outcome: Outcome) -> Sequence[int]:
    """Return the positions of the events that satisfy the condition of a branch."""
    condition = branch.condition
    if condition is None:
        return range(len(events))
    results = jq.evaluate(condition, events)
    if set(map(type, results)) <= {bool}:
        return [at for at, value in enumerate(results) if value]
    concerned = []
    for at, value in enumerate(results):
        reason = _not_one(value, "the condition")
        if reason:
            outcome.refusals.append(Refusal(at, f"branch {position + 1}", condition, reason))
        elif value is not None and value is not False and type(value) is not Several:
            concerned.append(at)
    return concerned


class Keys(Sequence[Key]):
    """Keys as columns, one for each part."""

    __slots__ = ("columns",)

    def __init__(self, columns: Sequence[Sequence[Any]]):
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __iter__(self) -> Iterator[Key]:
        return zip(*self.columns, strict=True)

    def __getitem__(self, at: Any) -> Any:
        return list(self)[at] if isinstance(at, slice) else tuple(column[at] for column in self.columns)


def _plain_keys(columns: Sequence[Sequence[Any]]) -> Keys | None:
    """Return the keys, if every event has one without errors; else None."""
    return Keys(columns) if all(set(map(type, column)) <= _KEYS for column in columns) else None


def _evaluated(
    table: str,
    update: Update,
    concerned: Sequence[int],
    known: dict[str, Sequence[Any]],
    keys: Keys | None,
    outcome: Outcome,
) -> EvaluatedUpdate:
    values = known[update.value]
    number = update.number
    if keys is not None and not {Several, Refused} & set(map(type, values)):
        return EvaluatedUpdate(table, update, concerned, keys, values, [number] * len(values))
    columns = [known[program] for program in update.key]
    rule = f"update {number + 1} ({table}.{update.column})"
    rows: list[tuple[int, Key, Any, int]] = []
    for at, key, value in zip(concerned, zip(*columns, strict=True), values, strict=True):
        broken = _failed_program(update, key, value)
        if broken:
            outcome.refusals.append(Refusal(at, rule, *broken))
        elif not any(type(part) is Several for part in key):
            results = value.values if type(value) is Several else (value,)
            rows += [(at, key, parameter, number + order * MOST_UPDATES) for order, parameter in enumerate(results)]
    events, own, parameters, numbers = (
        (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
    )
    return EvaluatedUpdate(table, update, events, own, parameters, numbers)


def _failed_program(update: Update, key: tuple[Any, ...], value: Any) -> tuple[str, str] | None:
    """Return the program that failed for an event and the reason; None if none did."""
    for program, part in zip(update.key, key, strict=True):
        reason = _not_one(part, "the key")
        if reason is None and type(part) in _KINDS:
            reason = f"the key is {_KINDS[type(part)]}; it must be a text, a number or a boolean"
        if reason is not None:
            return program, reason
    return (update.value, value.reason) if type(value) is Refused else None


def _not_one(value: Any, what: str) -> str | None:
    if type(value) is Refused:
        return str(value.reason)
    if type(value) is Several and value.values:
        return f"{what} gives {len(value.values)} results, not one"
    return None
