"""Errors of users' functions as they are told: what, where, and the traceback without the frames of Hayase itself."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path
from types import TracebackType

from hayase.core.function_sources import FunctionSource

__all__ = ["EXPLAINED", "failure"]

EXPLAINED = 100
"""Of the failures of a batch, how many are told with their tracebacks; the others with the error and its place."""
_HERE = str(Path(__file__).parent)


def failure(source: FunctionSource, attempts: int, error: BaseException, explained: bool) -> str:
    """An error, where it was raised and, if it is to be explained, the traceback without the frames of Hayase itself."""
    told = traceback.TracebackException(type(error), error, _outside(error.__traceback__), compact=True)
    what = "".join(told.format_exception_only()).strip().partition("\n")[0][:1000]
    frames = [each for each in told.stack if each.filename == _file_of(source)] or list(told.stack)
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    tries = f" in {attempts} attempts" if attempts > 1 else ""
    reason = f"{source.attribute} raised {what}{place}{tries}"
    return reason + "\n" + "".join(told.format()).rstrip() if explained else reason


def _file_of(source: FunctionSource) -> str | None:
    code = getattr(inspect.unwrap(source.load()), "__code__", None)
    return code.co_filename if code else None


def _outside(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame on that is not in this package."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE):
        trace = trace.tb_next
    return trace
