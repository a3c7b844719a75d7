"""Calls of a function that gives tuples, one after the other, and all that they gave, in columns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import GeneratorType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from hayase.core.errors import nearest
from hayase.jobs.emitted_tuples import Emission, Emitted, is_pair, kind_of, no_tuple, unfit_for_table
from hayase.jobs.function_errors import EXPLAINED, failure
from hayase.jobs.tuples import Unfit, key_column, typed_columns, value_column
from hayase.streams.record_text import shown

if TYPE_CHECKING:
    from hayase.jobs.step_functions import Step

__all__ = ["Calls"]


class Calls:
    """Calls of a function that gives tuples, one after the other."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.items: list[Any] = []
        self.ends: list[int] = []
        self.failed: dict[int, str] = {}

    def make(self, arguments: Iterable[tuple[Any, ...]]) -> None:
        function = self.step.source.load()
        items, ended = self.items, self.ends.append
        for argument in arguments:
            begun = len(items)
            try:
                given = function(*argument)
                kind = type(given)
                if kind is GeneratorType or kind is list:
                    items.extend(given)
                elif kind is tuple or kind is dict or kind is Emitted:
                    items.append(given)
                elif given is not None:
                    items.extend(_iterated(given))
            except (Exception, SystemExit) as error:
                del items[begun:]
                self._again(function, argument, error)
            ended(len(items))

    def _again(self, function: Callable[..., Any], argument: tuple[Any, ...], error: BaseException) -> None:
        """The attempts that are left; if none succeeds, the last error counts."""
        for _ in range(1, self.step.attempts):
            begun = len(self.items)
            try:
                given = function(*argument)
                self.items.extend(() if given is None else _iterated(given))
            except (Exception, SystemExit) as latest:
                del self.items[begun:]
                error = latest
            else:
                return
        explained = len(self.failed) < EXPLAINED
        if isinstance(error, Unfit):
            self.failed[len(self.ends)] = f"{self.step.source.attribute}: {error}"
        else:
            self.failed[len(self.ends)] = failure(self.step.source, self.step.attempts, error, explained)

    def emission(self) -> Emission:
        """All that the calls gave, as columns."""
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
        """The target of each item, which is then a tuple or a dict alone."""
        targets = self.step.targets
        target = np.zeros(len(self.items), np.int64)
        if Emitted in set(map(type, self.items)):
            numbers = {each.name: at for at, each in enumerate(targets)}
            for at, item in enumerate(self.items):
                if type(item) is Emitted:
                    self.items[at] = item.given
                    number = numbers.get(item.group) if isinstance(item.group, str) else None
                    if number is None:
                        known = [each.name for each in targets if each.name]
                        reason = f"it emits to the group {shown(item.group)}, and does not say also= that it does"
                        self._fail(int(call[at]), reason + nearest(str(item.group), known))
                    target[at] = number or 0
        for at in np.flatnonzero(np.isin(target, [at for at, each in enumerate(targets) if each.table])).tolist():
            unfit = unfit_for_table(self.items[at], targets[target[at]].table)
            if unfit:
                self._fail(int(call[at]), unfit)
        return target

    def _fail(self, call: int, reason: str) -> None:
        self.failed.setdefault(call, f"{self.step.source.attribute}: {reason}")

    def _columns(self) -> tuple[list[pa.Array], dict[int, str]]:
        """The columns of all items, or what is wrong with some of them."""
        items, shape, kinds = self.items, self.step.shape, set(map(type, self.items))
        if shape.plain:
            if not (kinds <= {tuple} and set(map(len, items)) <= {2}):
                wrong = {at: no_tuple(item) for at, item in enumerate(items) if not is_pair(item)}
                if wrong:
                    return [], wrong
            keys, wrong = key_column([each[0] for each in items])
            values, more = value_column([each[1] for each in items])
            return [keys, values], {**more, **wrong}
        if not kinds <= {dict}:
            expected = f"give a dict of the columns {', '.join(shape.schema.names)}, a list of such, or None"
            no_dicts = [at for at, item in enumerate(items) if not isinstance(item, Mapping)]
            if no_dicts:
                return [], {at: f"it gave {kind_of(items[at])}; {expected}" for at in no_dicts}
        return typed_columns(items, shape.schema)


def _iterated(given: Any) -> Iterable[Any]:
    """What a function gave that is no list: an iterator of tuples, or nonsense."""
    if isinstance(given, tuple | dict):
        return [given]
    if inspect.iscoroutine(given):
        given.close()
    if isinstance(given, str | bytes | bytearray | Mapping) or not isinstance(given, Iterable):
        raise Unfit(f"it gave {kind_of(given)}; give a tuple, a list of tuples, or None, or yield tuples")
    return list(given)
