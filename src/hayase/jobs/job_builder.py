"""Declaration of jobs in Python: the object that `p.job(...)` returns. Its decorators and methods add steps.

job = p.job("traffic", reads="logs", every="2 seconds")

@job.map
def parse(record):
    yield record["status"], 1

job.reduce("sum")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from hayase.core.declarations import JobDeclaration, StepDeclaration
from hayase.core.errors import DeclarationError
from hayase.core.function_sources import source_of
from hayase.core.job_data import is_function
from hayase.core.plain_data import names
from hayase.core.times import duration

__all__ = ["Duration", "Job"]

Duration = str | int | timedelta
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Names = str | Sequence[str]


class Job:
    """A job during its declaration. `changed` is called with the declaration after every step; a decorated function is returned
    unchanged. `directory` contains the modules of functions that are given by name.

    Every step takes `reads` (a stream, a group, or several), `writes` (the group of its tuples, unless they go to the next
    step), `also` (further groups to which it emits with `hy.to`), and `attempts`.
    """

    def __init__(
        self,
        name: str,
        reads: _Names,
        every: Duration = "1 second",
        *,
        rounds: int | None = None,
        directory: str | None = None,
        changed: Callable[[JobDeclaration], None] | None = None,
    ) -> None:
        self._name, self._reads, self._every, self._rounds = name, names(reads), duration(every), rounds
        self._directory, self._changed = directory, changed
        self._steps: tuple[StepDeclaration, ...] = ()

    @property
    def declaration(self) -> JobDeclaration:
        """The declaration with the steps so far."""
        return JobDeclaration(self._name, self._reads, self._every, self._steps, self._rounds)

    def _add(self, step: StepDeclaration) -> None:
        steps, self._steps = self._steps, (*self._steps, step)
        try:
            declared = self.declaration
            if self._changed is not None:
                self._changed(declared)
        except DeclarationError:
            self._steps = steps
            raise

    def _step(self, kind: str, function: _Function | str | None, options: dict[str, Any]) -> Any:
        """Add a step with a function or its name; without one, return a decorator that adds it."""
        if isinstance(function, str):
            self._add(StepDeclaration(kind, function, self._directory, **options))
            return None

        def decorated(user_function: _Function) -> _Function:
            source = source_of(user_function)
            self._add(StepDeclaration(kind, source.name, source.directory, **options))
            return user_function

        return decorated if function is None else decorated(function)

    def map(
        self,
        function: Any = None,
        *,
        schema: str | None = None,
        key: _Names = (),
        batches: bool = False,
        reads: _Names = (),
        writes: str | None = None,
        also: _Names = (),
        attempts: int = 1,
    ) -> Any:
        """Add a step that takes a record (a dict) and returns tuples. With a `schema`, tuples are dicts of its columns, grouped by
        `key`; with `batches`, it takes and returns Arrow batches."""
        options = {"schema": schema, "key": names(key), "batches": batches, **_flow(reads, writes, also, attempts)}
        return self._step("map", function, options)

    def reduce(
        self,
        function: Any = None,
        *,
        schema: str | None = None,
        key: _Names = (),
        batches: bool = False,
        window: Duration | None = None,
        every: Duration | None = None,
        order: str | None = None,
        reads: _Names = (),
        writes: str | None = None,
        also: _Names = (),
        attempts: int = 1,
        aggregates: Mapping[str, str] | None = None,
        **more_aggregates: str,
    ) -> Any:
        """Add a step that takes a key and its values and returns tuples; or an aggregate, "count", or several named ones,
        `hits="count(*)", bytes="sum(size)"` (in `aggregates` if a name is also a parameter of this method). With a `window` and its
        interval `every`, it slides over event time. With `order="time"`, values are in the order of their times."""
        named = tuple({**(aggregates or {}), **more_aggregates}.items())
        options = {
            "schema": schema, "key": names(key), "batches": batches, "order": order,
            "window": None if window is None else duration(window), "every": None if every is None else duration(every),
            **_flow(reads, writes, also, attempts),
        }  # fmt: skip
        if isinstance(function, str) and not is_function(function):
            named, function = (("", function), *named), None
        if named:
            name = None if function is None else function if isinstance(function, str) else source_of(function).name
            return self._add(StepDeclaration("reduce", name, aggregates=named, **options))
        return self._step("reduce", function, options)

    def merge(
        self,
        table: str,
        function: Any = None,
        *,
        side: str = "left",
        schema: str | None = None,
        key: _Names = (),
        batches: bool = False,
        order: str | None = None,
        reads: _Names = (),
        writes: str | None = None,
        also: _Names = (),
        attempts: int = 1,
    ) -> Any:
        """Add a step that takes a key, its new values and the stored row of the table (a dict, None if there is none) and returns
        tuples: for keys with new values (`side="left"`), for all stored keys ("right"), or for "both"."""
        options = {
            "table": table, "side": side, "schema": schema, "key": names(key), "batches": batches, "order": order,
            **_flow(reads, writes, also, attempts),
        }  # fmt: skip
        return self._step("merge", function, options)


def _flow(reads: _Names, writes: str | None, also: _Names, attempts: int) -> dict[str, Any]:
    return {"reads": names(reads), "writes": writes, "also": names(also), "attempts": attempts}
