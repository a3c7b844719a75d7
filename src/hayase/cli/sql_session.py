"""What statements and commands of `hayase sql` do, at the prompt and in a script: the reader, as of when, and the output."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from hayase.cli.answer_output import Form, write_answer
from hayase.cli.home_query import checked_as_of, interruptible, show_mistake
from hayase.cli.statement_text import Piece, pieces
from hayase.cli.terminal import errors, is_verbose, output
from hayase.core.errors import HayaseError, UnknownName

if TYPE_CHECKING:
    from hayase.relations import HomeReader
    from hayase.relations.relation import Relation

__all__ = ["COMMANDS", "Session"]

COMMANDS = {
    r"\d": ("[NAME]", "list the relations, or describe one"),
    r"\as_of": ("[TIME]", "ask as of an event time, of `complete` or of `latest`; without TIME, say which"),
    r"\timing": ("[on|off]", "print how long each statement takes"),
    r"\?": ("", "list these commands"),
    r"\q": ("", "end; so does Ctrl-D"),
}
"""The commands: what follows each, and what it does."""
_ENDS = ("quit", "exit")


class Session:
    """A conversation with a home. Errors are printed, and the conversation goes on."""

    def __init__(self, reader: HomeReader, form: Form):
        self.reader, self._form = reader, form
        self.as_of = checked_as_of(None)
        self._is_timed = False
        self.is_over = False
        self._commands: dict[str, Callable[[str], None]] = {
            r"\d": self._describe,
            r"\as_of": self._set_as_of,
            r"\timing": self._set_timing,
            r"\?": self._help,
            r"\q": self._end,
        }

    def run(self, text: str) -> bool:
        """Run the statements and commands of a text up to the first mistake; return whether there was none.

        Ctrl-C ends the statement that runs, and is raised then.
        """
        for piece in pieces(text):
            try:
                self._run(piece)
            except HayaseError as error:
                if is_verbose():
                    raise
                if piece.text.startswith("\\"):
                    _print_error(str(error))
                else:
                    show_mistake(self.reader, piece.text, error, text=text, start=piece.start)
                return False
            if self.is_over:
                break
        return True

    def _run(self, piece: Piece) -> None:
        if piece.text.startswith("\\"):
            name, _, argument = piece.text.partition(" ")
            if name not in self._commands:
                raise UnknownName("command", name, self._commands)
            self._commands[name](argument.strip().rstrip(";").strip())
        elif piece.text.lower() in _ENDS:
            self._end("")
        else:
            self._ask(piece.text)

    def _ask(self, sql: str) -> None:
        from hayase.relations.statement_runs import Control

        control, begun = Control(), time.monotonic()
        answer = interruptible(lambda: self.reader.statement(sql, as_of=self.as_of, control=control).table(), control)
        seconds = time.monotonic() - begun
        write_answer(answer, self._form, None)
        if self._form is Form.TABLE:
            output().print(f"({answer.num_rows:,} row{'' if answer.num_rows == 1 else 's'})", style="dim", markup=False)
        if self._is_timed:
            _print_note(f"{seconds * 1000:,.1f} ms")

    # -- commands -------------------------------------------------------------------------------------------------------
    def _describe(self, name: str) -> None:
        from hayase.console.relations_view import relation_details, relation_list

        catalogue = self.reader.catalogue()
        if not name:
            output().print(relation_list(catalogue.relations))
            return
        schema, _, own = name.replace('"', "").rpartition(".")
        relation: Relation = catalogue.find(own, schema or None)
        output().print(relation_details(relation))

    def _set_as_of(self, text: str) -> None:
        if text:
            self.as_of = checked_as_of(text.strip("'"))
        _print_note(f"as of {self.as_of}")

    def _set_timing(self, text: str) -> None:
        if text not in ("", "on", "off"):
            raise HayaseError(rf"\timing takes on or off, not {text}")
        self._is_timed = not self._is_timed if not text else text == "on"
        _print_note(f"timing is {'on' if self._is_timed else 'off'}")

    def _help(self, _: str) -> None:
        from hayase.console.listings import plain_table

        table = plain_table("command", "")
        for name, (argument, what) in COMMANDS.items():
            table.add_row(f"{name} {argument}".replace("[", r"\["), what)
        output().print(table)

    def _end(self, _: str) -> None:
        self.is_over = True


def _print_note(text: str) -> None:
    errors().print(text, style="dim", markup=False)


def _print_error(text: str) -> None:
    errors().print(text, markup=False, soft_wrap=True)
