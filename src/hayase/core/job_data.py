"""A job as plain data, the way a pipeline file says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from hayase.core.declarations import JobDeclaration, StepDeclaration
from hayase.core.errors import DeclarationError, HayaseError, Mistake, nearest
from hayase.core.plain_data import mistakes_of, names, one_or_list
from hayase.core.times import duration, duration_text

__all__ = ["declared_job", "is_function", "job_data"]

_STEP = {each.name for each in fields(StepDeclaration)} - {"kind", "function", "directory", "aggregates"}
_LISTS = ("key", "reads", "also")
_KINDS = ("map", "reduce", "merge")


def declared_job(name: str, data: Mapping[str, Any], directory: str | None = None) -> JobDeclaration:
    """A job as a file says it: functions by their names, modules in the `directory` of the file.

    >>> job = declared_job("traffic", {"reads": "logs", "every": "2 seconds", "steps": [
    ...     {"map": "access:parse"}, {"reduce": "count", "window": "15 minutes", "every": "6 minutes"}]})
    >>> job.steps[1].aggregates, job.steps[1].window
    ((('', 'count'),), 900000000)
    """
    mistakes: list[Mistake] = []
    for each in data:
        if each not in ("reads", "every", "steps", "rounds"):
            hint = nearest(str(each), ["reads", "every", "steps", "rounds"]).removeprefix("; ")
            mistakes.append(Mistake(f'job "{name}" has no "{each}"', hint))
    steps = []
    given = data.get("steps", ())
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        mistakes.append(Mistake(f'the steps of job "{name}" are no list', "begin each with map:, reduce: or merge:"))
        given = ()
    for number, step in enumerate(given, 1):
        try:
            steps.append(_declared_step(step, directory))
        except HayaseError as error:
            wrong = mistakes_of(error)
            mistakes += [Mistake(f'step {number} of job "{name}": {each.message}', each.hint) for each in wrong]
    every = 0
    try:
        every = duration(data.get("every", "1 second"))
    except HayaseError as error:
        mistakes.append(Mistake(f'every of job "{name}": {error}'))
    if mistakes:
        raise DeclarationError(mistakes)
    return JobDeclaration(name, names(data.get("reads", ())), every, tuple(steps), data.get("rounds"))


def _declared_step(data: object, directory: str | None) -> StepDeclaration:
    kinds = [each for each in _KINDS if isinstance(data, Mapping) and each in data]
    if not isinstance(data, Mapping) or len(kinds) != 1:
        raise DeclarationError("it is no step", "begin it with map:, reduce: or merge:")
    kind, options = kinds[0], dict[str, Any]()
    mistakes = []
    for name, value in data.items():
        if name == kind:
            continue
        if name not in _STEP:
            mistakes.append(Mistake(f'a {kind} has no "{name}"', nearest(str(name), _STEP).removeprefix("; ")))
        elif name in _LISTS:
            options[name] = names(value)
        elif name in ("window", "every"):
            options[name] = duration(value)
        else:
            options[name] = value
    if mistakes:
        raise DeclarationError(mistakes)
    what = data[kind]
    if isinstance(what, Mapping):
        return StepDeclaration(kind, aggregates=tuple((str(one), str(other)) for one, other in what.items()), **options)
    if not isinstance(what, str):
        raise DeclarationError(f"{what!r} is no function", "write it like module:function")
    if kind == "reduce" and not is_function(what):
        return StepDeclaration(kind, aggregates=(("", what),), **options)
    return StepDeclaration(kind, what, directory, **options)


def is_function(text: str) -> bool:
    """Whether a text names a function and no aggregate."""
    return ":" in text and "(" not in text


def job_data(job: JobDeclaration) -> dict[str, Any]:
    """What `declared_job` makes the job of; defaults are left out.

    >>> data = {"reads": "logs", "every": "2 s", "steps": [{"map": "access:parse"}, {"reduce": {"hits": "count(*)"}}]}
    >>> job_data(declared_job("traffic", data)) == data
    True
    """
    data: dict[str, Any] = {"reads": one_or_list(job.reads), "every": duration_text(job.every)}
    if job.rounds is not None:
        data["rounds"] = job.rounds
    return {**data, "steps": [_step_data(step) for step in job.steps]}


def _step_data(step: StepDeclaration) -> dict[str, Any]:
    what: Any = step.function
    if what is None:
        alone = len(step.aggregates) == 1 and not step.aggregates[0][0]
        what = step.aggregates[0][1] if alone else dict(step.aggregates)
    data: dict[str, Any] = {step.kind: what}
    for each in fields(StepDeclaration):
        value = getattr(step, each.name)
        if each.name in _STEP and value != each.default:
            short = duration_text(value) if each.name in ("window", "every") else value
            data[each.name] = one_or_list(value) if each.name in _LISTS else short
    return data
