"""Calls of user functions in a child process, whose failures affect nobody else.

Each process of Hayase (a Spark worker) has one *nursery*: a process started once that has imported what is needed. A
*template* is forked from it per function and imports the user's module once; a *child* forked from the template runs
the function. When a child ends, the next is forked within milliseconds; after the first loss, one is always forked
ahead.

Many windows go to the child in one request and return in a few answers, so that the overhead per window is
microseconds. The child records in shared memory which window it works on, so that a failure is still attributed to that
window alone. Windows that were finished but not handed over when a child ended are called again: results are produced
exactly once, side effects happen at least once.

- Time is wall-clock time per window, since a function may wait for another service. It is measured from outside and
  enforced by SIGKILL, so that no function can evade it.
- Memory is address space beyond what the template uses: exceeding the limit raises MemoryError where it happens.
- What a function prints goes to stderr. Processes and threads that it starts end with the child.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from dataclasses import field, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from hayase.core.child_process import STANDING_STILL, Gone, Restarts
from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError
from hayase.core.frames import Garbled
from hayase.core.schemas import arrow_schema, ddl
from hayase.operations.frames import pack_request, unpack_answer, unpack_failure
from hayase.operations.outcomes import Failure, Outcomes, Request
from hayase.operations.processes import NURSERY, Child, Template, ending, place
from hayase.operations.user_functions import OperationFunction
from hayase.operations.window_runner import GROUP, IDLE
from hayase.streams.row_buffer import ranges

__all__ = ["Children", "Limits", "shared_children"]

_MOST_WINDOWS = 4096
_MOST_BYTES = 8 << 20
"""Windows, and bytes of rows, per request: enough to amortise the overhead, few enough to send again."""
_GARBLED = Failure("crashed", "it spoiled what the process answers")
LOADING = 300.0
"""Seconds that the import of a user's module may take."""
_MOST_CARE = 3
"""After this many new children in a row whose first window fails, earlier windows are no longer assumed to be the cause."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one window may use: seconds, computing or waiting, and bytes of memory beyond what the loaded module takes.
    Time during which a busy machine kept the process from running does not count."""

    seconds: float = 30.0
    memory: int = 1 << 30

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf:
            raise DeclarationError(f"a window cannot have {self.seconds:g} seconds", "give some, but not for ever")
        if self.memory <= 0:
            raise DeclarationError(f"a window cannot have {self.memory} bytes of memory", "give more, like 1 GB")


class Delays:
    """How long the scheduler kept a process waiting between two moments, from samples of the running total.

    >>> delays = Delays(100.0, 5.0)
    >>> delays.between(101.0, 102.0, 5.5), delays.between(102.0, 104.0, 7.0)
    (0.5, 1.5)
    """

    def __init__(self, moment: float, total: float) -> None:
        self._looks = [(moment, total)]

    def between(self, since: float, now: float, total: float) -> float:
        """Return the seconds it was kept waiting since the last sample at or before `since`; `total` is the current total."""
        while len(self._looks) > 1 and self._looks[1][0] <= since:
            del self._looks[0]
        self._looks.append((now, total))
        return total - self._looks[0][1]


class _Overdue(Exception):
    """The current window, or a group of windows (see `Child.noted`), has exceeded its time limit."""

    def __init__(self, window: int) -> None:
        self.window = window


@dataclass(frozen=True, slots=True)
class _End:
    """How a child ended: the window it had noted and, if that is a single window, its failure and time.

    Otherwise one window of a group is to blame, or the child was idle, and the request is repeated. An idle child has a
    failure only if it ran out of memory.
    """

    window: int
    failure: Failure | None = None
    nanoseconds: int = 0


