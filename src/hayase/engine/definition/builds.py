"""Builds beside a running version: begun by `apply --beside`, given up by `--cancel`, and finished when they have caught up.

The definition with a build declares what runs. The stages of the build are among its records, as `name@generation`; see
docs/design/0031-beside.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from hayase.core.declarations import PipelineDeclaration, checked_buckets
from hayase.core.errors import DeclarationError, StageChanged
from hayase.core.stages import Stage, is_build, public_name
from hayase.engine.definition.build_stages import built_stages
from hayase.engine.definition.definitions import Build, Definition, latest, newest_version, planned, save
from hayase.engine.definition.proposals import Prepared, being_built, only_writer, prepare, write_next
from hayase.engine.definition.stage_comparison import can_be_built, compare, record_of, with_readers
from hayase.engine.home import Home
from hayase.streams import StreamLog

__all__ = ["cancel_build", "finish_build", "propose_beside", "rebucket", "stages_to_build"]


def propose_beside(home: Home, declaration: PipelineDeclaration) -> Definition:
    """Write a version in which the declaration is built beside what runs. A declaration for which nothing needs to be rebuilt
    takes effect at once, like one that `propose` writes. Another build that was begun before is given up."""
    with only_writer(home):
        current = latest(home)
        wanted = prepare(home, None if current is None else current.without_build(), declaration)
        if current is None or (current.build is not None and wanted == Prepared.of(current.build)):
            return write_next(home, current, wanted) if current is None else current
        running, stages = current.without_build(), planned(wanted.declaration, home)
        names = stages_to_build(running, stages)
        if not names:
            return write_next(home, current, wanted)
        return _write_build(running, wanted, stages, names, running.buckets)


def stages_to_build(running: Definition, stages: Mapping[str, Stage]) -> tuple[str, ...]:
    """Return the stages that must be built beside those that run: those that need it, the stages that read them, and new ones.
    Empty if none needs it; StageChanged if one of them cannot be built."""
    changes = compare(running, stages)
    refused = {stages[name].query for name, change in changes.items() if change == "refused"}
    if not refused:
        return ()
    needed = _checked(stages, refused)
    added = {name for name, change in changes.items() if change == "added"}
    built = {*needed, *(name for name in added if can_be_built(stages[name]))}
    _check_inputs(stages, built, added - built)
    return tuple(name for name in stages if name in built)


def _checked(stages: Mapping[str, Stage], queries: Collection[str]) -> list[str]:
    """Return the stages of declared objects and those that read them, directly or through others; StageChanged if one of them
    cannot be built beside what runs."""
    anew = with_readers(dict.fromkeys(queries, "earliest"), stages)
    needed = [name for name in stages if name in anew]
    unfit = dict.fromkeys(stages[name].query for name in needed if not can_be_built(stages[name]))
    if unfit:
        listed = ", ".join(f'"{name}"' for name in unfit)
        raise StageChanged(
            f"{listed} would have to be built beside what runs, and only queries can be; let "
            f"{'it' if len(unfit) == 1 else 'them'} begin anew with `hayase reset {' '.join(unfit)} --from earliest`, or change "
            "the others first"
        )
    return needed


def rebucket(home: Home, buckets: int) -> Definition:
    """Write a version in which all stages with state are built anew in another number of buckets, beside those that run."""
    checked_buckets(buckets)
    with only_writer(home):
        current = latest(home)
        if current is None:
            raise DeclarationError(
                f"no pipeline was declared in the home {home.path} yet", "declare `buckets` in its file"
            )
        if current.build is not None:
            raise being_built(current.build)
        if buckets == current.buckets:
            return current
        declaration = current.declaration
        if declaration.buckets is not None:
            declaration = replace(declaration, buckets=buckets)
        wanted = replace(Prepared.of(current), declaration=declaration)
        stages = planned(declaration, home)
        names = _checked(stages, {stage.query for stage in stages.values() if stage.kernel is not None})
        if not names:
            return write_next(home, replace(current, buckets=buckets), wanted, another=True)
        return _write_build(current, wanted, stages, tuple(names), buckets)


def _check_inputs(stages: Mapping[str, Stage], built: set[str], later: set[str]) -> None:
    """Raise StageChanged if a stage that is built reads what would only begin when the build is finished."""
    for name in built:
        for side in stages[name].inputs:
            if side.stream in later:
                raise StageChanged(
                    f'"{stages[name].query}" would be built beside what runs, and reads "{side.stream}", which is new and is '
                    f'not built beside; declare "{side.stream}" with `hayase apply` first'
                )


def _write_build(
    running: Definition, wanted: Prepared, stages: Mapping[str, Stage], names: tuple[str, ...], buckets: int
) -> Definition:
    home, version = running.home, newest_version(running.home) + 1
    declaration = _with_streams(running.declaration, wanted.declaration)
    unlike = [
        stage.query
        for name, stage in planned(declaration, home).items()
        if running.record(name).fingerprint != stage.fingerprint
    ]
    if unlike:
        raise StageChanged(
            f'the changes of streams would also change "{unlike[0]}" as it runs; apply the streams first, with the queries as '
            "they are, then the queries"
        )
    for stream in declaration.streams:
        StreamLog.ensure(home.path, stream)
    built = built_stages(stages, names, version).values()
    definition = replace(
        running,
        version=version,
        declaration=declaration,
        records=(*running.records, *(record_of(stage, version, "earliest") for stage in built)),
        build=Build(version, wanted.declaration, buckets, wanted.changes, wanted.added, wanted.dial),
    )
    save(definition)
    return definition


def _with_streams(running: PipelineDeclaration, wanted: PipelineDeclaration) -> PipelineDeclaration:
    """Return what runs with the streams that are wanted, and those that only it has."""
    known = {stream.name for stream in wanted.streams}
    others = (stream for stream in running.streams if stream.name not in known)
    return replace(running, streams=(*wanted.streams, *others))


def cancel_build(home: Home) -> Definition:
    """Write a version without the build of the newest one; what was built is removed when a lane takes it up."""
    with only_writer(home):
        current = latest(home)
        if current is None or current.build is None:
            raise DeclarationError(f"nothing is being built beside the pipeline in {home.path}", "see `hayase plan`")
        return write_next(home, current, Prepared.of(current))


def finish_build(home: Home, version: int) -> Definition | None:
    """Write the version in which the stages of a build replace those that ran, if the version with the build is still the newest;
    else None. The lane takes over their positions, state and output when it takes that version up."""
    with only_writer(home):
        current = latest(home)
        if current is None or current.version != version or current.build is None:
            return None
        generation, running = current.build.generation, current.without_build()
        built = {public_name(record.name) for record in current.records if is_build(record.name)}
        stages = planned(current.build.declaration, home)
        kept = [record for record in running.records if record.name not in built]
        adopted = [record_of(stages[name], generation, "earliest") for name in stages if name in built]
        switched = replace(current, records=(*kept, *adopted), buckets=current.build.buckets)
        return write_next(home, switched, Prepared.of(current.build))
