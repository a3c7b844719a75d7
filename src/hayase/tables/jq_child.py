"""The child process in which libjq runs. It is started by its path and imports next to nothing.

Arguments: the directory of the `jq` package, seconds of CPU time per event, bytes of memory, most results per event,
most bytes of results per event, the file descriptor of the progress. It reads frames (`hayase.core.frames`: a letter, eight bytes
of length, little-endian, then the bytes) from stdin and writes frames to stdout:

- `C`, the number of a program, a line break, its text: compiles the program; answers `=`, or `!` and the error;
- `E`, the number of a program, a line break, JSON documents, one per line: evaluates the program for each. It answers in frames
  `A` of at most `GROUP` lines, one line per document: `=` and the results as JSON, separated by tabs, or `!` and the reason.

The progress is eight bytes of memory shared with the parent: the number of the current document. It tells the parent which document
caused the end of this process: by SIGPROF when the CPU time of an event is used up, by libjq itself when memory is. The process
also ends at the end of stdin, or when its parent is gone.
"""

from __future__ import annotations

import importlib
import mmap
import os
import resource
import select
import signal
import struct
import sys
from typing import Any

GROUP = 64
IDLE = -1
DEEPEST = 100
"""How deep arrays and objects in a result may be nested."""
_HEAD = struct.Struct("<cQ")
_FILES = 16
_LOOK = 5.0


def main(arguments: list[str]) -> None:
    """Serve until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pipeline, which finishes its batch
    directory, seconds, memory, most, largest, progress_file = arguments
    sys.path.append(directory)
    jq = importlib.import_module("jq")
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for limit, value in (
        (resource.RLIMIT_AS, int(memory)),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, _FILES),
    ):
        resource.setrlimit(limit, (value, value))
    with mmap.mmap(int(progress_file), 8) as progress:
        serve(jq, float(seconds), int(most), int(largest), progress)


def serve(jq: Any, seconds: float, most: int, largest: int, progress: Any) -> None:
    """Answer frames until stdin ends or the parent is gone."""
    parent = os.getppid()
    programs: dict[bytes, Any] = {}
    while True:
        frame = read_frame(parent)
        if frame is None:
            return
        letter, content = frame
        name, _, body = content.partition(b"\n")
        if letter == b"C":
            signal.setitimer(signal.ITIMER_PROF, seconds)
            programs[name], mistake = compiled(jq, body.decode())
            signal.setitimer(signal.ITIMER_PROF, 0)
            write_frame(b"=" if mistake is None else b"!", mistake or "")
            continue
        program = programs[name]
        lines: list[str] = []
        for number, document in enumerate(body.decode().split("\n")):
            if os.getppid() != parent:
                return
            struct.pack_into("<q", progress, 0, number)
            signal.setitimer(signal.ITIMER_PROF, seconds)
            lines.append(evaluated(program, document, most, largest))
            if len(lines) == GROUP:
                signal.setitimer(signal.ITIMER_PROF, 0)
                write_frame(b"A", "\n".join(lines))
                lines.clear()
        signal.setitimer(signal.ITIMER_PROF, 0)
        struct.pack_into("<q", progress, 0, IDLE)
        if lines:
            write_frame(b"A", "\n".join(lines))


def compiled(jq: Any, program: str) -> tuple[Any, str | None]:
    """Compile a program so that it writes its results as JSON, which keeps the digits of numbers; return it, or None and the error.

    It is first compiled as it is, since only a complete program may be put into parentheses. The line breaks end a comment.
    """
    try:
        jq.compile(program)
        return jq.compile(f"({program}\n\n)|tojson"), None
    except ValueError as error:
        return None, str(error)


def evaluated(program: Any, document: str, most: int, largest: int) -> str:
    """Evaluate a program for one document and return the line of the answer."""
    results: list[str] = []
    size = 0
    try:
        for text in program.input_text(document):
            results.append(text)
            size += len(text)
            if len(results) > most:
                return f"!it gives more than {most:,} results"
            if size > largest:
                return f"!its results are larger than {largest:,} bytes"
            if text.count("[") + text.count("{") > DEEPEST and depth(text) > DEEPEST:
                return f"!a result is nested more than {DEEPEST} deep"
    except ValueError as error:
        return "!" + str(error)[:500].replace("\n", " ")
    return "=" + "\t".join(results)


def depth(text: str) -> int:
    """Return how deep arrays and objects are nested in a JSON text."""
    deepest = level = 0
    quoted = escaped = False
    for character in text:
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character in "[{":
            level += 1
            deepest = max(deepest, level)
        elif character in "]}":
            level -= 1
    return deepest


def read_frame(parent: int) -> tuple[bytes, bytes] | None:
    """Return the next frame; None at the end of stdin or when the parent is gone."""
    head = read_exactly(_HEAD.size, parent)
    if head is None:
        return None
    letter, size = _HEAD.unpack(head)
    body = read_exactly(size, parent)
    return None if body is None else (letter, body)


def read_exactly(size: int, parent: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        # another process may hold the other end of the pipe open, so also check that the parent is alive
        while not select.select([0], [], [], _LOOK)[0]:
            if os.getppid() != parent:
                return None
        part = os.read(0, min(size - len(data), 1 << 20))
        if not part:
            return None
        data += part
    return bytes(data)


def write_frame(letter: bytes, text: str) -> None:
    data = text.encode("utf-8", "replace")
    data = _HEAD.pack(letter, len(data)) + data
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    main(sys.argv[1:])
