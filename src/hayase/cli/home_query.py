"""Asks the relations of a home by SQL, whether or not its pipeline runs, without Spark."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from hayase.cli.pipeline_location import home_of
from hayase.cli.terminal import errors, is_verbose
from hayase.core.errors import HayaseError
from hayase.core.signal_event import SignalEvent

if TYPE_CHECKING:
    import pyarrow as pa

    from hayase.relations import HomeReader
    from hayase.relations.statement_runs import Control

__all__ = ["answer_home", "checked_as_of", "interruptible", "marking", "open_home", "show_mistake", "statement_of"]

_NAME = re.compile(r'\s*((?:\w+|"(?:[^"]|"")+")(?:\.(?:\w+|"(?:[^"]|"")+"))?)\s*;?\s*')
_T = TypeVar("_T")
LOOK = 0.1
"""Seconds between looks for Ctrl-C."""


def open_home(pipeline: Path | None, home: Path | None) -> HomeReader:
    """Return a reader of the home of a pipeline file, or of a home; statements may take all of this machine."""
    from hayase.relations import HomeReader, Limits

    memory = max(512 << 20, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    return HomeReader(home_of(pipeline, home).path, Limits(memory=memory, threads=os.cpu_count() or 1, seconds=None))


def answer_home(text: str, pipeline: Path | None, home: Path | None, as_of: str | None) -> pa.Table:
    """Return the answer to a statement, or all rows of the relation if the text is just a name."""
    as_of = checked_as_of(as_of)
    with open_home(pipeline, home) as reader, marking(reader, text):
        from hayase.relations.statement_runs import Control

        control = Control()
        return interruptible(
            lambda: reader.statement(statement_of(text), as_of=as_of, control=control).table(), control
        )


def statement_of(text: str) -> str:
    """Return a statement: the text, or one that asks for all of the relation if it is just a name.

    >>> statement_of("spend"), statement_of("select 1")
    ('select * from spend', 'select 1')
    """
    name = _NAME.fullmatch(text)
    return text if name is None else f"select * from {name[1]}"  # noqa: S608 - it is the text of who asks


def checked_as_of(text: str | None) -> str:
    """Return as of when to ask, `latest` by default; raise if it is not a time."""
    from hayase.core.times import instant
    from hayase.relations.home_reader import COMPLETE, LATEST

    if text is None:
        return LATEST
    if text not in (LATEST, COMPLETE) and not text.strip().lstrip("+-").isdigit():
        instant(text)
    return text


def interruptible(work: Callable[[], _T], control: Control) -> _T:
    """Return what `work` returns, which runs in another thread; Ctrl-C ends the statement, and is raised when that has ended.

    Ctrl-C only sets a mark here: raised while the thread starts, it would leave the statement running.
    """
    interrupts = SignalEvent()
    before = signal.signal(signal.SIGINT, lambda number, frame: interrupts.set())
    try:
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(work)
            while not wait([future], LOOK).done:
                if interrupts.is_set():
                    control.interrupt("the statement was interrupted")
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts.is_set():
        raise KeyboardInterrupt
    return future.result()


@contextmanager
def marking(reader: HomeReader, sql: str) -> Iterator[None]:
    """Show a mistake in a statement with its place in the text, and end the command with exit code 1."""
    from hayase.relations.statement import StatementError

    try:
        yield
    except HayaseError as error:
        from hayase.core.errors import UnknownName

        if is_verbose() or not isinstance(error, StatementError | UnknownName):
            raise
        show_mistake(reader, sql, error)
        raise typer.Exit(1) from error


def show_mistake(reader: HomeReader, sql: str, error: HayaseError, *, text: str | None = None, start: int = 0) -> None:
    """Print a mistake of a statement that begins at `start` in `text`, by default the statement itself, and mark it there."""
    from hayase.console.results_view import marked
    from hayase.console.statement_mistakes import placed, statement_mistake

    mistake = statement_mistake(error, sql, _columns(reader, sql))
    whole = sql if text is None else text
    for line in marked(whole, [placed(mistake, whole, start)]):
        errors().print(line, markup=False, soft_wrap=True)


def _columns(reader: HomeReader, sql: str) -> list[str]:
    """Return the columns of the relations that a statement reads, as far as they are known."""
    from hayase.relations.statement import parse

    try:
        catalogue = reader.catalogue()
        relations = [catalogue.find(each.name, each.schema) for each in parse(sql).asked]
    except HayaseError:
        return []
    return [name for relation in relations for name in relation.schema.names]
