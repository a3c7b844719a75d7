"""Finds the pipeline of a command, by its file or its home, and its streams and tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hayase.core.errors import HayaseError

if TYPE_CHECKING:
    from hayase.core.declarations import TableDeclaration
    from hayase.engine.home import Home
    from hayase.pipeline import Pipeline
    from hayase.streams import Index, StreamLog
    from hayase.tables.table import Table

__all__ = [
    "DEFAULT",
    "home_of",
    "index_of",
    "kind_of",
    "locate",
    "log_of",
    "names_of",
    "reading",
    "table_of",
    "tables_of",
]

DEFAULT = Path("pipeline.yaml")


def locate(file: Path | None, home: Path | None, *, whole: bool = False) -> Pipeline:
    """Return the pipeline of a file; without a file, of an existing home; without that, of ./pipeline.yaml.

    Its queries are checked, which takes a second, only for a command about the `whole` pipeline. A home that is a file, or has
    another format, is an error: its streams and tables would look empty.
    """
    from hayase.streams.home_format import check_home

    pipeline = _located(file, home, whole)
    check_home(pipeline.home.path)
    return pipeline


def home_of(file: Path | None, home: Path | None) -> Home:
    """Return the home itself, without what is declared in it: the one that is named, or that of the file or ./pipeline.yaml."""
    found = home_to_be(file, home)
    if home is None and not found.path.is_dir():
        raise HayaseError(f'the home "{found.path}" of {file or DEFAULT} does not exist yet; `hayase run` creates it')
    if not found.path.is_dir():
        raise HayaseError(f'there is no directory "{home}"; name the home of a pipeline')
    return found


def home_to_be(file: Path | None, home: Path | None) -> Home:
    """Return the home as `home_of` does, whether it exists yet or not."""
    from hayase.core.pipeline_file import read_pipeline
    from hayase.engine.home import Home

    if home is None:
        if file is None and not DEFAULT.exists():
            raise HayaseError(
                "there is no pipeline.yaml here; name the pipeline's file with -p FILE or its home with --home DIR"
            )
        home = read_pipeline(file or DEFAULT).home
    return Home(home.absolute())


def _located(file: Path | None, home: Path | None, whole: bool) -> Pipeline:
    from hayase.core.pipeline_file import read_pipeline
    from hayase.pipeline import Pipeline
    from hayase.pipeline import open as open_home

    if file is None and home is not None and (home / "streams").is_dir():
        return open_home(home)
    if file is None and not DEFAULT.exists():
        what = "there is no pipeline.yaml here" if home is None else f'"{home}" is not the home of a pipeline'
        raise HayaseError(f"{what}; name the pipeline's file with -p FILE or its home with --home DIR")
    if whole:
        return Pipeline.from_file(file or DEFAULT, home)
    read = read_pipeline(file or DEFAULT)
    pipeline = Pipeline(read.declaration.name, home if home is not None else read.home)
    pipeline.declaration = read.declaration
    return pipeline


def names_of(pipeline: Pipeline) -> list[str]:
    """Return all streams: declared ones, outputs of stages, then others in the home, internal ones last."""
    from hayase.core.stages import is_build

    declaration = pipeline.declaration
    sections = (declaration.streams, declaration.queries, declaration.jobs, declaration.operations)
    declared = [entry.name for section in sections for entry in section]
    stored = sorted(path.parent.name for path in (pipeline.home.path / "streams").glob("*/stream.json"))
    others = [name for name in stored if name not in declared and not is_build(name)]
    return [*declared, *sorted(others, key=lambda name: name.startswith("_"))]


def kind_of(pipeline: Pipeline, name: str) -> str:
    """Return the kind of a stream: dead letters, results, stream, or not declared any more."""
    from hayase.streams.dead_letters import DEAD

    if name == DEAD.name:
        return "dead letters"
    declaration = pipeline.declaration
    if name in _added(pipeline) or any(
        entry.name == name
        for section in (declaration.queries, declaration.jobs, declaration.operations)
        for entry in section
    ):
        return "results"
    return "stream" if any(stream.name == name for stream in declaration.streams) else "not declared any more"


def _added(pipeline: Pipeline) -> set[str]:
    """Return the queries and operations that commands have added; none if the newest definition cannot be read."""
    from hayase.engine.definition.definitions import latest

    try:
        newest = latest(pipeline.home)
    except HayaseError:  # a command that needs the definition reports it
        return set()
    if newest is None:
        return set()
    return {*newest.added, *(change.name for change in newest.changes if change.now is not None)}


def index_of(log: StreamLog) -> Index:
    """Return the index of a log; a log that does not exist yet is empty."""
    from hayase.core.times import BEGINNING
    from hayase.streams import Index

    return log.index() if log.path.exists() else Index((), 0, 0, BEGINNING, BEGINNING)


def log_of(pipeline: Pipeline, name: str) -> StreamLog:
    """Return the log of a stream for reading, without creating it: a declared stream without records is empty."""
    from hayase.core.declarations import StreamDeclaration
    from hayase.core.errors import UnknownName
    from hayase.engine.definition.check import check
    from hayase.streams import StreamLog
    from hayase.streams.dead_letters import DEAD

    home = pipeline.home.path
    if (home / "streams" / name / "stream.json").exists():
        return StreamLog.open(home, name)
    outputs = (stage.output for stage in check(pipeline.declaration))
    results = (output for output in outputs if isinstance(output, StreamDeclaration))
    for declaration in (*pipeline.declaration.streams, *results, DEAD):
        if declaration.name == name:
            return StreamLog(home, declaration)
    raise UnknownName("stream", name, names_of(pipeline))


def tables_of(pipeline: Pipeline) -> list[TableDeclaration]:
    """Return all tables as they are stored: by the definition that ran last; before a run, as they are declared."""
    from hayase.engine.definition.definitions import load

    ran = pipeline.progress().offset.definition
    there = load(pipeline.home, ran).declaration.tables if ran else ()
    known = {table.name: table for table in (*pipeline.declaration.tables, *there)}
    return list(known.values())


def table_of(pipeline: Pipeline, name: str) -> TableDeclaration:
    """Return the table with a name."""
    from hayase.core.errors import UnknownName

    known = {table.name: table for table in tables_of(pipeline)}
    if not known:
        what = f'the pipeline "{pipeline.declaration.name}" has no tables'
        raise HayaseError(f'{what}; declare "{name}" below "tables:" in its file, and rules that fill it')
    if name not in known:
        if name in names_of(pipeline):
            raise HayaseError(f'"{name}" is a stream, not a table; `hayase show {name}` shows it')
        raise UnknownName("table", name, known)
    return known[name]


@contextmanager
def reading(pipeline: Pipeline, table: TableDeclaration) -> Iterator[Table]:
    """Open a table for reading inside the block, whether or not the pipeline runs; all reads see the same state."""
    from hayase.engine.commit.manifests import check_table_read
    from hayase.tables.table import open_reader

    reader = open_reader(pipeline.home.table(table.name), table)
    try:
        check_table_read(pipeline.home, reader)
        yield reader
    finally:
        reader.close()
