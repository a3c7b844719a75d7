"""The token for requests over HTTP, as commands take it: from a file, or from a variable of the environment."""

from __future__ import annotations

import os
from pathlib import Path

from hayase.cli.terminal import errors
from hayase.core.errors import HayaseError

__all__ = ["TOKEN", "token_of"]

TOKEN = "HAYASE_TOKEN"  # noqa: S105 - where it stands, not what it is


def token_of(file: Path | None) -> str | None:
    """Return the token for requests, from the file or the environment: on the command line every user could see it."""
    if file is None:
        return os.environ.get(TOKEN) or None
    try:
        if file.stat().st_mode & 0o077:
            errors().print(f"{file} can be read by others: `chmod 600 {file}`", style="yellow", markup=False)
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise HayaseError(f'the token cannot be read from "{file}": {error}; check the name') from error
    if not token:
        raise HayaseError(f'there is no token in "{file}"; write one into it')
    return token
