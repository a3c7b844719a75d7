"""YAML files as trees of nodes with their positions, read with the safe loader only.

`compose` returns the tree, or raises a `DeclarationError` with line and column. The cost of a hostile file is bounded: its
depth and the number of its values are limited, including values that aliases repeat. `Written` returns the position in the
file of any character of a scalar, however the scalar is quoted or folded. Lines and columns count from 1. Readers of one kind
of file derive from `NodeReading`, which collects mistakes and continues.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import yaml

from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError, Mistake

__all__ = [
    "NodeReading",
    "Place",
    "Written",
    "compose",
    "file_text",
    "is_null",
    "key_text",
    "kind_of",
    "place_of",
    "text_of",
]

_LARGEST = 1_000_000
_NULL = "tag:yaml.org,2002:null"
_DEEPEST = 20
_MOST = 50_000
_IMPLICIT = ("str", "int", "float", "bool", "null", "timestamp", "map", "seq", "value", "merge")
_TAGS = {f"tag:yaml.org,2002:{name}" for name in _IMPLICIT}
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
_NAME = re.compile(r"[\w .-]{1,64}")
_DOUBLE_QUOTED = re.compile(r"\\(?:x.{2}|u.{4}|U.{8}|\r\n|.)|.", re.DOTALL)
_ITSELF, _DEEP, _MANY, _TAGGED = "contains itself", "nested too deep", "too many values", "a tag"
_IN_PLAIN_WORDS = (
    ("found character '\\t'", "a tab cannot stand here", "indent with spaces"),
    (
        "mapping values are not",
        'a ":" cannot stand here',
        'quote a value that has ": " in it; end the key above with ":"',
    ),
    ("could not find expected ':'", 'a ":" is missing after a key', 'write "key: value", with a space after the colon'),
    ("expected <block end>", "the indentation does not fit the lines above", "indent the keys of one block alike"),
    ("found unexpected end of stream", "a quote is not closed", "close it, or write the text after |"),
    ("expected ',' or '}'", 'a "{" is not closed', "write it like {age: 7 days, size: 10 GB}"),
    ("expected ',' or ']'", 'a "[" is not closed', "close it"),
    ("but found another document", "the file holds more than one document", 'remove the "---" between them'),
    ("found undefined alias", "this alias (*) stands for nothing", "put a value that begins with * in quotes"),
    ("cannot start any token", "this character cannot begin a value", "put the value in quotes"),
    (_ITSELF, "this alias (*) stands for a value that contains it", "write the value out"),
    (_DEEP, f"values are nested more than {_DEEPEST} deep", "a pipeline file is flat"),
    (_MANY, f"the file holds more than {_MOST:,} values", "if it is not a file of records, its aliases (*) multiply"),
    (_TAGGED, "tags (!) have no meaning in this file", "remove it, or put a value that begins with ! in quotes"),
)
_OPENED = ("found unexpected end of stream", "expected ',' or")
"""Problems that are reported at the start of the construct that is not closed."""


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a file."""

    line: int
    column: int


class _Loader(yaml.SafeLoader):
    """The safe loader, with limits on depth and on repetition by aliases."""

    def __init__(self, text: str):
        super().__init__(text)
        self._depth = self._count = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if self._depth >= _DEEPEST:
            _refuse(_DEEP, event)
        before = self._count
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent):
            if id(node) not in self._sizes:
                _refuse(_ITSELF, event)
            self._count += self._sizes[id(node)]
        else:
            self._count += 1
            self._sizes[id(node)] = self._count - before
        if self._count > _MOST:
            _refuse(_MANY, event)
        if node is not None and node.tag not in _TAGS:
            _refuse(_TAGGED, event)
        return node


def _refuse(problem: str, event: Any) -> NoReturn:
    raise yaml.composer.ComposerError(None, None, problem, event.start_mark)


def compose(text: str) -> yaml.Node | None:
    """Return the root node of a YAML document, or None if the document is empty.

    >>> compose("a: [1, 2")
    Traceback (most recent call last):
    hayase.core.errors.DeclarationError: 1:4: a "[" is not closed; close it
    """
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        place = _place(text, error.position)
        message = f"the character U+{ord(text[error.position]):04X} cannot stand in a YAML file"
        raise DeclarationError([Mistake(message, "remove it", None, place.line, place.column)]) from error
    try:
        return loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        problem = error.problem or ""
        opened = any(fragment in problem for fragment in _OPENED)
        mark = (opened and error.context_mark) or error.problem_mark or error.context_mark
        raise DeclarationError([_translated(text, problem, mark.index if mark else 0)]) from error
    except (ValueError, OverflowError) as error:  # an escape like "\UFFFFFFFF" in double quotes
        place = _place(text, loader.index)
        message = "an escape in a quoted text is not a character"
        raise DeclarationError([Mistake(message, "correct it", None, place.line, place.column)]) from error
    finally:
        loader.dispose()


def _translated(text: str, problem: str, index: int) -> Mistake:
    place = _place(text, index)
    for fragment, message, hint in _IN_PLAIN_WORDS:
        if fragment in problem:
            return Mistake(message, hint, None, place.line, place.column)
    return Mistake(f"this is not valid YAML: {problem}", None, None, place.line, place.column)


def place_of(node: yaml.Node, source: str) -> Place:
    """Return the start of a node."""
    return _place(source, node.start_mark.index)


def _place(source: str, index: int) -> Place:
    index = min(index, len(source))
    return Place(source.count("\n", 0, index) + 1, index - source.rfind("\n", 0, index))


