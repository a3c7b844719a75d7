"""Refuses jq programs that have access to the outside or are not deterministic.

A batch that runs again must have the same results, on any machine. So a program has access to its event only: no environment, no
files, no further inputs, no clock, no local time zone, no output but its results. The check looks at the calls of the program
(`hayase.tables.jq_calls`): `.env`, `{env: 1}` and `"env"` are fields and texts, `"\\(env)"` is a call. A definition may not use a
refused name either. All other builtins of jq depend on their input only; a test checks the list that jq itself returns.
"""

from __future__ import annotations

from hayase.core.errors import Mistake
from hayase.tables.jq_calls import calls
from hayase.tables.jq_tokens import Token, tokens

__all__ = ["REFUSED", "refusals"]

LONGEST = 10_000
"""The most characters in a program; a rule has a line or two."""
DEEPEST = 100
"""How deep brackets and texts may be nested."""

REFUSED = {
    "env": "it reads the environment of the process",
    "$ENV": "it reads the environment of the process",
    "$__prog_args": "it reads what the process was started with",
    "input": "it reads further events",
    "inputs": "it reads further events",
    "input_filename": "it depends on how events are read",
    "input_line_number": "it depends on how events are read",
    "debug": "it writes outside of the result",
    "stderr": "it writes outside of the result",
    "halt": "it ends the process",
    "halt_error": "it ends the process",
    "import": "it reads files",
    "include": "it reads files",
    "module": "it has a meaning in files only",
    "modulemeta": "it reads files",
    "get_search_list": "it depends on the machine",
    "get_jq_origin": "it depends on the machine",
    "get_prog_origin": "it depends on the machine",
    "builtins": "it depends on the release of jq",
    "have_decnum": "it depends on how jq was built",
    "have_literal_numbers": "it depends on how jq was built",
    "now": "it reads the clock, and a batch that runs again must give the same",
    "localtime": "it depends on the time zone of the machine; gmtime does not",
    "strflocaltime": "it depends on the time zone of the machine; strftime does not",
}
"""The names of refused calls and variables, with the reasons."""
_INSTEAD = {"now": "use the time of the event", "localtime": "use gmtime", "strflocaltime": "use strftime"}


def refusals(program: str) -> list[Mistake]:
    """Return what a rule may not use, with line and column in the program.

    >>> refusals('{env: .input, at: now}')[0].message
    'jq\\'s "now" is refused here: it reads the clock, and a batch that runs again must give the same'
    """
    if len(program) > LONGEST:
        return [Mistake(f"the jq program is longer than {LONGEST:,} characters", "shorten it", None, 1, 1)]
    for index, character in enumerate(program):
        if character == "\0" or "\ud800" <= character <= "\udfff":
            return [_at(program, index, f"the character U+{ord(character):04X} cannot stand in jq", "remove it")]
    program_tokens = tokens(program)
    deep = _too_deep(program_tokens)
    if deep is not None:
        return [_at(program, deep.start, f"jq nested more than {DEEPEST} deep", "write it flatter")]
    mistakes = []
    for token in calls(program_tokens):
        if token.text in REFUSED:
            message = f'jq\'s "{token.text}" is refused here: {REFUSED[token.text]}'
            hint = _INSTEAD.get(token.text, "a rule sees its event and nothing else")
            mistakes.append(_at(program, token.start, message, hint))
    return mistakes


def _too_deep(program_tokens: tuple[Token, ...]) -> Token | None:
    """Return the first bracket or text that is nested too deep; None if there is none."""
    depth = 0
    for token in program_tokens:
        if token.kind in ("open", "interpolation") or (token.kind == "sign" and token.text in ("(", "[", "{")):
            depth += 1
            if depth > DEEPEST:
                return token
        elif token.kind in ("close", "interpolated") or (token.kind == "sign" and token.text in (")", "]", "}")):
            depth = max(depth - 1, 0)
    return None


def _at(program: str, index: int, message: str, hint: str) -> Mistake:
    line = program.count("\n", 0, index) + 1
    return Mistake(message, hint, None, line, index - program.rfind("\n", 0, index))
