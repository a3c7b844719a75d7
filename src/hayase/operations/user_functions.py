"""The user's function: it takes one window of records, and is found by its name (`hayase.core.function_sources`).

    def score(records):                                   # a list of dicts, oldest first
        return {"user": records[0]["user"], "mean": sum(record["x"] for record in records) / len(records)}

    def rank(batch: pa.RecordBatch) -> pa.RecordBatch:    # or an Arrow batch, if the annotation says so
        return batch.append_column("rank", ...)

It returns a record (a dict), several (a list, any iterable), an Arrow batch or table, or None for no record. It may be a
generator, a coroutine function or an asynchronous generator, which is run to its end.
"""

from __future__ import annotations

import asyncio
import inspect
import sysconfig
import traceback
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError, nearest
from hayase.core.function_sources import FunctionSource
from hayase.operations.outcomes import Failure
from hayase.streams.record_text import shown

__all__ = ["TAKES", "Function", "OperationFunction", "Returned", "Unfit", "Window", "failure_of"]

TAKES = ("records", "batch")
"""What a function can take: a list of dicts, or an Arrow batch."""

Returned: TypeAlias = "list[dict[str, Any]] | pa.RecordBatch"
"""What a function returned, collected."""

Window: TypeAlias = "Sequence[Mapping[str, Any]] | pa.RecordBatch"
"""What a function is called with."""
T = TypeVar("T")

_HERE = str(Path(__file__).parent)
_LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))


class Unfit(Exception):
    """What a function returned is not a record, or does not fit the output."""


@dataclass(frozen=True, slots=True)
class OperationFunction:
    """The function of an operation: where it is, and what it takes, if its annotations should not decide.

    An asynchronous function may work on up to `together` windows concurrently.
    """

    source: FunctionSource
    takes: str | None = None
    together: int = 16

    def __post_init__(self) -> None:
        if self.takes is not None and self.takes not in TAKES:
            raise DeclarationError(f'no function takes "{self.takes}"{nearest(self.takes, TAKES)}')
        if self.together < 1:
            raise DeclarationError(f"{self.together} windows at once are none", "give 1 or more")

    @property
    def name(self) -> str:
        """Where it is found, as text."""
        return self.source.name

    def load(self) -> Function:
        """Load the function, which runs the code of its module; DeclarationError if it cannot be loaded."""
        function = self.source.load()
        asynchronous = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        return Function(function, self.takes or _taken(self.name, function), self.together if asynchronous else 1)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> OperationFunction:
        return cls(**{**data, "source": FunctionSource(**data["source"])})


def _taken(name: str, function: Callable[..., Any]) -> str:
    """Return what a function takes, by the annotation of its only parameter."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # written in C
        return "records"
    needed = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind not in (2, 3, 4)
    ]
    positional = [parameter for parameter in parameters if parameter.kind in (0, 1, 2)]
    if not positional or len(needed) > 1 or any(parameter.kind is parameter.KEYWORD_ONLY for parameter in needed):
        raise DeclarationError(f"{name} must take one argument, the records of a window", "def score(records): ...")
    annotation = positional[0].annotation
    type_name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return "batch" if type_name.rpartition(".")[2] == "RecordBatch" else "records"


class Function:
    """A loaded function: `on` calls it and collects its results. It works on up to `together` windows concurrently."""

    def __init__(self, function: Callable[[Any], Any], takes: str, together: int = 1) -> None:
        self.takes, self.together = takes, together
        self._function = function
        self._loop: asyncio.AbstractEventLoop | None = None

    def on(self, window: Window) -> Returned:
        """Return the function's results for a window. Raises what it raises, and `Unfit` for what is not a record."""
        result = self._function(window)
        kind = type(result)
        if kind is dict:
            return [result]
        if result is None:
            return []
        if kind is not list and _is_asynchronous(result):
            result = self._run(_ended(result))
        return _gathered(result)

    def on_several(self, windows: Sequence[Window]) -> list[Returned | BaseException]:
        """Return the results of an asynchronous function for windows that run concurrently, or what it raised."""

        async def one(window: Window) -> Returned | BaseException:
            try:
                return _gathered(await _ended(self._function(window)))
            except BaseException as error:
                return error

        async def every() -> list[Returned | BaseException]:
            return await asyncio.gather(*map(one, windows))

        return self._run(every())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end. The event loop is kept, and with it connections that were opened in it."""
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        """Close the event loop, if there is one."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None


def _is_asynchronous(returned: Any) -> bool:
    return inspect.isawaitable(returned) or hasattr(returned, "__aiter__")


async def _ended(returned: Any) -> Any:
    if hasattr(returned, "__aiter__"):
        return [record async for record in returned]
    return await returned if inspect.isawaitable(returned) else returned


def _gathered(returned: Any) -> Returned:
    if returned is None:
        return []
    if isinstance(returned, Mapping):
        return [dict(returned)]
    if isinstance(returned, pa.Table):
        batches = returned.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=returned.schema)
    if isinstance(returned, pa.RecordBatch):
        return returned
    if isinstance(returned, (str, bytes, bytearray)) or not isinstance(returned, Iterable):
        raise Unfit(f"it gave {shown(returned)}; give a record (a dict), a list of records, an Arrow batch, or None")
    records = returned if type(returned) is list else list(returned)
    for position, record in enumerate(records):
        if type(record) is not dict:
            if not isinstance(record, Mapping):
                raise Unfit(f"it gave {shown(record)} among its records; a record is a dict")
            records[position] = dict(record)
    return records


_known_failures: dict[Any, Failure] = {}
_MOST_KNOWN = 256
_PLAIN = (BaseException.__str__, KeyError.__str__)


def failure_of(error: BaseException) -> Failure:
    """Return the failure for an exception, without the frames of Hayase itself.

    Failures are cached by exception and place: a retried call usually fails in the same way.
    """
    if isinstance(error, Unfit):
        return Failure("unfit", str(error))
    trace = _outside(error.__traceback__)
    key = _sameness(error, trace)
    failure = None if key is None else _known_failures.get(key)
    if failure is None:
        failure = _in_words(error, trace)
        if key is not None:
            if len(_known_failures) >= _MOST_KNOWN:
                _known_failures.clear()
            _known_failures[key] = failure
    return failure


def _sameness(error: BaseException, trace: TracebackType | None) -> Any:
    """Return a key under which equal exceptions have equal failures; None if the exception is not simple enough."""
    kind = type(error)
    if kind.__str__ not in _PLAIN or not all(type(argument) in (str, int) for argument in error.args):
        return None
    if error.__cause__ or error.__context__ or hasattr(error, "__notes__"):
        return None
    places = []
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append((code.co_filename, code, trace.tb_lasti))
        trace = trace.tb_next
    return kind, error.args, tuple(places)


def _in_words(error: BaseException, trace: TracebackType | None) -> Failure:
    summary = traceback.TracebackException(type(error), error, trace, compact=True)
    text = "".join(summary.format()).rstrip()
    reason = "".join(summary.format_exception_only()).strip().partition("\n")[0][:1000]
    outside = [frame for frame in summary.stack if not frame.filename.startswith(_LIBRARIES)]
    place = outside[-1] if outside else summary.stack[-1] if summary.stack else None
    kind = "memory" if isinstance(error, MemoryError) else "raised"
    return Failure(kind, reason, place.name if place else None, place.lineno if place else None, text)


def _outside(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback after the last frame of this package."""
    outside = trace
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(_HERE):
            outside = trace.tb_next
        trace = trace.tb_next
    return outside
