"""Translation of Spark's errors into one line of cause and one of remedy, and whether a restart can help.

Spark's errors are pages of plans and stack traces. `failure_of` extracts the useful line: the error of Hayase or of a user
function, if there is one, else the first match in a table of known texts. `translated` does the same for calls from Python into
the JVM, which fail with errors of Py4J once the JVM has ended.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from py4j.protocol import Py4JError, Py4JJavaError

from hayase.core.data_classes import dataclass
from hayase.core.errors import LaneFailed

__all__ = ["SparkFailure", "failure_of", "translated"]

Again = Literal["never", "passing", "slow"]


@dataclass(frozen=True, slots=True)
class SparkFailure:
    """Why a Spark query ended. `again` says whether a restart can help: `slow` if an interpreter took longer to start than
    Spark waits, `passing` if a process was lost that Spark starts again, `never` if the same failure would recur."""

    cause: str
    remedy: str = ""
    again: Again = "never"

    def __str__(self) -> str:
        return f"{self.cause}\n{self.remedy}" if self.remedy else self.cause


_DISK = "free some space there, then start again: nothing is lost"
_FILES = "raise the limit, for instance by `ulimit -n 65536`, then start again: nothing is lost"
_SCRATCH = (
    "start again: it makes new ones, and nothing is lost; keep cleaners of temporary folders away from hayase-spark-*"
)
_JVM = "look at the end of {log} for the reason, such as a lack of memory, then start again: nothing is lost"
_LOST = "start again: nothing is lost"

_KNOWN: tuple[tuple[str, SparkFailure], ...] = (
    (r"No space left on device|Disk quota exceeded", SparkFailure("the disk is full: {line}", _DISK)),
    (r"Too many open files", SparkFailure("Spark may not open more files: {line}", _FILES)),
    (r"Read-only file system|Permission denied",
     SparkFailure("Spark cannot write: {line}", "make the place writable, then start again: nothing is lost")),
    (r"hayase-spark-\S*.*(No such file|does not exist|cannot find)|(No ?Such ?File|Failed to create|Cannot run program)"
     r".*hayase-spark-", SparkFailure("Spark's temporary folder was removed while it ran: {line}", _SCRATCH)),
    (r"OutOfMemoryError", SparkFailure("the JVM has no memory left: {line}", "give Spark more by a larger machine, or take less "
     "at once: `governor: {{seconds: 1}}`; then start again: nothing is lost")),
    (r"failed to connect back", SparkFailure("a process that Spark started took too long: {line}", _LOST, "slow")),
    (r"ExecutorLostFailure|FetchFailed|indeterminate output",  # Spark repeats what it can without running a task twice
     SparkFailure("an executor was lost: {line}", _LOST, "passing")),
    (r"timed out|TimeoutException", SparkFailure("something took longer than Spark waits: {line}", _LOST, "passing")),
    (r"OptionalDataException|Broken pipe|Connection reset|EOFException|Connection refused|Stream closed|socket.*closed"
     r"|no cause message",
     SparkFailure("a process beside Spark was lost: {line}", _LOST, "passing")),
)  # fmt: skip
"""Patterns in Spark's error texts, the most specific first; `{line}` is the matching line, `{log}` the path of Spark's log."""

_FOREIGN = re.compile(
    r"\s|at |===|SQLSTATE|Traceback|Driver stacktrace|Caused by|During handling|The above exception|[\w.]+(Error|Exception)\b"
)
"""Matches the start of a line that Spark or Python wrote after an error of Hayase. Any other line there is its remedy."""


def failure_of(text: str, log: Path) -> SparkFailure:
    """Return the failure that the text of a Spark error describes; `log` is the log file of the JVM and the workers.

    >>> print(failure_of("Job aborted\\njava.io.IOException: No space left on device", Path("logs/spark.log")))
    the disk is full: java.io.IOException: No space left on device
    free some space there, then start again: nothing is lost
    >>> failure_of("Broken pipe\\n=== Streaming Query ===", Path("logs/spark.log")).again
    'passing'
    """
    raw = text.splitlines()
    own_errors = [at for at, line in enumerate(raw) if line.strip().startswith("hayase.")]
    if own_errors:
        at = own_errors[-1]
        line, following = raw[at].strip(), "".join(raw[at + 1 : at + 2])
        return SparkFailure(line.partition(": ")[2] or line, "" if _FOREIGN.match(following) else following.rstrip())
    lines = [line.strip() for line in raw if line.strip()]
    for pattern, known in _KNOWN:
        match = next((line for line in lines if re.search(pattern, line, re.IGNORECASE)), None)
        if match is not None:
            return SparkFailure(known.cause.format(line=_short(match)), known.remedy.format(log=log), known.again)
    raised = [line for line in lines if "Error: " in line]
    cause = (raised or lines or ["no reason given"])[-1 if raised else 0]
    return SparkFailure(_short(cause), f"the whole error is in {log}")


def jvm_lost(log: Path) -> SparkFailure:
    """Return the failure of calls into a JVM that has ended."""
    return SparkFailure("the JVM in which Spark runs has ended", _JVM.format(log=log))


@contextlib.contextmanager
def translated(log: Path) -> Iterator[None]:
    """Raise `LaneFailed` in place of errors of Py4J, such as those after the JVM has ended."""
    try:
        yield
    except Py4JJavaError as error:
        raise LaneFailed(str(failure_of(str(error), log))) from error
    except (Py4JError, ConnectionError) as error:
        raise LaneFailed(str(jvm_lost(log))) from error


def _short(line: str, most: int = 300) -> str:
    return line if len(line) <= most else f"{line[: most - 1]}…"
