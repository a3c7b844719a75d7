"""What a user writes: a function of one window of records, found by its name (`hayase.core.function_sources`).

    def score(records):                                   # a list of dicts, oldest first
        return {"user": records[0]["user"], "mean": sum(each["x"] for each in records) / len(records)}

    def rank(batch: pa.RecordBatch) -> pa.RecordBatch:    # or an Arrow batch, if the annotation says so
        return batch.append_column("rank", ...)

It gives a record (a dict), several (a list, any iterable), an Arrow batch or table, or None for nothing. It may be a
generator, a coroutine function or an asynchronous generator; then it is run until it has ended.
"""

from __future__ import annotations

import asyncio
import inspect
import sysconfig
import traceback
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

from hayase.core.errors import DeclarationError, nearest
from hayase.core.function_sources import FunctionSource
from hayase.operations.outcomes import Failure
from hayase.streams.record_text import shown

__all__ = ["TAKES", "Function", "Given", "OperationFunction", "Unfit", "Window", "failure_of"]

TAKES = ("records", "batch")
"""What a function can take: a list of dicts, or an Arrow batch."""

Given: TypeAlias = "list[dict[str, Any]] | pa.RecordBatch"
"""What a function gave, gathered."""

Window: TypeAlias = "Sequence[Mapping[str, Any]] | pa.RecordBatch"
"""What a function is called with."""
T = TypeVar("T")

_HERE = str(Path(__file__).parent)
_LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))


class Unfit(Exception):
    """What a function gave is no record, or no record of the output."""


@dataclass(frozen=True, slots=True)
class OperationFunction:
    """The function of an operation: where it is, and what it takes, if its annotations are not to decide.

    An asynchronous function may be at work on as many windows at once as `together` says.
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
        """Where it is found, in words."""
        return self.source.name

    def load(self) -> Function:
        """The function itself, or a DeclarationError that says why it cannot be had. Runs the code of its module."""
        found = self.source.load()
        asynchronous = inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found)
        return Function(found, self.takes or _taken(self.name, found), self.together if asynchronous else 1)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> OperationFunction:
        return cls(**{**data, "source": FunctionSource(**data["source"])})


def _taken(name: str, function: Callable[..., Any]) -> str:
    """What a function takes, by its one parameter."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # written in C
        return "records"
    needed = [each for each in parameters if each.default is each.empty and each.kind not in (2, 3, 4)]
    places = [each for each in parameters if each.kind in (0, 1, 2)]
    if not places or len(needed) > 1 or any(each.kind is each.KEYWORD_ONLY for each in needed):
        raise DeclarationError(f"{name} must take one argument, the records of a window", "def score(records): ...")
    said = places[0].annotation
    told = said if isinstance(said, str) else getattr(said, "__name__", "")
    return "batch" if told.rpartition(".")[2] == "RecordBatch" else "records"


class Function:
    """A function as it is called: `on` calls it and gathers what it gives. It takes up to `together` windows at once."""

    def __init__(self, function: Callable[[Any], Any], takes: str, together: int = 1) -> None:
        self.takes, self.together = takes, together
        self._function = function
        self._loop: asyncio.AbstractEventLoop | None = None

    def on(self, window: Window) -> Given:
        """What it gives for a window. Raises what it raises, and `Unfit` for what is no record."""
        given = self._function(window)
        kind = type(given)
        if kind is dict:
            return [given]
        if given is None:
            return []
        if kind is not list and _is_asynchronous(given):
            given = self._run(_ended(given))
        return _gathered(given)

    def on_several(self, windows: Sequence[Window]) -> list[Given | BaseException]:
        """What an asynchronous function gives for windows that it is at work on at once, or what it raised."""

        async def one(window: Window) -> Given | BaseException:
            try:
                return _gathered(await _ended(self._function(window)))
            except BaseException as error:
                return error

        async def every() -> list[Given | BaseException]:
            return await asyncio.gather(*map(one, windows))

        return self._run(every())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run until it has ended. The loop stays, and so do connections that were made in it."""
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        """Close the event loop, if there is one."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None


def _is_asynchronous(given: Any) -> bool:
    return inspect.isawaitable(given) or hasattr(given, "__aiter__")


async def _ended(given: Any) -> Any:
    if hasattr(given, "__aiter__"):
        return [each async for each in given]
    return await given if inspect.isawaitable(given) else given


def _gathered(given: Any) -> Given:
    if given is None:
        return []
    if isinstance(given, Mapping):
        return [dict(given)]
    if isinstance(given, pa.Table):
        batches = given.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=given.schema)
    if isinstance(given, pa.RecordBatch):
        return given
    if isinstance(given, (str, bytes, bytearray)) or not isinstance(given, Iterable):
        raise Unfit(f"it gave {shown(given)}; give a record (a dict), a list of records, an Arrow batch, or None")
    records = given if type(given) is list else list(given)
    for at, each in enumerate(records):
        if type(each) is not dict:
            if not isinstance(each, Mapping):
                raise Unfit(f"it gave {shown(each)} among its records; a record is a dict")
            records[at] = dict(each)
    return records


_told: dict[Any, Failure] = {}
_MOST_TOLD = 256
_PLAIN = (BaseException.__str__, KeyError.__str__)


def failure_of(error: BaseException) -> Failure:
    """How a call failed that raised an exception; frames of Hayase itself are left out.

    The same error from the same place is put into words once: one that is tried again mostly fails as it did.
    """
    if isinstance(error, Unfit):
        return Failure("unfit", str(error))
    trace = _outside(error.__traceback__)
    same = _sameness(error, trace)
    found = None if same is None else _told.get(same)
    if found is None:
        found = _in_words(error, trace)
        if same is not None:
            if len(_told) >= _MOST_TOLD:
                _told.clear()
            _told[same] = found
    return found


def _sameness(error: BaseException, trace: TracebackType | None) -> Any:
    """What two errors have in common of which the same is told; None if that is not known."""
    kind = type(error)
    if kind.__str__ not in _PLAIN or not all(type(each) in (str, int) for each in error.args):
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
    told = traceback.TracebackException(type(error), error, trace, compact=True)
    text = "".join(told.format()).rstrip()
    reason = "".join(told.format_exception_only()).strip().partition("\n")[0][:1000]
    outside = [each for each in told.stack if not each.filename.startswith(_LIBRARIES)]
    place = outside[-1] if outside else told.stack[-1] if told.stack else None
    kind = "memory" if isinstance(error, MemoryError) else "raised"
    return Failure(kind, reason, place.name if place else None, place.lineno if place else None, text)


def _outside(trace: TracebackType | None) -> TracebackType | None:
    """The traceback behind the last frame that is in this package."""
    outside = trace
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(_HERE):
            outside = trace.tb_next
        trace = trace.tb_next
    return outside
