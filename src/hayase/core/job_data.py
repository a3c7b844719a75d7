"""Jobs as plain data, in the form of a pipeline file, to and from their declarations.

The fields, their kinds and their defaults are those of `declaration_fields`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hayase.core.declaration_fields import JOB, STEP
from hayase.core.declarations import STEP_KINDS, JobDeclaration, StepDeclaration
from hayase.core.errors import DeclarationError, HayaseError, Mistake, suggestion
from hayase.core.plain_data import mistakes_of

__all__ = ["declared_job", "is_function", "job_data"]


def declared_job(name: str, data: Mapping[str, Any], directory: str | None = None) -> JobDeclaration:
    """Return the declaration of a job from its plain data. Functions are given by name; their modules lie in `directory`.

    >>> job = declared_job("traffic", {"reads": "logs", "every": "2 seconds", "steps": [
    ...     {"map": "access:parse"}, {"reduce": "count", "window": "15 minutes", "every": "6 minutes"}]})
    >>> job.steps[1].aggregates, job.steps[1].window
    ((('', 'count'),), 900000000)
    """
    mistakes: list[Mistake] = []
    for field in data:
        if field not in JOB.names:
            hint = suggestion(str(field), JOB.names)
            mistakes.append(Mistake(f'job "{name}" has no "{field}"', hint))
    steps = []
    listed = data.get("steps", ())
    if isinstance(listed, str | Mapping) or not isinstance(listed, Sequence):
        mistakes.append(Mistake(f'the steps of job "{name}" are not a list', "begin each with map:, reduce: or merge:"))
        listed = ()
    for number, step in enumerate(listed, 1):
        try:
            steps.append(_declared_step(step, directory))
        except HayaseError as error:
            mistakes += [
                Mistake(
                    f'step {number} of job "{name}": {mistake.message}', mistake.hint, subject=f"steps.{number - 1}"
                )
                for mistake in mistakes_of(error)
            ]
    values, unreadable = JOB.read(
        {field: value for field, value in data.items() if field != "steps"}, f' of job "{name}"'
    )
    mistakes += unreadable
    if mistakes:
        raise DeclarationError(mistakes)
    return JobDeclaration(name, steps=tuple(steps), **{"reads": (), "every": JOB["every"].value, **values})


def _declared_step(data: object, directory: str | None) -> StepDeclaration:
    kinds = [kind for kind in STEP_KINDS if isinstance(data, Mapping) and kind in data]
    if not isinstance(data, Mapping) or len(kinds) != 1:
        raise DeclarationError("it is not a step", "begin it with map:, reduce: or merge:")
    kind = kinds[0]
    mistakes = [
        Mistake(f'a {kind} has no "{name}"', suggestion(str(name), STEP.names))
        for name in data
        if name != kind and name not in STEP.names
    ]
    options, unreadable = STEP.read(data, "")
    if mistakes or unreadable:
        raise DeclarationError([*mistakes, *unreadable])
    function = data[kind]
    if isinstance(function, Mapping):
        aggregates = tuple((str(name), str(call)) for name, call in function.items())
        return StepDeclaration(kind, aggregates=aggregates, **options)
    if not isinstance(function, str):
        raise DeclarationError(f"{function!r} is not a function", "write it like module:function")
    if kind == "reduce" and not is_function(function):
        return StepDeclaration(kind, aggregates=(("", function),), **options)
    return StepDeclaration(kind, function, directory, **options)


def is_function(text: str) -> bool:
    """Return whether a text names a function, as module:function, and not an aggregate."""
    return ":" in text and "(" not in text


def job_data(job: JobDeclaration) -> dict[str, Any]:
    """Return the plain data of a job, which `declared_job` takes; defaults are left out.

    >>> data = {"reads": "logs", "every": "2 s", "steps": [{"map": "access:parse"}, {"reduce": {"hits": "count(*)"}}]}
    >>> job_data(declared_job("traffic", data)) == data
    True
    """
    data = JOB.write({"reads": job.reads, "every": job.every, "rounds": job.rounds})
    return {**data, "steps": [_step_data(step) for step in job.steps]}


def _step_data(step: StepDeclaration) -> dict[str, Any]:
    function: Any = step.function
    if function is None:
        is_unnamed = len(step.aggregates) == 1 and not step.aggregates[0][0]
        function = step.aggregates[0][1] if is_unnamed else dict(step.aggregates)
    return {step.kind: function, **STEP.write({name: getattr(step, name) for name in STEP.names})}
