"""Jobs declared in Python: the object behind `p.job(...)`, whose decorators and methods collect steps.

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
    """A job while it is declared. `changed` is told the declaration after every step; a decorated function stays as it is.
    `directory` is where modules lie whose functions are given by name.

    Every step takes `reads` (a stream, a group, or several), `writes` (the group of its tuples, if they do not go to the next
    step), `also` (groups that it names itself by `hy.to`), and `attempts`.
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
        """The job as it is declared so far."""
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
        """Add the step of a function or of its name; without one, a decorator that will."""
        if isinstance(function, str):
            self._add(StepDeclaration(kind, function, self._directory, **options))
            return None

        def decorated(given: _Function) -> _Function:
            source = source_of(given)
            self._add(StepDeclaration(kind, source.name, source.directory, **options))
            return given

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
        """A step that takes a record (a dict) and gives tuples. With a `schema` these are dicts of its columns, grouped by
        `key`; with `batches` it takes and gives Arrow batches."""
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
        """A step that takes a key and its values and gives tuples; or an aggregate, "count", or several by their names,
        `hits="count(*)", bytes="sum(size)"` (in `aggregates` if a name means something else here). With a `window` and its
        interval `every`, it slides over event time. `order="time"`: values come in the order of their times."""
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
        """A step that takes a key, its new values and the stored row of the table (a dict, None if there is none), and gives
        tuples: for keys that came (`side="left"`), for all that are stored ("right"), or for "both"."""
        options = {
            "table": table, "side": side, "schema": schema, "key": names(key), "batches": batches, "order": order,
            **_flow(reads, writes, also, attempts),
        }  # fmt: skip
        return self._step("merge", function, options)


def _flow(reads: _Names, writes: str | None, also: _Names, attempts: int) -> dict[str, Any]:
    return {"reads": names(reads), "writes": writes, "also": names(also), "attempts": attempts}
