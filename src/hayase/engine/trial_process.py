"""Trials of queries (`query_trials`) in a process of their own, with limits on time and memory, that can be killed.

The parent starts the process, sends the request as JSON to its standard input and reads the answer from its standard output: the
length of a JSON object (8 bytes), the object, and the rows as an Arrow stream. The process writes only into a temporary directory
that the parent creates, and removes however the process ends. It is killed with everything that it has started when its time is
over, when it takes too much memory, when the one who asked has gone, or when the parent dies. The parent looks at the resident
memory; the libraries in the process reserve much more address space than they use, which is limited too, but not closely.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import psutil
import pyarrow as pa

from hayase.core.child_process import ended_by_signal
from hayase.core.declarations import PipelineDeclaration
from hayase.core.errors import HayaseError
from hayase.core.machine_code import do_without_numba
from hayase.engine.home import Home
from hayase.engine.query_trials import Refusal, TrialResult, run_trial

__all__ = ["TrialFailed", "main", "run_trial_process"]

_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; from hayase.engine.trial_process import main; main()"  # as in the parent
)
_LOOK = 0.05
"""Seconds between two looks at the process and at the one who asked."""
_RESERVED = 4
"""How much address space a process may reserve, as a multiple of the memory that it may use."""
_FEW = 2_000
"""Up to how many records loops are called without Numba: fewer calls than loading it is worth."""
_LARGEST_FILE = 512 << 20
_MOST_BYTES = 16 << 20
"""The largest answer; of more, rows are left out."""
_TIMES = ["__from", "__to"]
"""The columns of an answer with the lifetimes of the rows; names that begin like this are reserved."""
_DEATH_SIGNAL = 1  # of prctl
_OUT_OF_MEMORY = "the query needs more than the {size:,} MB of memory that a trial has"
_FEWER = "run it on fewer records, or let it keep less"


class TrialFailed(HayaseError):
    """A trial did not come to an end: it exceeded a limit, or its process crashed."""


def run_trial_process(
    home: Home,
    part: PipelineDeclaration,
    query: str,
    *,
    records: int,
    limit: int,
    bins: int,
    seconds: float,
    memory: int,
    check: Callable[[], None] = lambda: None,
) -> TrialResult:
    """Run a trial as `run_trial` does, in a process with `memory` bytes that is killed after `seconds`.

    `check` is called now and then and raises if nobody waits for the result any more. TrialFailed if the trial exceeds a limit.
    """
    asked = {
        "home": str(home.path.absolute()), "part": part.as_json(), "query": query, "records": records, "limit": limit,
        "bins": bins, "memory": memory, "seconds": seconds,
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="hayase-trial-", ignore_cleanup_errors=True) as directory:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, *(str(Path.cwd() / entry) for entry in sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=directory,
            env={**os.environ, "TMPDIR": directory},
            start_new_session=True,
        )
        try:
            answer = _answer(process, orjson.dumps(asked), seconds, memory, check)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # with what it has started
                process.communicate()
    return _result(answer, process.returncode)


def _answer(
    process: subprocess.Popen[bytes], body: bytes, seconds: float, memory: int, check: Callable[[], None]
) -> bytes:
    until = time.monotonic() + seconds
    request: bytes | None = body
    while True:
        try:
            return process.communicate(request, timeout=_LOOK)[0]
        except subprocess.TimeoutExpired:
            check()
        request = None
        if time.monotonic() > until:
            raise TrialFailed(f"the query was stopped after {seconds:g} seconds", _FEWER)
        if _resident(process.pid) > memory:
            raise TrialFailed(_OUT_OF_MEMORY.format(size=memory >> 20), _FEWER)


def _resident(process: int) -> int:
    try:
        return int(psutil.Process(process).memory_info().rss)
    except psutil.Error:  # it has just ended
        return 0


def _result(answer: bytes, code: int) -> TrialResult:
    if len(answer) < 8:
        how = ended_by_signal(-code)[1] if code < 0 else f"its process ended with code {code}"
        raise TrialFailed(f"the query could not be run: {how}", _FEWER)
    size = int.from_bytes(answer[:8], "little")
    head: dict[str, Any] = orjson.loads(answer[8 : 8 + size])
    if "refused_because" in head:
        raise TrialFailed(head["refused_because"], head["remedy"])
    if "fault" in head:
        raise RuntimeError(f"the trial of a query failed:\n{head['fault']}")
    table = pa.ipc.open_stream(answer[8 + size :]).read_all()
    arrays: dict[str, Any] = {name: np.array(head.pop(name), np.int64) for name in ("starts", "ends", "density")}
    head["reasons"] = tuple(Refusal(**refusal) for refusal in head["reasons"])
    valid_from, valid_to = (table.column(name).combine_chunks() for name in _TIMES)
    return TrialResult(rows=table.drop_columns(_TIMES), valid_from=valid_from, valid_to=valid_to, **arrays, **head)


# ---------------------------------------------------------------------------------------------------- the process


def main() -> None:
    """Answer the request on standard input; what user functions print is discarded."""
    answer = os.dup(1)
    os.dup2(2, 1)
    asked = orjson.loads(sys.stdin.buffer.read())
    _limit(asked["memory"], asked["seconds"])
    try:
        head, rows = _run(asked)
    except MemoryError:  # Arrow's errors of this kind are such errors too
        head, rows = {"refused_because": _OUT_OF_MEMORY.format(size=asked["memory"] >> 20), "remedy": _FEWER}, b""
    except HayaseError as error:
        head, rows = {"refused_because": error.problem or str(error), "remedy": error.remedy}, b""
    except Exception:
        head, rows = {"fault": traceback.format_exc()}, b""
    data = orjson.dumps(head)
    with os.fdopen(answer, "wb") as out:
        out.write(len(data).to_bytes(8, "little") + data + rows)
    os._exit(0)  # without waiting for threads and caches


def _limit(memory: int, seconds: float) -> None:
    """Limit this process, and let it end with its parent."""
    with contextlib.suppress(AttributeError, OSError):  # Linux only
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    os.nice(5)
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_AS: psutil.Process().memory_info().vms + _RESERVED * memory,
        resource.RLIMIT_FSIZE: _LARGEST_FILE,
        resource.RLIMIT_CPU: int(seconds * 4) + 10,
    }
    for limit, value in limits.items():
        hard = resource.getrlimit(limit)[1]
        resource.setrlimit(limit, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _run(asked: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    if asked["records"] <= _FEW:
        do_without_numba()
    result = run_trial(
        Home(Path(asked["home"])), PipelineDeclaration.from_json(asked["part"]), asked["query"], records=asked["records"],
        limit=asked["limit"], bins=asked["bins"],
    )  # fmt: skip
    table, count = result.rows, result.rows.num_rows
    for name, times in zip(_TIMES, (result.valid_from, result.valid_to)):
        table = table.append_column(name, times)
    rows = _stream(table)
    while len(rows) > _MOST_BYTES and count > 1:
        count //= 2
        rows = _stream(table.slice(0, count))
    head = {
        "starts": result.starts[:count].tolist(), "ends": result.ends[:count].tolist(), "is_stream": result.is_stream,
        "matching": result.matching, "density": result.density.tolist(),
        "first": result.first, "end": result.end, "read": result.read, "refused": result.refused,
        "reasons": [asdict(refusal) for refusal in result.reasons],
    }  # fmt: skip
    return head, rows


def _stream(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    return sink.getvalue()
