"""The prompt of `hayase sql` on a terminal: statements of several lines, completion, colours, and a history that is kept.

Only this module imports prompt_toolkit.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import completion_is_selected, has_completions
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from hayase.cli.sql_completion import completions
from hayase.cli.sql_session import COMMANDS, Session
from hayase.cli.statement_text import is_complete
from hayase.cli.terminal import errors, output
from hayase.core.errors import HayaseError

__all__ = ["prompt"]


def prompt(session: Session) -> None:
    """Read statements and commands and run them, until Ctrl-D or `\\q`."""
    output().print(r"SQL over the last commit; \? lists commands, Ctrl-D ends", style="dim", markup=False)
    completer = _Completer(session)
    reading: PromptSession[str] = PromptSession(
        history=_history(), completer=completer, complete_while_typing=False, auto_suggest=AutoSuggestFromHistory(),
        lexer=PygmentsLexer(SqlLexer), key_bindings=_keys(), multiline=True, prompt_continuation=_continuation,
    )  # fmt: skip
    name = session.reader.home.path.name
    while not session.is_over:
        completer.forget()
        as_of = "" if session.as_of == "latest" else f" as of {session.as_of}"
        try:
            text = reading.prompt(f"{name}{as_of}> ")
        except KeyboardInterrupt:  # drops what was typed
            continue
        except EOFError:
            return
        try:
            session.run(text)
        except KeyboardInterrupt:
            errors().print("interrupted", style="dim")


def _continuation(width: int, line: int, is_soft_wrapped: int) -> str:
    return " " * max(0, width - 2) + "  "


def _keys() -> KeyBindings:
    """Enter runs what is complete, and begins another line otherwise; Alt-Enter always begins one."""
    keys = KeyBindings()

    @keys.add("enter", filter=~(has_completions & completion_is_selected))
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def _history() -> History:
    """Return the history in the user's state directory; in memory only if that cannot be written."""
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        root = base if base.is_absolute() else Path.home() / ".local" / "state"
        file = root / "hayase" / "sql_history"
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    except (OSError, RuntimeError):  # the latter if there is no home directory
        return InMemoryHistory()
    return FileHistory(str(file))


class _Completer(Completer):
    """Completes from the relations of the home, which are read again for every statement."""

    def __init__(self, session: Session):
        self._session = session
        self._columns: dict[str, list[str]] | None = None

    def forget(self) -> None:
        """Read the relations again when they are needed next."""
        self._columns = None

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        word, offered = completions(
            document.text_before_cursor, document.text, self._relations(), lambda: list(COMMANDS)
        )
        for name in offered:
            yield Completion(name, start_position=-len(word))

    def _relations(self) -> dict[str, list[str]]:
        if self._columns is None:
            try:
                relations: Any = self._session.reader.catalogue().relations
            except HayaseError:  # a statement reports it
                return {}
            self._columns = {
                relation.name if schema == "public" else f"{schema}.{relation.name}": relation.schema.names
                for (schema, _), relation in relations.items()
            }
        return self._columns
