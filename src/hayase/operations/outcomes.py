"""The result of calling a function on windows: rows, or a failure for each window that failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from typing import Any

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.reasons import ReasonKind

__all__ = ["DEADLY", "KINDS", "Call", "Failure", "Outcomes", "Request"]

KINDS = {
    "raised": "it raised an exception",
    "unfit": "what it gave does not fit the schema of the output",
    "memory": "it asked for more memory than the limit allows",
    "time": "it took longer than the limit allows",
    "exited": "it ended the process",
    "crashed": "it made the process crash",
    "killed": "the process was ended from outside",
}
"""The ways in which a call can fail."""
DEADLY = frozenset(["time", "exited", "crashed", "killed"])
"""The kinds of failure that end the process before finished results are handed over."""
_REASON_KINDS = {
    "raised": ReasonKind.FUNCTION,
    "unfit": ReasonKind.RESULT,
    "memory": ReasonKind.MEMORY,
    "time": ReasonKind.TIMEOUT,
    "exited": ReasonKind.CRASH,
    "crashed": ReasonKind.CRASH,
    "killed": ReasonKind.CRASH,
}

_MOST_TEXT = 12_000
"""Characters of a traceback that are kept: the first quarter and the rest from the end."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How a call failed: one of `KINDS`, a sentence, and where it happened, as far as known."""

    kind: str
    reason: str
    function: str | None = None
    line: int | None = None
    traceback: str = ""

    def __post_init__(self) -> None:
        if len(self.traceback) > _MOST_TEXT:
            head, tail = self.traceback[: _MOST_TEXT // 4], self.traceback[-_MOST_TEXT * 3 // 4 :]
            object.__setattr__(self, "traceback", f"{head}\n  ...\n{tail}")

    @property
    def place(self) -> str:
        """Where it happened, as the end of a sentence.

        >>> Failure("raised", "ValueError: x", "score", 12).place
        ' in score, line 12'
        """
        return "" if self.function is None else f" in {self.function}, line {self.line}"

    @property
    def reason_kind(self) -> ReasonKind:
        """The kind of the dead letters of the records."""
        return _REASON_KINDS[self.kind]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Failure:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The rows that windows returned, in window order; `counts[i]` of them belong to window i.

    Windows in `failures`, by number, have no rows. `nanoseconds` is the time the function spent on each window, failed
    or not, if it is known.
    """

    rows: pa.Table
    counts: np.ndarray
    failures: Mapping[int, Failure] = field(default_factory=dict)
    nanoseconds: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Request:
    """Windows to call: window i has the rows [`starts[i]`, `stops[i]`).

    With `alone`, each window is answered separately, otherwise in groups. With `careful`, no window is called after a
    failed one in the same process.
    """

    rows: pa.RecordBatch
    starts: np.ndarray
    stops: np.ndarray
    alone: bool = False
    careful: bool = False


Call = Callable[[np.ndarray, np.ndarray, bool], Outcomes]
"""Calls a function on windows: window i has the records [`starts[i]`, `stops[i]`). If the third argument (careful) is
true, the function is restarted after each failed window."""
