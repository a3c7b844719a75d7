"""Calls of foreign functions, in a child process that may fail in any way without harm to anybody else.

A process of ours (a Spark worker) has one *nursery*: a process of its own, started once, that has imported what is
needed. From it a *template* is forked per function, which loads the user's module once; from that a *child*, in which
the function runs. When the child ends, the next one is forked, within milliseconds; from then on one is forked ahead.

Many windows go to the child in one request and come back in a few answers, so that a window costs microseconds; the child
notes in shared memory which window is under work, so that a failure is still that window's alone. Windows that were done
but not handed over when a child ended are done again: results come once, side effects at least once.

- Time is wall-clock time per window: a function may wait for another service. It is measured from outside, and ended by
  SIGKILL, so that no function can hold it up.
- Memory is address space, over what the template has: the limit is met by a MemoryError where it happens.
- What a function prints goes to stderr. What it starts (processes, threads) ends with the child.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from hayase.core.errors import DeclarationError, EnvironmentUnfit
from hayase.core.schemas import arrow_schema, ddl
from hayase.operations.frames import Garbled, pack_request, unpack_answer, unpack_failure
from hayase.operations.outcomes import Failure, Outcomes, Request
from hayase.operations.processes import MOST_STARTS, NURSERY, STANDING_STILL, Child, Gone, Template, ending, place
from hayase.operations.row_buffer import ranges
from hayase.operations.user_functions import OperationFunction
from hayase.operations.window_runner import GROUP, IDLE

__all__ = ["Children", "Limits", "shared_children"]

_MOST_WINDOWS = 4096
_MOST_BYTES = 8 << 20
"""Windows, and bytes of rows, of one request: so many that it is worth it, so few that it can be sent again."""
_GARBLED = Failure("crashed", "it spoiled what the process answers")
LOADING = 300.0
"""Seconds that the import of a user's module may take."""
_MOST_CARE = 3
"""New children in a row that fail at once: it is not what others left behind that makes them fail."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one window may cost: seconds of its own, computing or waiting for something, and bytes of memory over what the loaded
    module takes. Time for which a busy machine kept it from running does not count."""

    seconds: float = 30.0
    memory: int = 1 << 30

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf:
            raise DeclarationError(f"a window cannot have {self.seconds:g} seconds", "give some, but not for ever")
        if self.memory <= 0:
            raise DeclarationError(f"a window cannot have {self.memory} bytes of memory", "give more, like 1 GB")


class Delays:
    """How long a process was kept waiting by others, between two moments: the running total, as it was at each look.

    >>> delays = Delays(100.0, 5.0)
    >>> delays.between(101.0, 102.0, 5.5), delays.between(102.0, 104.0, 7.0)
    (0.5, 1.5)
    """

    def __init__(self, moment: float, total: float) -> None:
        self._looks = [(moment, total)]

    def between(self, since: float, now: float, total: float) -> float:
        """Seconds that it was kept waiting since then, or since the last look before that; `total` is the total now."""
        while len(self._looks) > 1 and self._looks[1][0] <= since:
            del self._looks[0]
        self._looks.append((now, total))
        return total - self._looks[0][1]


class _Overdue(Exception):
    """The window under work has had its time; or a group of them, see `Child.noted`."""

    def __init__(self, window: int) -> None:
        self.window = window


@dataclass(frozen=True, slots=True)
class _End:
    """How a child ended: what it had noted, and the failure if that was a window, which then is to blame, and its time.

    Else one of a group is to blame, or the child was idle; what was asked is to be asked again. A failure of one that was
    idle is a want of memory.
    """

    window: int
    failure: Failure | None = None
    nanoseconds: int = 0