@dataclass(slots=True)
class _Progress:
    """The progress of a call: answers in window order, up to window number `done`, and windows that are known to fail.

    `care` counts the requests in a row whose first window failed.
    """

    tables: list[pa.Table]
    counts: list[np.ndarray] = field(default_factory=lambda: [np.empty(0, np.int64)])
    nanoseconds: list[np.ndarray] = field(default_factory=lambda: [np.empty(0, np.int64)])
    failures: dict[int, Failure] = field(default_factory=dict)
    guilty: dict[int, tuple[Failure, int]] = field(default_factory=dict)
    done: int = 0
    care: int = 0

    def add(self, outcomes: Outcomes, first: int) -> None:
        """Add an answer; the numbers of its failures count from `first`."""
        self.tables.append(outcomes.rows)
        self.counts.append(outcomes.counts)
        self.nanoseconds.append(outcomes.nanoseconds)
        self.failures.update({first + number: failure for number, failure in outcomes.failures.items()})
        self.done += len(outcomes.counts)

    def settle(self) -> None:
        """Skip windows whose failure is known already."""
        while self.done in self.guilty:
            self.failures[self.done], took = self.guilty.pop(self.done)
            self.counts.append(np.zeros(1, np.int64))
            self.nanoseconds.append(np.array([took]))
            self.done += 1


