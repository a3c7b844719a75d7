"""Statements that are not a SELECT, recognised by their first words: settings, transactions, COPY."""

from __future__ import annotations

import re
from typing import Literal

from hayase.core.data_classes import dataclass
from hayase.wire.sql_errors import SqlError

__all__ = ["Command", "CopyOut", "command_of"]

Verb = Literal[
    "begin", "commit", "rollback", "savepoint", "set", "reset", "show", "discard", "deallocate", "copy", "select"
]
_COMMENT = re.compile(r"(?:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_SET = re.compile(
    r"set\s+(?:(?:session|local)\s+)?(time\s+zone|[\w.]+)\s*(?:=|\s+to\s+|\s)\s*(.+?)\s*", re.IGNORECASE | re.DOTALL
)
_COPY = re.compile(r"copy\s+(?:\((.*)\)|([\w.\"]+))\s+to\s+stdout\b(.*)", re.IGNORECASE | re.DOTALL)
_SUBSCRIBE = re.compile(r"\s*subscribe\s+(?:to\s+)?\"?(\w+)\"?(\s+from\s+start)?\s*", re.IGNORECASE)
_OPTIONS = {"format", "header", "delimiter", "null", "encoding", "quote", "escape"}


@dataclass(frozen=True, slots=True)
class CopyOut:
    """A COPY to the client: of a SELECT, or of the changes of a relation."""

    select: str | None
    subscribed: str | None
    from_start: bool = False
    csv: bool = False
    header: bool = False
    delimiter: str = "\t"
    null: str = "\\N"


@dataclass(frozen=True, slots=True)
class Command:
    """A statement: what it does, to which name, with which value, and the word with which its end is reported."""

    verb: Verb
    tag: str
    name: str = ""
    value: str | None = None
    copy: CopyOut | None = None


def command_of(sql: str) -> Command:
    """Return what a statement does; one that is not known is given to the reader, which refuses what is not a SELECT.

    >>> command_of("SET hayase.as_of = 'complete'").value
    'complete'
    """
    beginning = _COMMENT.match(sql)
    text = sql[beginning.end() if beginning else 0 :].rstrip().rstrip(";").rstrip()
    words = text.lower().split(None, 2)
    first = words[0] if words else ""
    second = words[1] if len(words) > 1 else ""
    if first == "begin" or (first, second) == ("start", "transaction"):
        return Command("begin", "BEGIN")
    if first in ("commit", "end"):
        return Command("commit", "COMMIT")
    if first in ("rollback", "abort"):
        return Command("savepoint" if second == "to" else "rollback", "ROLLBACK")
    if first in ("savepoint", "release"):
        return Command("savepoint", first.upper())
    if first == "set":
        return _set(text)
    if first == "reset":
        return Command("reset", "RESET", second)
    if first == "show":
        return Command("show", "SHOW", " ".join(text.split()[1:]).strip('"'))
    if first == "discard":
        return Command("discard", f"DISCARD {second.upper()}")
    if first == "deallocate":
        name = text.split()[-1].strip('"')
        return Command("deallocate", "DEALLOCATE ALL" if name.lower() == "all" else "DEALLOCATE", name)
    if first == "copy":
        return Command("copy", "COPY", copy=_copy(text))
    return Command("select", "SELECT")


def _set(text: str) -> Command:
    lower = text.lower()
    if re.match(r"set\s+(session\s+characteristics|transaction)\b", lower) or re.match(
        r"set\s+(session\s+)?role\b", lower
    ):
        return Command("set", "SET")
    found = _SET.fullmatch(text)
    if found is None:
        raise SqlError("42601", "syntax error in SET", "write SET name = value")
    name = "timezone" if found[1].lower().startswith("time") and " " in found[1] else found[1]
    value = found[2].strip()
    if value.lower() == "default":
        return Command("set", "SET", name)
    if value[:1] == "'" and value[-1:] == "'" and len(value) > 1:
        value = value[1:-1].replace("''", "'")
    return Command("set", "SET", name, value.strip('"'))


def _copy(text: str) -> CopyOut:
    found = _COPY.fullmatch(text)
    if found is None:
        raise SqlError("0A000", "only COPY ... TO STDOUT can be done here", "write COPY (SELECT ...) TO STDOUT")
    select = found[1] if found[1] is not None else f"FROM {found[2]}"
    options = _copy_options(found[3])
    csv = options.get("format", "text") == "csv"
    delimiter = options.get("delimiter", "," if csv else "\t")
    if options.get("format", "text") not in ("text", "csv") or len(delimiter) != 1:
        raise SqlError("0A000", "COPY writes text or CSV, with a delimiter of one sign")
    header, null = options.get("header", "false") in ("true", "on", "1", ""), options.get("null", "" if csv else "\\N")
    subscribed = _SUBSCRIBE.fullmatch(select)
    if subscribed is not None:
        return CopyOut(None, subscribed[1], subscribed[2] is not None, csv, header, delimiter, null)
    return CopyOut(select, None, False, csv, header, delimiter, null)


def _copy_options(text: str) -> dict[str, str]:
    """Return the options behind a COPY, as `(FORMAT csv, HEADER)` or, in the older form, as `CSV HEADER`."""
    body = text.strip()
    if body.lower().startswith("with"):
        body = body[4:].strip()
    if body.startswith("("):
        parts = [part.split(None, 1) for part in body.strip("()").split(",") if part.strip()]
        options = {part[0].lower(): (part[1] if len(part) > 1 else "").strip().strip("'") for part in parts}
        options = {name: value if name in ("delimiter", "null") else value.lower() for name, value in options.items()}
    else:
        words = body.lower().split()
        options = {"format": "csv"} if "csv" in words else {}
        options |= {"header": ""} if "header" in words else {}
        if set(words) - {"csv", "header", "binary"} or "binary" in words:
            raise SqlError("0A000", f'COPY has no "{body}" here', "write WITH (FORMAT csv, HEADER)")
    if unknown := set(options) - _OPTIONS:
        raise SqlError("0A000", f'COPY has no option "{min(unknown)}" here')
    return options
