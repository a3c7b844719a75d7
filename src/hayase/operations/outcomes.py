"""What comes of calling a function on windows: rows, or for each window that failed, how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

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
"""Those that end the process before what it has done is handed over."""

_MOST_TEXT = 12_000
"""Characters of a traceback that are kept: of a longer one the beginning and, mostly, the end."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How a call failed: one of `KINDS`, a sentence, and where it was, as far as that is known."""

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
        """Where it was, as the end of a sentence.

        >>> Failure("raised", "ValueError: x", "score", 12).place
        ' in score, line 12'
        """
        return "" if self.function is None else f" in {self.function}, line {self.line}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Failure:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The rows that some windows gave, in the order of the windows; `counts[i]` of them are window i's.

    A window among the `failures`, which are by number, gave none. `nanoseconds` are how long the function was at work on each
    window, failed or not, if that is known.
    """

    rows: pa.Table
    counts: np.ndarray
    failures: Mapping[int, Failure] = field(default_factory=dict)
    nanoseconds: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Request:
    """Windows to be called: number i has the rows from `starts[i]` to before `stops[i]`.

    What comes of them is told of each `alone`, or in groups as it suits. With `careful` no window is called behind one that
    failed, in the same process.
    """

    rows: pa.RecordBatch
    starts: np.ndarray
    stops: np.ndarray
    alone: bool = False
    careful: bool = False


Call = Callable[[np.ndarray, np.ndarray, bool], Outcomes]
"""Calls a function on windows: window i has the records from `starts[i]` to before `stops[i]` of those at hand. If it is to be
careful, it makes the function forget what it keeps between calls whenever a window has failed."""
