"""A pipeline checked whole, without Spark: every mistake of the file, its queries, tables and rules, with its place."""

from __future__ import annotations

from hayase.core.declarations import PipelineDeclaration
from hayase.core.errors import DeclarationError
from hayase.core.pipeline_file import PipelineFile
from hayase.core.stages import Stage
from hayase.engine.planning import plan

__all__ = ["check", "check_file"]


def check(declaration: PipelineDeclaration) -> tuple[Stage, ...]:
    """The stages of a declaration; DeclarationError lists everything that is wrong with it."""
    planned = plan(declaration)
    if planned.mistakes:
        raise DeclarationError([mistake for _, _, mistake in planned.mistakes])
    return planned.stages


def check_file(file: PipelineFile) -> tuple[Stage, ...]:
    """The same for a pipeline file, with the place of each mistake in it."""
    planned = plan(file.declaration)
    if planned.mistakes:
        raise DeclarationError(
            [file.at(kind, name, mistake) if kind else mistake for kind, name, mistake in planned.mistakes]
        )
    return planned.stages
