"""Reads the window in brackets after a stream.

[Range 10 seconds]    [Range 1 minute Slide 10 seconds]    [Rows 5]    [Rows 5 Slide 2]    [Now]
[Partition By a, b Rows 3]    [Partition By a Rows 3 Slide 3]    [Unbounded]    [Range Unbounded]
[Rows 3 Order By a, b desc]    [Partition By a Rows 1 Order By b nulls first]
[Rows 10, 13, 19, 40 Slide 2]    [Range 1 minute, 1 hour Slide 10 seconds]    [Partition By a Rows 3, 30]
[Range 1 day Slide 1 day Offset 9 hours]    [Tumble 10 minutes]    [Hop 10 minutes Every 1 minute]
[Cumulate 1 hour By 10 minutes]    [Partition By a Session 30 minutes]    [Tumble 1 hour Offset 9 minutes Keep 1 day Early 1 minute]
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from sqlglot import tokenize

from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError, HayaseError
from hayase.core.times import END, duration
from hayase.cql.syntax import Part, WindowText
from hayase.lifetimes.plans import WindowKind

__all__ = ["WINDOWS", "read_window"]

WINDOWS = (
    "[Range 10 seconds]", "[Rows 5]", "[Partition By k Rows 5]", "[Now]", "[Unbounded]", "[Tumble 10 seconds]",
    "[Hop 1 minute Every 10 seconds]", "[Cumulate 1 hour By 1 minute]", "[Session 10 seconds]",
)  # fmt: skip
"""An example of every kind of window."""
_FORMS = f"{', '.join(WINDOWS[:-1])} or {WINDOWS[-1]}"
_BOUNDED: dict[str, WindowKind] = {"tumble": "tumble", "hop": "hop", "cumulate": "cumulate", "session": "session"}
_STEP = {"hop": "every", "cumulate": "by"}
"""The word before the step of a window with bounds."""
_WRITTEN = {
    "tumble": "[Tumble 10 minutes]",
    "hop": "[Hop 10 minutes Every 1 minute]",
    "cumulate": "[Cumulate 1 hour By 10 minutes]",
    "session": "[Session 30 minutes]",
}
_OPTIONS = ("offset", "keep", "early")
_WORDS = ("range", "rows", "partition", "by", "slide", "order", "now", "unbounded", *_BOUNDED)
_NUMBER = re.compile(r"-?\d+")


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of a window: as written, and in lower case."""

    part: Part
    word: str


def read_window(brackets: Part) -> WindowText:
    """Read the window between two brackets. Raise DeclarationError if it is wrong.

    >>> window = read_window(Part("[Range 1 minute Slide 10 seconds]", 1, 1))
    >>> window.kind, window.length, window.slide
    ('range', 60000000, 10000000)
    >>> read_window(Part("[Row 5]", 1, 17))
    Traceback (most recent call last):
    hayase.core.errors.DeclarationError: 1:18: "Row" does not begin a window; did you mean "Rows"?
    """
    words, order = _split_at_order(_words(brackets)[1:-1])
    if order and not any(item.word == "rows" for item in words):
        raise _error(
            order[0].part, "Order By is for windows by rows", "write it like [Rows 5 Order By a] or leave it out"
        )
    if not words:
        raise _error(brackets, "a window is missing between the brackets", f"write {_FORMS}")
    window = _window(brackets, words)
    return replace(window, order=_order(order)) if order else window


def _window(brackets: Part, words: Sequence[_Word]) -> WindowText:
    first, rest = words[0], words[1:]
    if first.word in ("now", "unbounded") and not rest:
        return WindowText(brackets, "range" if first.word == "now" else "unbounded")
    if first.word == "range" and [item.word for item in rest] == ["unbounded"]:
        return WindowText(brackets, "unbounded")
    if first.word in ("now", "unbounded"):
        raise _error(rest[0].part, f'"{rest[0].part.text}" cannot follow {first.word.capitalize()}', f"write {_FORMS}")
    if first.word == "range":
        return _range(brackets, first, rest)
    if first.word == "rows":
        return _rows(brackets, (), first, rest)
    if first.word == "partition":
        return _partition(brackets, rest)
    if first.word in _BOUNDED:
        return _bounded(brackets, (), first, rest)
    close = difflib.get_close_matches(first.word, _WORDS, n=1)
    hint = f'did you mean "{close[0].capitalize()}"?' if close else f"write {_FORMS}"
    raise _error(first.part, f'"{first.part.text}" does not begin a window', hint)


def _split_at_order(words: Sequence[_Word]) -> tuple[Sequence[_Word], Sequence[_Word]]:
    """Return the words before Order By, and Order By with the words after it."""
    pairs = pairwise(words)
    at = next((at for at, (item, after) in enumerate(pairs) if (item.word, after.word) == ("order", "by")), len(words))
    return words[:at], words[at:]


