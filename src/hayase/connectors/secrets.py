"""Secrets of connectors: read from the environment or a file when a connection is made, and kept nowhere."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hayase.core.errors import EndpointError

__all__ = ["secret_in"]


def secret_in(options: Mapping[str, Any], name: str) -> str | None:
    """Return the secret that `NAME_env` or `NAME_file` points to, None if neither is given; EndpointError if there is none."""
    variable, file = options.get(f"{name}_env"), options.get(f"{name}_file")
    if variable:
        secret = os.environ.get(variable)
        if not secret:
            raise EndpointError(
                f"{name}_env names the variable {variable}, which is not set", "set it, and start the pipeline again"
            )
        return secret
    if file:
        try:
            secret = Path(file).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeError) as error:
            raise EndpointError(f'{name}_file cannot be read from "{file}": {error}', "check the name") from error
        if not secret:
            raise EndpointError(f'there is nothing in the file "{file}" of {name}_file', "write it there")
        return secret
    return None