class Children:
    """A function in child processes, one at a time. Threads may share an instance; their calls are serialised.

    `reads` is the schema of the records, `writes` that of the results, None until it is known (`infer`). The field
    `ignored` is dropped from results. The import of the function's module may take `loading` seconds.
    """

    def __init__(
        self,
        function: OperationFunction,
        reads: pa.Schema,
        writes: pa.Schema | None,
        limits: Limits | None = None,
        ignored: str | None = None,
        loading: float = LOADING,
    ) -> None:
        self.function, self.limits, self.ignored, self.loading = function, limits or Limits(), ignored, loading
        self.reads = arrow_schema(ddl(reads))
        self.writes = None if writes is None else arrow_schema(ddl(writes))
        self.starts = 0
        """Number of children started so far."""
        self._lock = threading.Lock()
        self.processes = _Processes()
        self._finalizer = weakref.finalize(self, _Processes.end, self.processes)
        self._restarts = Restarts(f"the process for {function.name}")

    def close(self) -> None:
        """End the processes; the next call starts new ones."""
        with self._lock:
            self.processes.end()

    def renew(self) -> None:
        """Use a new child for the next call: what the function keeps between calls may be corrupt."""
        with self._lock:
            self._drop()

    def check(self) -> str:
        """Load the module and return what the function takes; DeclarationError if it cannot be loaded."""
        with self._lock:
            self._loaded()
            return self.processes.takes

    def call(self, rows: pa.RecordBatch, starts: np.ndarray, stops: np.ndarray, careful: bool = False) -> Outcomes:
        """Call the function on windows; window i has the rows [`starts[i]`, `stops[i]`).

        If `careful`, windows after a failed one are called in a new child, since what the function keeps between calls
        may be corrupt.
        """
        assert self.writes is not None, "the schema of the results must be known"
        progress = _Progress([self.writes.empty_table()])
        with self._lock:
            while progress.done < len(starts):
                end = _portion(rows, starts, stops, progress.done)
                self._call_portion(Request(rows, starts, stops, careful=careful), end, progress)
        counts, nanoseconds = np.concatenate(progress.counts), np.concatenate(progress.nanoseconds)
        return Outcomes(pa.concat_tables(progress.tables), counts, progress.failures, nanoseconds)

    def infer(self, rows: pa.RecordBatch, starts: np.ndarray, stops: np.ndarray) -> str:
        """Return the schema, as DDL, of the function's results for a sample; DeclarationError if it cannot be inferred."""
        with self._lock:
            failure = None
            while failure is None:
                child = self._ready()
                try:
                    child.send(b"I", pack_request(Request(rows, starts, stops)), STANDING_STILL)
                    letter, body = self._awaited(child)[0]
                    self._restarts.reset()
                    if letter == b"=":
                        return body.decode()
                    failure = unpack_failure(letter, body)
                except (Gone, _Overdue) as stopped:
                    failure = self._ended(child, stopped).failure
                except Garbled:
                    self._drop()
                    failure = _GARBLED
        details = f"{failure.reason}{failure.place}" + (f"\n{failure.traceback}" if failure.traceback else "")
        raise DeclarationError(f"{self.function.name} failed for the sample: {details}")

    def _call_portion(self, whole: Request, end: int, made: _Progress) -> None:
        """Call the windows up to `end`, in as many children as necessary."""
        alone = 0  # up to here each window is a group of its own, to find the one that ended the process
        while made.done < end:
            first, stop = made.done, min([end, *made.guilty, *([alone] if alone > made.done else [])])
            child = self._ready()
            careful = whole.careful and made.care < _MOST_CARE
            try:
                request = replace(_gathered(whole, first, stop), alone=alone > first, careful=careful)
                child.send(b"C", pack_request(request), max(STANDING_STILL, self.limits.seconds))
                while made.done < stop and child is self.processes.child:
                    for letter, body in self._awaited(child):
                        self._take(letter, body, first, stop, made)
                    if careful and not made.failures.keys().isdisjoint(range(first, made.done)):
                        self._drop()
            except (Gone, _Overdue) as stopped:
                ended = self._ended(child, stopped)
                if ended.window >= 0:
                    assert ended.failure is not None
                    made.guilty[first + ended.window] = ended.failure, ended.nanoseconds
                elif ended.window != IDLE:
                    alone = min(first + GROUP - ended.window + 1, stop)
                elif (
                    ended.failure is not None and made.done == first
                ):  # the request itself does not fit into memory: send half of it
                    end = first + (stop - first) // 2
                    if end == first:
                        made.guilty[first] = ended.failure, 0
            except Garbled:
                self._drop()
                if alone > first:
                    made.guilty[made.done] = _GARBLED, 0
                alone = stop
            made.settle()
            made.care = made.care + 1 if first in made.failures else 0

    def _take(self, letter: bytes, body: bytes, first: int, stop: int, made: _Progress) -> None:
        """Add an answer for a request of the windows [`first`, `stop`)."""
        assert self.writes is not None
        if letter != b"A":
            raise Garbled
        at, outcomes = unpack_answer(body, self.writes, stop - first)
        if first + at != made.done:
            raise Garbled
        made.add(outcomes, first)
        self._restarts.reset()
        if any(failure.kind == "memory" for failure in outcomes.failures.values()):
            self._drop()  # the process may be in any state after a MemoryError

    def _awaited(self, child: Child) -> list[tuple[bytes, bytes]]:
        """Return the next answers; raises `_Overdue` when the current window exceeds its time limit."""
        asked = time.monotonic()
        waited = Delays(asked, child.kept_waiting())
        while True:
            noted = child.noted
            since = asked if noted[0] == IDLE else noted[1] / 1e9
            most = max(STANDING_STILL, self.limits.seconds) if noted[0] == IDLE else self.limits.seconds
            now = time.monotonic()
            left = since + most - now
            if left <= 0:
                left += waited.between(since, now, child.kept_waiting())
            frames = child.frames(
                max(0.0, min(left, self.limits.seconds))
            )  # a window that begins now can be overdue by then
            if frames:
                return frames
            if left <= 0 and child.noted == noted:
                raise Gone if noted[0] == IDLE else _Overdue(noted[0])

    def _ended(self, child: Child, stopped: Gone | _Overdue) -> _End:
        """End a child that cannot continue, and return why it ended."""
        self.processes.child = None
        now = time.monotonic_ns()
        if isinstance(stopped, _Overdue):
            window, trace = stopped.window, child.trace(ask=True)
        else:
            child.settle()
            window, trace = child.noted[0], child.trace(ask=False)
        took = max(now - child.noted[1], 0)
        if isinstance(stopped, _Overdue) and window >= 0:
            child.kill()
            return _End(window, Failure("time", f"it took more than {self.limits.seconds:g} s", *place(trace)), took)
        status = child.end()
        if status is None:
            self.processes.end()
        kind, reason = ending(status)
        if window == IDLE and kind == "memory":
            return _End(IDLE, Failure(kind, reason))
        if window == IDLE:
            self._restarts.count(reason)
        if window < 0:
            return _End(window)
        return _End(window, Failure(kind, reason, *place(trace)), took)

    def _drop(self) -> None:
        """End the current child, if there is one."""
        child, self.processes.child = self.processes.child, None
        if child is not None and self.processes.owner == os.getpid():
            child.kill()

    def _ready(self) -> Child:
        """Return a child that waits for a request."""
        while True:
            template = self._loaded()
            if self.processes.child is not None:
                return self.processes.child
            try:
                child, self.processes.spare = self.processes.spare or Child(template), None
                child.started()
                self.processes.child = child
                self.starts += 1
                if self.starts > 1:  # a function that ended one child may end another
                    self.processes.spare = Child(template)
            except Gone:
                self.processes.end()
                self._restarts.count("it could not be forked")

    def _loaded(self) -> Template:
        """Return the template that has loaded the function."""
        if self.processes.owner != os.getpid():  # after a fork: the processes belong to the parent
            self.processes.forget()
        if self.processes.template is not None:
            return self.processes.template
        template = NURSERY.template()
        request = {
            "function": self.function.as_json(),
            "reads": ddl(self.reads),
            "writes": None if self.writes is None else ddl(self.writes),
            "ignored": self.ignored,
            "memory": self.limits.memory,
        }
        until = time.monotonic() + self.loading
        try:
            letter, body = template.answer(template.request(b"L", orjson.dumps(request)), self.loading)
        except Gone:
            _, how = ending(NURSERY.end(template))
            if time.monotonic() >= until:
                how = f"its import took longer than {self.loading:.3g} seconds, and was ended"
            raise DeclarationError(f"{self.function.name} cannot be loaded: {how}") from None
        if letter != b"=":
            NURSERY.end(template)
            failure = Failure.from_json(orjson.loads(body))
            raise DeclarationError(f"{failure.reason}{failure.place}")
        self.processes.template, self.processes.takes = template, orjson.loads(body)
        return template


