"""The graph of a job's steps: which steps run in one stage, what each stage reads, and where its tuples go.

Maps run in the stage of the reduce or merge after them, unless their tuples also go elsewhere. This module works with names only;
shapes are checked in `tuple_shapes`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from hayase.core.data_classes import dataclass
from hayase.core.declarations import JobDeclaration, StepDeclaration
from hayase.core.errors import Mistake, suggestion

__all__ = ["NEXT", "JobGraph", "Run", "graph_of"]

NEXT = ""
"""The name of the target of tuples that go to the next step."""


@dataclass(frozen=True, slots=True)
class Run:
    """Steps that run in one stage, by their numbers. `reads` are streams and groups; None means the run before. `targets` are
    groups, the first for tuples without a named group; `back` are the targets that begin a new round."""

    number: int
    steps: tuple[int, ...]
    reads: tuple[str, ...] | None
    targets: tuple[str, ...]
    back: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class JobGraph:
    """The runs of a job, the groups between them, and the public streams with the runs that write them."""

    runs: tuple[Run, ...]
    groups: frozenset[str]
    public: dict[str, tuple[Run, ...]]

    def writers(self, group: str) -> list[Run]:
        """Return the runs that write to a group."""
        return [run for run in self.runs if group in run.targets]

    @property
    def loops(self) -> bool:
        """Whether the job has a loop."""
        return any(run.back for run in self.runs)


def graph_of(job: JobDeclaration, streams: Collection[str], tables: Collection[str]) -> tuple[JobGraph, list[Mistake]]:
    """Return the graph of a job, and the mistakes in its names."""
    steps = job.steps
    read = {name for step in steps for name in step.reads}
    written = {name for step in steps for name in (step.writes, *step.also) if name is not None}
    groups = frozenset(name for name in read & written if name not in streams and name not in tables) - {job.name}
    mistakes = [*_unknown(job, streams, tables, groups), *_unwritable(job, streams)]
    runs: list[Run] = []
    for first, last in _run_bounds(steps):
        step = steps[last]
        reads = steps[first].reads or (job.reads if first == 0 else None)
        targets = list(dict.fromkeys([_default_target(job, last), *step.also]))
        back = frozenset(name for name in targets if name in groups and _earliest(steps, name) <= last)
        if back and job.rounds is not None and job.name not in targets:
            targets.append(job.name)
        runs.append(Run(len(runs) + 1, tuple(range(first, last + 1)), reads, tuple(targets), back))
    public: dict[str, tuple[Run, ...]] = {}
    for run in runs:
        for name in run.targets:
            if name != NEXT and name not in groups and name not in tables:
                public[name] = (*public.get(name, ()), run)
    return JobGraph(tuple(runs), groups, public), mistakes


def _run_bounds(steps: tuple[StepDeclaration, ...]) -> Iterator[tuple[int, int]]:
    """Yield the first and last step of each run."""
    first = 0
    for at, step in enumerate(steps):
        alone = step.writes is not None or step.also
        goes_on = at + 1 < len(steps) and not steps[at + 1].reads
        if step.kind != "map" or alone or not goes_on:
            yield first, at
            first = at + 1


def _default_target(job: JobDeclaration, at: int) -> str:
    """Return the target of a step's tuples without a named group."""
    step = job.steps[at]
    if step.writes is not None:
        return step.writes
    return NEXT if at + 1 < len(job.steps) and not job.steps[at + 1].reads else job.name


def _earliest(steps: tuple[StepDeclaration, ...], group: str) -> int:
    return min(at for at, step in enumerate(steps) if group in step.reads)


def _unknown(
    job: JobDeclaration, streams: Collection[str], tables: Collection[str], groups: Collection[str]
) -> Iterator[Mistake]:
    readable = [*streams, *groups]
    reads = [("", "", job.reads), *((*_step(job, at), step.reads) for at, step in enumerate(job.steps))]
    for subject, where, names in reads:
        for name in names:
            if name in readable:
                continue
            if name in tables:
                message, hint = (
                    f'"{name}" is a table, and cannot be read like a stream',
                    "a merge meets a table: @job.merge",
                )
                yield Mistake(where + message, hint, subject=subject)
            else:
                message = f'{where}unknown stream or group "{name}"'
                yield Mistake(message, suggestion(name, readable), subject=subject)


def _unwritable(job: JobDeclaration, streams: Collection[str]) -> Iterator[Mistake]:
    for at, step in enumerate(job.steps):
        for name in dict.fromkeys((step.writes, *step.also)):
            if name is not None and name in streams:
                subject, where = _step(job, at)
                hint = "name a group of the job's own, or a table"
                yield Mistake(f'{where}"{name}" is a stream that others write', hint, subject=subject)


def _step(job: JobDeclaration, at: int) -> tuple[str, str]:
    """Return a step as the subject of a mistake, and the start of the message."""
    return f"steps.{at}", f"step {at + 1} ({job.steps[at].title}): "
