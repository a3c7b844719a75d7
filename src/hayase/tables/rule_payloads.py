"""What events cause by the rules of their source: for each update the events, keys and parameters.

An event that breaks one rule is refused for that rule only. In detail:

- a condition that gives false, null or nothing: the branch does not concern the event. More than one result is refused,
  for it is not clear which counts (`any(...)` makes one of them);
- a key is one text, number or boolean for each of its parts. Null, arrays, objects and several results are refused;
  no result at all (`.user // empty`) means: not this event;
- the value may give any number of results, none included. Each is a payload of its own: `.items[]` adds every item to a
  set. Each needs a version of its own, so payloads are numbered: the update's number for the first result, and
  65,536 more for each that follows. Null is a value like any other; the type of the column judges it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from hayase.tables.jq import Events, Jq, Refused, Several
from hayase.tables.rules import MOST_UPDATES, Branch, RuleSet, Update

__all__ = ["EvaluatedUpdate", "Keys", "Outcome", "Payload", "Refusal", "payloads"]

Key: TypeAlias = tuple[str | bool | int | float | Decimal, ...]
_KEYS = {str, bool, int, float, Decimal}
_KINDS = {type(None): "null", list: "an array", dict: "an object"}


class Payload(NamedTuple):
    """One update that one event causes."""

    table: str
    key: Key
    column: str
    method: str | None
    parameter: Any
    number: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """An event that broke a rule: its position, the rule, the program of it that failed, and the reason."""

    event: int
    rule: str
    program: str
    reason: str


@dataclass(frozen=True, slots=True)
class EvaluatedUpdate:
    """What one update makes of the events: lists of equal length. `numbers` are for the versions."""

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
    """What a batch of events causes."""

    events: int
    updates: list[EvaluatedUpdate] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    def by_event(self) -> list[list[Payload]]:
        """The payloads of each event, in the order of the updates."""
        found: list[list[Payload]] = [[] for _ in range(self.events)]
        for each in self.updates:
            update = each.update
            for event, key, parameter, number in zip(
                each.events, each.keys, each.parameters, each.numbers, strict=True
            ):
                payload = Payload(each.table, key, update.column, update.method, parameter, number)
                found[event].append(payload)
        return found


def payloads(rules: RuleSet, source: str, events: Events, jq: Jq) -> Outcome:
    """What the events of a source cause.

    >>> from hayase.tables.rules import SourceRules, TableRules
    >>> total = TableRules("users", (Update(0, (".user",), "total", ".amount", "incr"),))
    >>> rules = RuleSet((SourceRules("sales", (Branch(".amount != 0", (total,)),)),))
    >>> payloads(rules, "sales", Events([{"user": "taro", "amount": 5}]), Jq()).by_event()[0][0]
    Payload(table='users', key=('taro',), column='total', method='incr', parameter=5, number=0)
    """
    outcome = Outcome(len(events))
    for position, branch in enumerate(rules.branches(source)):
        concerned = _concerned(position, branch, events, jq, outcome)
        if not concerned:
            continue
        taken = events if len(concerned) == len(events) else events.take(concerned)
        known: dict[str, Sequence[Any]] = {}
        keys: dict[tuple[str, ...], Keys | None] = {}
        for table in branch.tables:
            for update in table.updates:
                for program in (*update.key, update.value):
                    if program not in known:
                        known[program] = jq.evaluate(program, taken)
                if update.key not in keys:
                    keys[update.key] = _plain_keys([known[program] for program in update.key])
                plain = keys[update.key]
                outcome.updates.append(_updates(table.table, update, concerned, known, plain, outcome))
    return outcome


def _concerned(position: int, branch: Branch, events: Events, jq: Jq, outcome: Outcome) -> Sequence[int]:
    """The positions of the events that fulfil the condition of a branch."""
    condition = branch.condition
    if condition is None:
        return range(len(events))
    found = jq.evaluate(condition, events)
    if set(map(type, found)) <= {bool}:
        return [at for at, value in enumerate(found) if value]
    concerned = []
    for at, value in enumerate(found):
        reason = _not_one(value, "the condition")
        if reason:
            outcome.refusals.append(Refusal(at, f"branch {position + 1}", condition, reason))
        elif value is not None and value is not False and type(value) is not Several:
            concerned.append(at)
    return concerned


class Keys(Sequence[Key]):
    """Keys of which the parts are known as columns."""

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
    """The keys, if every event has one."""
    return Keys(columns) if all(set(map(type, column)) <= _KEYS for column in columns) else None


def _updates(
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
    made: list[tuple[int, Key, Any, int]] = []
    for at, key, value in zip(concerned, zip(*columns, strict=True), values, strict=True):
        broken = _broken(update, key, value)
        if broken:
            outcome.refusals.append(Refusal(at, rule, *broken))
        elif not any(type(part) is Several for part in key):
            found = value.values if type(value) is Several else (value,)
            made += [(at, key, each, number + order * MOST_UPDATES) for order, each in enumerate(found)]
    events, own, parameters, numbers = (list(each) for each in zip(*made, strict=True)) if made else ([], [], [], [])
    return EvaluatedUpdate(table, update, events, own, parameters, numbers)


def _broken(update: Update, key: tuple[Any, ...], value: Any) -> tuple[str, str] | None:
    """The program that an event breaks, and the reason."""
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