def _order(words: Sequence[_Word]) -> tuple[tuple[Part, bool, bool], ...]:
    """Read Order By: columns, each with ASC or DESC and NULLS FIRST or LAST if they are written."""
    entries: list[tuple[Part, bool, bool]] = []
    for entry in _split_at_commas(words[2:]):
        following = " ".join(item.word for item in entry[1:])
        match = re.fullmatch(r"(asc|desc)? ?(nulls (first|last))?", following)
        if not entry or not _is_name(entry[0].part) or match is None:
            place = entry[0].part if entry else words[0].part
            raise _error(place, "Order By takes columns", "write them like [Rows 5 Order By a, b desc nulls first]")
        entries.append((entry[0].part, match[1] == "desc", match[3] == "first"))
    return tuple(entries)


def _words(brackets: Part) -> list[_Word]:
    words = []
    for token in tokenize(brackets.text, dialect="duckdb"):
        written = brackets.text[token.start : token.end + 1]
        pieces = [written] if written[0] == '"' else written.split()  # "partition by" is one token
        at = token.start
        for piece in pieces:
            at = brackets.text.index(piece, at)
            words.append(_Word(brackets.piece(at, at + len(piece)), piece.lower()))
    return words


def _split_at_slide(words: Sequence[_Word]) -> tuple[Sequence[_Word], _Word | None, Sequence[_Word]]:
    """Return the words before Slide, the word Slide if there is one, and the words after it."""
    for at, item in enumerate(words):
        if item.word == "slide":
            return words[:at], item, words[at + 1 :]
    return words, None, ()


def _range(brackets: Part, first: _Word, rest: Sequence[_Word]) -> WindowText:
    rest, offset = _split_at_offset(rest)
    size, slide, step = _split_at_slide(rest)
    if offset and slide is None:
        raise _error(
            offset[0].part, "Offset needs Slide before it", "write it like [Range 1 day Slide 1 day Offset 9 hours]"
        )
    lengths = [
        (_duration(first, size_words), " ".join(word.part.text for word in size_words))
        for size_words in _split_at_commas(size)
    ]
    several = _check_lengths(size, lengths)
    slides = _duration(slide, step) if slide else None
    moved = _offset(offset[0], offset[1:]) % slides if offset and slides else 0
    return WindowText(brackets, "range", lengths[0][0], slides, several=several, offset=moved)


def _split_at_offset(words: Sequence[_Word]) -> tuple[Sequence[_Word], Sequence[_Word]]:
    """Return the words before Offset, and Offset with the words after it."""
    at = next((at for at, item in enumerate(words) if item.word == "offset"), len(words))
    return words[:at], words[at:]


def _offset(opening: _Word, words: Sequence[_Word]) -> int:
    """Read the duration after Offset, which may be 0 or negative."""
    negative = bool(words) and words[0].word == "-"
    try:
        moved = _duration(opening, words[1:] if negative else words)
    except DeclarationError:
        if "".join(word.part.text for word in words[negative:])[:1] != "0":
            raise
        moved = 0
    return -moved if negative else moved


def _split_at_commas(words: Sequence[_Word]) -> list[Sequence[_Word]]:
    """Split words at commas."""
    bounds = [-1, *(at for at, item in enumerate(words) if item.word == ","), len(words)]
    return [words[start + 1 : end] for start, end in pairwise(bounds)]


def _check_lengths(
    words: Sequence[_Word], lengths: Sequence[tuple[int, int | str]]
) -> tuple[tuple[int, int | str], ...]:
    """Return the lengths and their names if there is more than one; refuse duplicates."""
    for at, (length, written) in enumerate(lengths):
        if any(length == other for other, _ in lengths[:at]):
            raise _error(words[0].part, f"the window of {written} is named twice", "name every length once")
    return tuple(lengths) if len(lengths) > 1 else ()


def _duration(opening: _Word, words: Sequence[_Word]) -> int:
    after = f"after {opening.word.capitalize()}"
    if not words:
        raise _error(opening.part, f"a duration is missing {after}", "write it like 10 seconds")
    if words[0].word == "-":
        raise _error(words[0].part, f"the duration {after} is negative", "it must be longer than 0")
    text = " ".join(word.part.text for word in words)
    try:
        microseconds = duration(text)
    except HayaseError as error:
        raise _error(words[0].part, error.problem, error.remedy) from None
    if microseconds <= 0:
        raise _error(words[0].part, f"the duration {after} is 0", "it must be longer; [Now] is as short as can be")
    return microseconds


def _rows(brackets: Part, partition: tuple[Part, ...], first: _Word, rest: Sequence[_Word]) -> WindowText:
    size, slide, step = _split_at_slide(rest)
    counts = [_count(first, size_words) for size_words in _split_at_commas(size)]
    several = _check_lengths(size, [(count, count) for count in counts])
    return WindowText(brackets, "rows", counts[0], _count(slide, step) if slide else None, partition, several)