@dataclass(slots=True)
class _Processes:
    """The processes of a function and the process that owns them. The spare is a child forked ahead."""

    template: Template | None = None
    child: Child | None = None
    spare: Child | None = None
    takes: str = ""
    owner: int = field(default_factory=os.getpid)

    def end(self) -> None:
        """End all of them."""
        if self.owner == os.getpid():
            for child in (self.child, self.spare):
                if child is not None:
                    child.kill()
            if self.template is not None:
                NURSERY.end(self.template)
        self.forget()

    def forget(self) -> None:
        """Drop the references without ending the processes."""
        self.template = self.child = self.spare = None
        self.owner = os.getpid()


_shared: weakref.WeakValueDictionary[tuple[Any, ...], Children] = weakref.WeakValueDictionary()
_sharing = threading.Lock()


def shared_children(
    function: OperationFunction, reads: pa.Schema, writes: pa.Schema, limits: Limits, ignored: str | None = None
) -> Children:
    """Return the `Children` that all callers in this process with equal arguments share; they end when unreferenced."""
    key = (os.getpid(), function, ddl(reads), ddl(writes), limits, ignored)
    with _sharing:
        children = _shared.get(key)
        if children is None:
            children = _shared[key] = Children(function, reads, writes, limits, ignored)
        return children


def _portion(rows: pa.RecordBatch, starts: np.ndarray, stops: np.ndarray, first: int) -> int:
    """Return the window at which a request that starts with window `first` ends."""
    per_row = max(rows.nbytes // max(rows.num_rows, 1), 1)
    last = min(first + _MOST_WINDOWS, len(starts))
    sizes = np.cumsum(stops[first:last] - starts[first:last])
    return first + max(int(np.searchsorted(sizes, _MOST_BYTES // per_row, side="right")), 1)


def _gathered(whole: Request, first: int, stop: int) -> Request:
    """Return a request for the windows [`first`, `stop`) with no more rows than necessary."""
    starts, stops = whole.starts[first:stop], whole.stops[first:stop]
    low, high, sizes = int(starts.min()), int(stops.max()), stops - starts
    total = int(sizes.sum())
    if total * 2 >= high - low:
        return Request(whole.rows.slice(low, high - low), starts - low, stops - low)
    ends = np.cumsum(sizes)
    return Request(whole.rows.take(pa.array(ranges(starts, stops))), ends - sizes, ends)