@dataclass(slots=True)
class _Made:
    """What has come of a call: answers in the order of the windows, up to number `done`, and who is known to fail.

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
        """Take an answer; the numbers of its failures count from `first`."""
        self.tables.append(outcomes.rows)
        self.counts.append(outcomes.counts)
        self.nanoseconds.append(outcomes.nanoseconds)
        self.failures.update({first + number: failure for number, failure in outcomes.failures.items()})
        self.done += len(outcomes.counts)

    def settle(self) -> None:
        """Pass the windows whose failure is known."""
        while self.done in self.guilty:
            self.failures[self.done], took = self.guilty.pop(self.done)
            self.counts.append(np.zeros(1, np.int64))
            self.nanoseconds.append(np.array([took]))
            self.done += 1


class Children:
    """A function in child processes, one at a time. Several threads may call it; they take turns.

    `reads` is the schema of the records, `writes` that of the results, None until it is known (`infer`). A field of results
    that is `ignored` is left out. The import of the function's module may take `loading` seconds.
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
        """How many children there have been."""
        self._lock = threading.Lock()
        self._processes = _Processes()
        self._finalizer = weakref.finalize(self, _Processes.end, self._processes)
        self._in_vain = 0

    def close(self) -> None:
        """End the processes; the next call starts others."""
        with self._lock:
            self._processes.end()

    def renew(self) -> None:
        """Have a fresh child for the next call: what the function keeps between calls may be spoiled."""
        with self._lock:
            self._drop()

    def check(self) -> str:
        """Load the module; what the function takes, or a DeclarationError that says what is wrong."""
        with self._lock:
            self._loaded()
            return self._processes.takes

    def call(self, rows: pa.RecordBatch, starts: np.ndarray, stops: np.ndarray, careful: bool = False) -> Outcomes:
        """What the function gives for windows, of which number i has the rows from `starts[i]` to before `stops[i]`.

        If it is to be careful, what follows a window that failed is called in another child: what the function keeps
        between calls may be spoiled.
        """
        assert self.writes is not None, "the schema of the results must be known"
        made = _Made([self.writes.empty_table()])
        with self._lock:
            while made.done < len(starts):
                end = _portion(rows, starts, stops, made.done)
                self._call_portion(Request(rows, starts, stops, careful=careful), end, made)
        counts, nanoseconds = np.concatenate(made.counts), np.concatenate(made.nanoseconds)
        return Outcomes(pa.concat_tables(made.tables), counts, made.failures, nanoseconds)

    def infer(self, rows: pa.RecordBatch, starts: np.ndarray, stops: np.ndarray) -> str:
        """The schema, as DDL, of what the function gives for a sample; a DeclarationError if that cannot be had."""
        with self._lock:
            failure = None
            while failure is None:
                child = self._ready()
                try:
                    child.send(b"I", pack_request(Request(rows, starts, stops)), STANDING_STILL)
                    letter, body = self._awaited(child)[0]
                    self._in_vain = 0
                    if letter == b"=":
                        return body.decode()
                    failure = unpack_failure(letter, body)
                except (Gone, _Overdue) as stopped:
                    failure = self._ended(child, stopped).failure
                except Garbled:
                    self._drop()
                    failure = _GARBLED
        told = f"{failure.reason}{failure.place}" + (f"\n{failure.traceback}" if failure.traceback else "")
        raise DeclarationError(f"{self.function.name} failed for the sample: {told}")

    def _call_portion(self, whole: Request, end: int, made: _Made) -> None:
        """Call the windows up to `end`, in as many children as that takes."""
        alone = 0  # up to there each window is a group of its own, since one of them is to blame for what befell all
        while made.done < end:
            first, stop = made.done, min([end, *made.guilty, *([alone] if alone > made.done else [])])
            child = self._ready()
            careful = whole.careful and made.care < _MOST_CARE
            try:
                request = replace(_gathered(whole, first, stop), alone=alone > first, careful=careful)
                child.send(b"C", pack_request(request), max(STANDING_STILL, self.limits.seconds))
                while made.done < stop and child is self._processes.child:
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
                elif ended.failure is not None and made.done == first:  # what was asked does not even fit: ask for less
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

    def _take(self, letter: bytes, body: bytes, first: int, stop: int, made: _Made) -> None:
        """Take an answer about windows of a request that goes from `first` to `stop`."""
        assert self.writes is not None
        if letter != b"A":
            raise Garbled
        at, outcomes = unpack_answer(body, self.writes, stop - first)
        if first + at != made.done:
            raise Garbled
        made.add(outcomes, first)
        self._in_vain = 0
        if any(failure.kind == "memory" for failure in outcomes.failures.values()):
            self._drop()  # who knows what has no memory left

    def _awaited(self, child: Child) -> list[tuple[bytes, bytes]]:
        """The next answers; raises `_Overdue` when the window under work has had its time."""
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
            found = child.frames(
                max(0.0, min(left, self.limits.seconds))
            )  # by then, whatever is begun now can be overdue
            if found:
                return found
            if left <= 0 and child.noted == noted:
                raise Gone if noted[0] == IDLE else _Overdue(noted[0])

    def _ended(self, child: Child, stopped: Gone | _Overdue) -> _End:
        """End a child that cannot go on."""
        self._processes.child = None
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
            self._processes.end()
        kind, reason = ending(status)
        if window == IDLE and kind == "memory":
            return _End(IDLE, Failure(kind, reason))
        if window == IDLE:
            self._count_in_vain(reason)
        if window < 0:
            return _End(window)
        return _End(window, Failure(kind, reason, *place(trace)), took)

    def _drop(self) -> None:
        """End the child, if there is one."""
        child, self._processes.child = self._processes.child, None
        if child is not None and self._processes.owner == os.getpid():
            child.kill()

    def _count_in_vain(self, how: str) -> None:
        """No window is to blame; but a process that ends so again and again cannot work here."""
        self._in_vain += 1
        if self._in_vain >= MOST_STARTS:
            self._in_vain = 0
            raise EnvironmentUnfit(
                f"the process for {self.function.name} ended {MOST_STARTS} times while it had nothing to do: {how}"
            )

    def _ready(self) -> Child:
        """A child that waits for a request."""
        while True:
            template = self._loaded()
            if self._processes.child is not None:
                return self._processes.child
            try:
                child, self._processes.spare = self._processes.spare or Child(template), None
                child.started()
                self._processes.child = child
                self.starts += 1
                if self.starts > 1:  # who has lost one may lose another
                    self._processes.spare = Child(template)
            except Gone:
                self._processes.end()
                self._count_in_vain("it could not be forked")

    def _loaded(self) -> Template:
        """The template that has loaded the function."""
        if self._processes.owner != os.getpid():  # a fork of the owner: they are not ours
            self._processes.forget()
        if self._processes.template is not None:
            return self._processes.template
        template = NURSERY.template()
        asked = {
            "function": self.function.as_json(),
            "reads": ddl(self.reads),
            "writes": None if self.writes is None else ddl(self.writes),
            "ignored": self.ignored,
            "memory": self.limits.memory,
        }
        until = time.monotonic() + self.loading
        try:
            letter, body = template.answer(template.request(b"L", orjson.dumps(asked)), self.loading)
        except Gone:
            _, how = ending(NURSERY.end(template))
            if time.monotonic() >= until:
                how = f"its import took longer than {self.loading:.3g} seconds, and was ended"
            raise DeclarationError(f"{self.function.name} cannot be loaded: {how}") from None
        if letter != b"=":
            NURSERY.end(template)
            failure = Failure.from_json(orjson.loads(body))
            raise DeclarationError(f"{failure.reason}{failure.place}")
        self._processes.template, self._processes.takes = template, orjson.loads(body)
        return template