def _count(opening: _Word, words: Sequence[_Word]) -> int:
    after = f"after {opening.word.capitalize()}"
    if not words:
        raise _error(opening.part, f"a number of rows is missing {after}", "write it like Rows 5")
    text = "".join(word.part.text for word in words)
    if not _NUMBER.fullmatch(text):
        written = " ".join(word.part.text for word in words)
        raise _error(words[0].part, f'"{written}" is not a number of rows', "write it like Rows 5 or Rows 5 Slide 2")
    if not 1 <= int(text) < 2**31:
        raise _error(words[0].part, f"{text} is not a number of rows {after}", "give 1 or more, below 2147483648")
    return int(text)


def _partition(brackets: Part, rest: Sequence[_Word]) -> WindowText:
    if not rest or rest[0].word != "by":
        place = rest[0].part if rest else brackets
        raise _error(place, "Partition must be followed by By", "write it like [Partition By k Rows 5]")
    at = next((at for at, item in enumerate(rest) if item.word in ("rows", *_BOUNDED) and at > 1), None)
    if at is None:
        hint = "write it like [Partition By k Rows 5] or [Partition By k Session 30 minutes]"
        raise _error(rest[0].part, "Partition By needs Rows, or a window with bounds, after its columns", hint)
    names = rest[1:at]
    columns = [item.part for item in names[::2]]
    if len(names) % 2 == 0 or any(item.word != "," for item in names[1::2]) or not all(map(_is_name, columns)):
        raise _error(names[0].part, "Partition By takes columns", "name them with commas: [Partition By a, b Rows 5]")
    read = _bounded if rest[at].word in _BOUNDED else _rows
    return read(brackets, tuple(columns), rest[at], rest[at + 1 :])


def _bounded(brackets: Part, partition: tuple[Part, ...], first: _Word, rest: Sequence[_Word]) -> WindowText:
    """Read a window with bounds: its lengths, its step if it has one, and its options in any order."""
    kind, step_word = _BOUNDED[first.word], _STEP.get(first.word)
    clauses = _clauses(rest, (step_word or "", *_OPTIONS, "slide"))
    written = f"write it like {_WRITTEN[kind]}"
    for word in clauses:
        if word.word == "slide":
            raise _error(word.part, f"Slide cannot follow {kind.capitalize()}", written)
    size = rest[: next((at for at, item in enumerate(rest) if item in clauses), len(rest))]
    lengths = [
        (_duration(first, words), " ".join(word.part.text for word in words)) for words in _split_at_commas(size)
    ]
    found = {word.word: (word, words) for word, words in clauses.items()}
    if step_word is not None and step_word not in found:
        raise _error(first.part, f"{kind.capitalize()} needs {step_word.capitalize()} after its length", written)
    step = _duration(*found[step_word]) if step_word is not None else None
    if "offset" in found and kind == "session":
        raise _error(
            found["offset"][0].part, "a session has no Offset", "it begins with its first record; leave Offset out"
        )
    for length, text in lengths:
        if kind == "cumulate" and step is not None and length % step:
            message = f"the length {text} is not a multiple of the step after By"
            raise _error(found["by"][0].part, message, written)
    aligned = step if kind == "hop" and step is not None else lengths[0][0]
    offset = _offset(*found["offset"]) if "offset" in found else 0
    return WindowText(
        brackets, kind, lengths[0][0], step, partition, _check_lengths(size, lengths),
        offset % aligned if len(lengths) == 1 or kind == "hop" else offset,
        _keep(*found["keep"]) if "keep" in found else None,
        _duration(*found["early"]) if "early" in found else None,
    )  # fmt: skip


def _clauses(words: Sequence[_Word], openings: Sequence[str]) -> dict[_Word, Sequence[_Word]]:
    """Return the words that begin a clause, each with the words up to the next one. Refuse a clause that comes twice."""
    starts = [at for at, item in enumerate(words) if item.word in openings]
    clauses: dict[_Word, Sequence[_Word]] = {}
    for start, end in pairwise([*starts, len(words)]):
        if any(known.word == words[start].word for known in clauses):
            raise _error(
                words[start].part, f"{words[start].word.capitalize()} is written twice", "leave one of them out"
            )
        clauses[words[start]] = words[start + 1 : end]
    return clauses


def _keep(opening: _Word, words: Sequence[_Word]) -> int:
    return END if [word.word for word in words] == ["unbounded"] else _duration(opening, words)


def _is_name(part: Part) -> bool:
    return bool(re.fullmatch(r'[^\W\d]\w*|"([^"]|"")+"', part.text))


def _error(part: Part, message: str, hint: str | None = None) -> DeclarationError:
    return DeclarationError([part.mistake(message, hint)])
