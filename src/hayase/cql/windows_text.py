"""Reads the window in brackets after a stream.

[Range 10 seconds]    [Range 1 minute Slide 10 seconds]    [Rows 5]    [Rows 5 Slide 2]    [Now]
[Partition By a, b Rows 3]    [Partition By a Rows 3 Slide 3]    [Unbounded]    [Range Unbounded]
[Rows 10, 13, 19, 40 Slide 2]    [Range 1 minute, 1 hour Slide 10 seconds]    [Partition By a Rows 3, 30]
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sqlglot import tokenize

from hayase.core.errors import DeclarationError, HayaseError
from hayase.core.times import duration
from hayase.cql.syntax import Part, WindowText

__all__ = ["read_window"]

_FORMS = "[Range 10 seconds], [Rows 5], [Partition By k Rows 5], [Now] or [Unbounded]; Slide may follow a length"
_WORDS = ("range", "rows", "partition", "by", "slide", "now", "unbounded")
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
    words = _words(brackets)[1:-1]
    if not words:
        raise _error(brackets, "a window is missing between the brackets", f"write {_FORMS}")
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
    close = difflib.get_close_matches(first.word, _WORDS, n=1)
    hint = f'did you mean "{close[0].capitalize()}"?' if close else f"write {_FORMS}"
    raise _error(first.part, f'"{first.part.text}" does not begin a window', hint)


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
    size, slide, step = _split_at_slide(rest)
    lengths = [
        (_duration(first, size_words), " ".join(word.part.text for word in size_words))
        for size_words in _split_at_commas(size)
    ]
    several = _check_lengths(size, lengths)
    return WindowText(brackets, "range", lengths[0][0], _duration(slide, step) if slide else None, several=several)


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
    at = next((at for at, item in enumerate(rest) if item.word == "rows" and at > 1), None)
    if at is None:
        raise _error(rest[0].part, "Partition By needs Rows after its columns", "write it like [Partition By k Rows 5]")
    names = rest[1:at]
    columns = [item.part for item in names[::2]]
    if len(names) % 2 == 0 or any(item.word != "," for item in names[1::2]) or not all(map(_is_name, columns)):
        raise _error(names[0].part, "Partition By takes columns", "name them with commas: [Partition By a, b Rows 5]")
    return _rows(brackets, tuple(columns), rest[at], rest[at + 1 :])


def _is_name(part: Part) -> bool:
    return bool(re.fullmatch(r'[^\W\d]\w*|"([^"]|"")+"', part.text))


def _error(part: Part, message: str, hint: str | None = None) -> DeclarationError:
    return DeclarationError([part.mistake(message, hint)])
