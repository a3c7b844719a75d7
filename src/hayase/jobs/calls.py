"""Calls a step's function once per record or group, and converts the tuples that it returns into columns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import GeneratorType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from hayase.core.errors import nearest
from hayase.core.reasons import Reason, ReasonKind
from hayase.jobs.emitted_tuples import Emission, Emitted, is_pair, kind_of, unfit_for_table, why_no_tuple
from hayase.jobs.function_errors import EXPLAINED, failure
from hayase.jobs.tuples import Unfit, key_column, typed_columns, value_column
from hayase.streams.record_text import shown

if TYPE_CHECKING:
    from hayase.jobs.step_functions import Step

__all__ = ["Calls"]


class Calls:
    """The calls of a step's function in one batch, with their tuples and failures."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.items: list[Any] = []
        self.ends: list[int] = []
        self.failed: dict[int, Reason] = {}

    def make(self, arguments: Iterable[tuple[Any, ...]]) -> None:
        function = self.step.source.load()
        items, ended = self.items, self.ends.append
        for argument in arguments:
            begun = len(items)
            try:
                result = function(*argument)
                kind = type(result)
                if kind is GeneratorType or kind is list:
                    items.extend(result)
                elif kind is tuple or kind is dict or kind is Emitted:
                    items.append(result)
                elif result is not None:
                    items.extend(_as_tuples(result))
            except (Exception, SystemExit) as error:
                del items[begun:]
                self._retry(function, argument, error)
            ended(len(items))

    def _retry(self, function: Callable[..., Any], argument: tuple[Any, ...], error: BaseException) -> None:
        """Make the remaining attempts; if none succeeds, note the last error as the failure of the call."""
        for _ in range(1, self.step.attempts):
            begun = len(self.items)
            try:
                result = function(*argument)
                self.items.extend(() if result is None else _as_tuples(result))
            except (Exception, SystemExit) as latest:
                del self.items[begun:]
                error = latest
            else:
                return
        explained = len(self.failed) < EXPLAINED
        if isinstance(error, Unfit):
            self._fail(len(self.ends), str(error))
        else:
            self.failed[len(self.ends)] = failure(self.step.source, self.step.attempts, error, explained)

    def emission(self) -> Emission:
        """Return the tuples of all calls as columns, without those of calls that failed."""
        ends = np.array([0, *self.ends], np.int64)
        call = np.repeat(np.arange(len(ends) - 1), ends[1:] - ends[:-1])
        target = self._targets(call)
        while True:
            if self.failed:
                call, target = self._drop_failed(call, target)
            columns, reasons = self._columns()
            if not reasons:
                return Emission(columns, call, target, dict(sorted(self.failed.items())))
            for at, reason in reasons.items():
                self._fail(int(call[at]), reason)

    def _drop_failed(self, call: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        kept = np.flatnonzero(~np.isin(call, list(self.failed)))
        self.items = [self.items[at] for at in kept.tolist()]
        return call[kept], target[kept]

    def _targets(self, call: np.ndarray) -> np.ndarray:
        """Return the target of each item, and replace items that name a group by their tuple or dict."""
        targets = self.step.targets
        target = np.zeros(len(self.items), np.int64)
        if Emitted in set(map(type, self.items)):
            numbers = {candidate.name: at for at, candidate in enumerate(targets)}
            for at, item in enumerate(self.items):
                if type(item) is Emitted:
                    self.items[at] = item.given
                    number = numbers.get(item.group) if isinstance(item.group, str) else None
                    if number is None:
                        names = [candidate.name for candidate in targets if candidate.name]
                        reason = f"it emits to the group {shown(item.group)}, and does not say also= that it does"
                        self._fail(int(call[at]), reason + nearest(str(item.group), names))
                    target[at] = number or 0
        for at in np.flatnonzero(
            np.isin(target, [at for at, candidate in enumerate(targets) if candidate.table])
        ).tolist():
            unfit = unfit_for_table(self.items[at], targets[target[at]].table)
            if unfit:
                self._fail(int(call[at]), unfit)
        return target

    def _fail(self, call: int, reason: str) -> None:
        self.failed.setdefault(call, Reason(ReasonKind.RESULT, f"{self.step.source.attribute}: {reason}"))

    def _columns(self) -> tuple[list[pa.Array], dict[int, str]]:
        """Return the columns of all items, or the reasons of those that do not fit, by position."""
        items, shape, kinds = self.items, self.step.shape, set(map(type, self.items))
        if shape.plain:
            if not (kinds <= {tuple} and set(map(len, items)) <= {2}):
                wrong = {at: why_no_tuple(item) for at, item in enumerate(items) if not is_pair(item)}
                if wrong:
                    return [], wrong
            keys, wrong = key_column([pair[0] for pair in items])
            values, value_reasons = value_column([pair[1] for pair in items])
            return [keys, values], {**value_reasons, **wrong}
        if not kinds <= {dict}:
            expected = f"give a dict of the columns {', '.join(shape.schema.names)}, a list of such, or None"
            no_dicts = [at for at, item in enumerate(items) if not isinstance(item, Mapping)]
            if no_dicts:
                return [], {at: f"it gave {kind_of(items[at])}; {expected}" for at in no_dicts}
        return typed_columns(items, shape.schema)


def _as_tuples(result: Any) -> Iterable[Any]:
    """Return the tuples of a result that is not a list; Unfit if it is neither a tuple nor an iterable of tuples."""
    if isinstance(result, tuple | dict):
        return [result]
    if inspect.iscoroutine(result):
        result.close()
    if isinstance(result, str | bytes | bytearray | Mapping) or not isinstance(result, Iterable):
        raise Unfit(f"it gave {kind_of(result)}; give a tuple, a list of tuples, or None, or yield tuples")
    return list(result)
