"""The verdict on a home: what it holds is what a clean run on the same log gives, and the log is what was acknowledged.

The clean run happens in this process, without Spark, in another home, in one go. A check returns what is wrong, in lines.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import hayase as hy
from campaign.traffic import STREAMS, WATCHED, Chunk
from hayase.engine.batch.gate import Grants
from hayase.engine.batch.kernel_cache import forget_kernels
from hayase.engine.batch.offsets import advance
from hayase.engine.commit.ledger import progress
from hayase.engine.commit.manifests import Commits
from hayase.engine.definition.definitions import latest
from hayase.engine.home import Home
from hayase.engine.logs import Logs, settled_end
from hayase.streams.dead_letters import APPEND
from hayase.streams.log import StreamLog

__all__ = [
    "Answers",
    "answers",
    "check_figures",
    "check_files",
    "check_log",
    "clean_answers",
    "differences",
    "is_idle",
    "version",
]

TABLES = ("purchases", "hits", "watched")
FIRED = ("traffic", "alerts")
"""Jobs: what they give depends on when they fire, but what it adds up to does not."""
FILES_OF_A_LANE = 40
"""State files and manifests that a lane may have when it is idle."""
LOG_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class Answers:
    """Everything that a home answers, as multisets of lines: rows with lifetimes, tables, dead letters of stages."""

    of: dict[str, Counter[str]]


def answers(pipeline: hy.Pipeline) -> Answers:
    """What a home holds, by query, job, operation, table and, for dead letters, stage."""
    found: dict[str, Counter[str]] = {}
    for query in pipeline.declaration.queries:
        results = pipeline.query(query.name)
        rows = results.intervals() if results.log.declaration.lifetimes else results.rows()
        found[f"query {query.name}"] = Counter(map(repr, rows))
    for job in pipeline.declaration.jobs:
        found[f"job {job.name}"] = _added_up(pipeline.results(job.name).rows())
    for operation in pipeline.declaration.operations:
        found[f"operation {operation.name}"] = Counter(map(repr, pipeline.results(operation.name).rows()))
    for table in pipeline.declaration.tables:
        with pipeline.table(table.name) as rows_of:
            found[f"table {table.name}"] = Counter(
                json.dumps(row, sort_keys=True, default=str) for row in rows_of.rows()
            )
    stages = pipeline.progress().totals
    for letter in pipeline.dead_letters():
        if letter["stage"] in stages:  # not those of appends, nor of a stage that was removed
            told = (letter["stream"], letter["offset"], _short(letter["reason"]))
            found.setdefault(f"dead letters of {letter['stage']}", Counter())[repr(told)] += 1
    return Answers(found)


def _short(reason: str) -> str:
    """The line of a reason that says what happened; only the first failures of a batch come with their tracebacks."""
    lines = reason.splitlines() or [""]
    return lines[-1 if lines[0].startswith("Traceback") else 0][:120]


def _added_up(rows: Iterable[dict[str, Any]]) -> Counter[str]:
    """What a job's tuples come to over all firings, for each key."""
    totals: Counter[str] = Counter()
    for row in rows:
        value = json.loads(row["value"])
        count = value["visits"] if isinstance(value, dict) else value
        reason = value["reason"] if isinstance(value, dict) else None
        totals[repr((row["key"], reason))] += count
    return totals


def clean_answers(pipeline: hy.Pipeline, home: Path) -> Answers:
    """What the same declaration answers after an undisturbed run on the same log, in a home of its own."""
    clean = hy.Pipeline(pipeline.declaration.name, home)
    clean.declaration = pipeline.declaration
    clean.table("watched").load(WATCHED)
    for stream in STREAMS:
        source = StreamLog.open(pipeline.home.path, stream)
        index = source.index()
        target = StreamLog.ensure(home, clean.declaration.stream(stream))
        pieces = [piece.rows for piece in source.read(index.start, index.next)]
        if pieces:
            target.append(pa.Table.from_batches(pieces), now=1)
        if index.finished:
            target.finish()
    forget_kernels()
    clean.run_until_idle(spark=False)
    return answers(clean)


def differences(found: Answers, wanted: Answers, rebuilt: Collection[str] = ()) -> list[str]:
    """How what was found differs from what was wanted. Stages that were `rebuilt` meanwhile may have refused a record twice."""
    wrong = []
    for what in sorted({*found.of, *wanted.of}):
        one, other = found.of.get(what, Counter()), wanted.of.get(what, Counter())
        if what.startswith("dead letters of") and what.removeprefix("dead letters of ") in rebuilt:
            one, other = Counter(set(one)), Counter(set(other))
        if one != other:
            missing, extra = list((other - one).elements()), list((one - other).elements())
            wrong.append(
                f"{what}: {len(missing)} missing, {len(extra)} too many; e.g. missing {missing[:2]}, too many {extra[:2]}"
            )
    return wrong


