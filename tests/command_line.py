"""Runs the command line as the entry point does, inside the test's own process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import hayase.cli
import hayase.cli.terminal


class Answer(NamedTuple):
    """The exit code, and what a command wrote."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The lines of the output, read as JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


Command = Callable[..., Answer]


def answer(capture: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *args: object) -> Answer:
    """What `hayase ARGS` says."""
    monkeypatch.setattr(sys, "argv", ["hayase", *map(str, args)])
    monkeypatch.setattr(hayase.cli.terminal, "_verbose", False)
    code: object = 0
    try:
        hayase.cli.main()
    except SystemExit as stop:
        code = stop.code
    sys.stdout.flush()
    return Answer(int(code or 0), *capture.readouterr())  # type: ignore[call-overload]
