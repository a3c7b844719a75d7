"""The stages of a build: planned stages under names of their own, which read each other's output instead of the public one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from hayase.core.declarations import StreamDeclaration
from hayase.core.stages import Stage, build_name

__all__ = ["built_stages"]


def built_stages(stages: Mapping[str, Stage], names: Collection[str], generation: int) -> dict[str, Stage]:
    """Return the stages with these names as they are built beside others, by their names in the build. A stream that none of
    them writes is read by its own name."""
    renamed = {name: build_name(name, generation) for name in names}
    built = {}
    for name in stages:
        if name in renamed:
            stage = stages[name]
            inputs = tuple(replace(side, stream=renamed.get(side.stream, side.stream)) for side in stage.inputs)
            built[renamed[name]] = replace(
                stage, name=renamed[name], inputs=inputs, output=_renamed(stage.stream, renamed)
            )
    return built


def _renamed(stream: StreamDeclaration, names: Mapping[str, str]) -> StreamDeclaration:
    return replace(stream, name=names[stream.name])