def check_log(pipeline: hy.Pipeline, acknowledged: Sequence[Chunk]) -> list[str]:
    """The logs hold every acknowledged chunk once, whole and in its order, and nothing else; the broken records lie in the
    dead letters, once each."""
    wrong = []
    for stream in STREAMS:
        rows = StreamLog.open(pipeline.home.path, stream)
        index = rows.index()
        found = [row for piece in rows.read(index.start, index.next) for row in piece.rows.to_pylist()]
        wanted = [each for each in acknowledged if each.stream == stream]
        wrong += _check_stream(stream, found, wanted)
    letters = Counter(json.loads(each["record"])["id"] for each in pipeline.dead_letters() if each["stage"] == APPEND)
    refused = Counter(name for each in acknowledged for name in each.refused)
    if letters != refused:
        wrong.append(f"dead letters of appends: missing {refused - letters}, too many {letters - refused}")
    return wrong


def _check_stream(stream: str, found: list[dict[str, Any]], wanted: Sequence[Chunk]) -> list[str]:
    chunks = {(each.producer, each.number): each for each in wanted}
    seen, at = set(), 0
    while at < len(found):
        producer, number, _ = found[at]["id"].rsplit("-", 2)
        each = chunks.get((producer, int(number)))
        if each is None:
            return [f'{stream}: offset {at} has record "{found[at]["id"]}", which nobody was told of']
        good = each.good
        if found[at : at + len(good)] != good:
            return [f"{stream}: chunk {number} of {producer} is not whole at offset {at}"]
        if (producer, number) in seen:
            return [f"{stream}: chunk {number} of {producer} is there twice"]
        seen.add((producer, number))
        at += len(good)
    lost = sorted(f"{producer} {number}" for producer, number in chunks if (producer, str(number)) not in seen)
    return [f"{stream}: lost acknowledged chunks: {', '.join(lost)}"] if lost else []


def check_figures(pipeline: hy.Pipeline) -> list[str]:
    """Of every stage: read = processed + dead + repeated + waiting, and no more was written than is there."""
    wrong = []
    for stage, each in pipeline.progress().totals.items():
        repeated = getattr(each, "repeated", 0)
        if each.read != each.processed + each.dead + repeated + each.waiting:
            wrong.append(
                f"{stage}: read {each.read} is not processed {each.processed} + dead {each.dead} + repeated {repeated} + "
                f"waiting {each.waiting}"
            )
    return wrong


def check_files(home: Path, most: int = FILES_OF_A_LANE) -> list[str]:
    """Nothing grows without bound: what runs left behind is gone once the home is idle and closed. A lane has at most so many
    files of state, and manifests."""
    wrong = []
    for folder in ("staged", "exchange"):
        left = [path for path in (home / folder).rglob("*") if path.is_file()]
        wrong += [f"{len(left)} files are left in {folder}, such as {left[0].name}"] if left else []
    drafts = [path for path in home.rglob("*.tmp") if "checkpoints" not in path.parts]
    wrong += [f"{len(drafts)} drafts are left, such as {drafts[0]}"] if drafts else []
    for lane in (home / "commits").iterdir():
        named = Commits(Home(home), lane.name).latest().files()
        state = {path.name for path in (home / "state" / lane.name).iterdir()}
        if state - named:
            wrong.append(f"state of {lane.name}: no manifest names {sorted(state - named)[:3]}")
        for folder in (lane, home / "state" / lane.name):
            count = sum(1 for _ in folder.iterdir())
            wrong += [f"{folder} has {count} files"] if count > most else []
        checkpoints = home / "checkpoints" / lane.name  # there are none without Spark
        epochs = list(checkpoints.iterdir()) if checkpoints.is_dir() else []
        wrong += [f"{len(epochs)} checkpoints of {lane.name} are left"] if len(epochs) > 1 else []
    size = sum(path.stat().st_size for path in (home / "logs").rglob("*") if path.is_file())
    wrong += [f"the logs of the programs have {size:,} bytes"] if size > LOG_BYTES else []
    return wrong


def is_idle(home: Path) -> bool:
    """Whether all that is in the logs has been committed, by what lies on the disk."""
    definition = latest(Home(home))
    if definition is None:
        return False
    for lane in definition.lanes:
        own = definition.of_lane(lane)
        manifest = Commits(Home(home), lane).latest()
        if manifest.offset.definition != definition.version:
            return False
        logs = Logs(Home(home), own)
        end = advance(manifest.offset, own, logs, Grants(at_once=True), 0, settled_end=settled_end(Home(home)))
        if end != manifest.offset:
            return False
    return True


def version(home: Path) -> int:
    """How many batches were committed, in all lanes."""
    return progress(Home(home)).version