@dataclass(frozen=True, slots=True)
class Written:
    """The text of a scalar, and for each of its characters the index in the file's source."""

    text: str
    indexes: tuple[int, ...]
    source: str

    @classmethod
    def of(cls, node: yaml.ScalarNode, source: str) -> Written:
        """Align a scalar with its source: apart from white space, both have the same characters in the same order."""
        written = [index for index, blank in _characters(node, source) if not blank]
        end = written[-1] + 1 if written else node.start_mark.index
        indexes: list[int] = []
        following = end
        for character in reversed(node.value):
            if not character.isspace() and written:
                following = written.pop()
            indexes.append(following)
        return cls(node.value, (*reversed(indexes), end), source)

    def place(self, line: int = 1, column: int = 1) -> Place:
        """Return the position in the file of a position in the text; past the end of a line or of the text, the next one."""
        starts = [0, *(match.end() for match in re.finditer("\n", self.text))]
        start = starts[min(max(line, 1), len(starts)) - 1]
        at = min(start + max(column, 1) - 1, len(self.text))
        return _place(self.source, self.indexes[at])


def _characters(node: yaml.ScalarNode, source: str) -> Iterator[tuple[int, bool]]:
    """Yield the index of every character of a scalar in the source, and whether the character is white space."""
    start, end = node.start_mark.index, min(node.end_mark.index, len(source))
    properties = _PROPERTIES.match(source, start, end)
    start = properties.end() if properties else start
    if node.style == '"':
        for match in _DOUBLE_QUOTED.finditer(source, start + 1, end - 1):
            meaning = _meaning(match[0])
            yield match.start(), meaning.isspace() or not meaning
    elif node.style == "'":
        for match in re.compile("''|.", re.DOTALL).finditer(source, start + 1, end - 1):
            yield match.start(), match[0].isspace()
    else:
        if node.style in ("|", ">"):
            start = source.find("\n", start, end) + 1 or end
        yield from ((index, source[index].isspace()) for index in range(start, end))


def _meaning(written: str) -> str:
    """Return the character that an escape stands for; for an escaped line break, an empty text."""
    if not written.startswith("\\"):
        return written
    if written[1] in _Loader.ESCAPE_CODES:
        return chr(int(written[2:], 16))
    return _Loader.ESCAPE_REPLACEMENTS.get(written[1], "")


def is_null(node: yaml.Node) -> bool:
    """Return whether a node has no value."""
    return isinstance(node, yaml.ScalarNode) and node.tag == _NULL


def kind_of(node: yaml.Node) -> str:
    """Return what kind of value a node has, for an error message.

    >>> kind_of(compose("[1, 2]"))
    'a list'
    """
    if isinstance(node, yaml.ScalarNode):
        return "nothing" if is_null(node) else "text"
    return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"


def key_text(name: str) -> str:
    """Return a key as errors quote it. A key that does not look like a name may be a line of another file: it is not shown.

    >>> key_text("slack"), key_text("root:*:19000")
    ('"slack"', 'a key of 12 characters that is not a name')
    """
    return f'"{name}"' if _NAME.fullmatch(name) else f"a key of {len(name)} characters that is not a name"


def text_of(node: yaml.Node) -> str:
    """Return the text of a scalar; raise a DeclarationError if there is none."""
    if not isinstance(node, yaml.ScalarNode):
        raise DeclarationError(f"this must be text, not {kind_of(node)}", "write it after the colon")
    if is_null(node) or not node.value:
        raise DeclarationError("there is no value", "write one after the colon, or remove the key")
    if any("\ud800" <= character <= "\udfff" for character in node.value):
        raise DeclarationError("the text holds half a character (a lone surrogate)", "correct the escape")
    return str(node.value)


class NodeReading:
    """One pass over the nodes of a source. It collects mistakes with their positions, and continues after a mistake."""

    def __init__(self, source: str = ""):
        self.source = source
        self.mistakes: list[Mistake] = []

    def wrong(self, node: yaml.Node, message: str, hint: str | None = None) -> None:
        """Note a mistake at the start of a node."""
        place = place_of(node, self.source)
        self.mistakes.append(Mistake(message, hint or None, None, place.line, place.column))

    def is_foreign(self, node: yaml.Node, keys: Iterable[str], what: str, example: str) -> bool:
        """Return whether a mapping has none of these keys, and so belongs to another kind of file; note that as a mistake.

        The message quotes nothing: its reader may have no access to the file.
        """
        if not isinstance(node, yaml.MappingNode) or not node.value:
            return False
        known = set(keys)
        if any(isinstance(key, yaml.ScalarNode) and key.value in known for key, _ in node.value):
            return False
        self.wrong(node, f"this is no {what}", example)
        return True

    def entries(self, node: yaml.MappingNode, where: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """Return key -> (node of the key, node of the value); note keys that are not names and keys that occur twice."""
        entries: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.wrong(key, f"a key in {where} is {kind_of(key)}", "a key is a name")
            elif key.value in entries:
                line = place_of(entries[key.value][0], self.source).line
                self.wrong(
                    key, f"{key_text(key.value)} stands twice in {where}", f"the first is in line {line}; remove one"
                )
            else:
                entries[key.value] = (key, value)
        return entries


def file_text(path: Path, kind: str, missing: str) -> str:
    """Return the text of a file of that kind, such as "pipeline"; `missing` is the hint if the file does not exist."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except FileNotFoundError as error:
        raise DeclarationError("there is no such file", missing) from error
    except IsADirectoryError as error:
        raise DeclarationError("this is a directory", f"give the {kind} file in it") from error
    except OSError as error:
        raise DeclarationError(f"the file cannot be read: {error.strerror}", "check its permissions") from error
    if len(data) > _LARGEST:
        raise DeclarationError(f"the file is larger than 1 MB, which no {kind} is", "is it a file of records?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DeclarationError([Mistake("the file is not UTF-8 text", "save it as UTF-8", line=line)]) from error
