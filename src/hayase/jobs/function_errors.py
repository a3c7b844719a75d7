"""Messages for errors in users' functions: what, where, and the traceback without Hayase's own frames."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path
from types import TracebackType

from hayase.core.function_sources import FunctionSource
from hayase.core.reasons import Reason, ReasonKind

__all__ = ["EXPLAINED", "failure"]

EXPLAINED = 100
"""How many failures of a batch have their traceback in the message; the others have the error and its place."""
_HERE = str(Path(__file__).parent)


def failure(source: FunctionSource, attempts: int, error: BaseException, explained: bool) -> Reason:
    """Return the reason for an error: what and where and, if `explained`, the traceback without Hayase's own frames."""
    report = traceback.TracebackException(type(error), error, _outside(error.__traceback__), compact=True)
    what = "".join(report.format_exception_only()).strip().partition("\n")[0][:1000]
    frames = [frame for frame in report.stack if frame.filename == _file_of(source)] or list(report.stack)
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    tries = f" in {attempts} attempts" if attempts > 1 else ""
    reason = f"{source.attribute} raised {what}{place}{tries}"
    if explained:
        reason += "\n" + "".join(report.format()).rstrip()
    return Reason(ReasonKind.FUNCTION, reason)


def _file_of(source: FunctionSource) -> str | None:
    code = getattr(inspect.unwrap(source.load()), "__code__", None)
    return code.co_filename if code else None


def _outside(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the first frame outside of this package."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE):
        trace = trace.tb_next
    return trace