@dataclass(slots=True)
class _Processes:
    """The processes of a function, and whose they are. The spare is a child that has nothing to do yet."""

    template: Template | None = None
    child: Child | None = None
    spare: Child | None = None
    takes: str = ""
    owner: int = field(default_factory=os.getpid)

    def end(self) -> None:
        """End them."""
        if self.owner == os.getpid():
            for each in (self.child, self.spare):
                if each is not None:
                    each.kill()
            if self.template is not None:
                NURSERY.end(self.template)
        self.forget()

    def forget(self) -> None:
        """Have none."""
        self.template = self.child = self.spare = None
        self.owner = os.getpid()


_shared: weakref.WeakValueDictionary[tuple[Any, ...], Children] = weakref.WeakValueDictionary()
_sharing = threading.Lock()


def shared_children(
    function: OperationFunction, reads: pa.Schema, writes: pa.Schema, limits: Limits, ignored: str | None = None
) -> Children:
    """The children of a function that all in this process share who want the same; they end when nobody has them."""
    key = (os.getpid(), function, ddl(reads), ddl(writes), limits, ignored)
    with _sharing:
        found = _shared.get(key)
        if found is None:
            found = _shared[key] = Children(function, reads, writes, limits, ignored)
        return found


def _portion(rows: pa.RecordBatch, starts: np.ndarray, stops: np.ndarray, first: int) -> int:
    """Up to which window one request goes."""
    per_row = max(rows.nbytes // max(rows.num_rows, 1), 1)
    last = min(first + _MOST_WINDOWS, len(starts))
    sizes = np.cumsum(stops[first:last] - starts[first:last])
    return first + max(int(np.searchsorted(sizes, _MOST_BYTES // per_row, side="right")), 1)


def _gathered(whole: Request, first: int, stop: int) -> Request:
    """Windows of a request over as few rows as have to be sent."""
    starts, stops = whole.starts[first:stop], whole.stops[first:stop]
    low, high, sizes = int(starts.min()), int(stops.max()), stops - starts
    total = int(sizes.sum())
    if total * 2 >= high - low:
        return Request(whole.rows.slice(low, high - low), starts - low, stops - low)
    ends = np.cumsum(sizes)
    return Request(whole.rows.take(pa.array(ranges(starts, stops))), ends - sizes, ends)
