"""Options of commands that serve: tokens and certificates."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from hayase.cli.terminal import errors
from hayase.core.access import Access
from hayase.core.errors import HayaseError

__all__ = ["TOKEN", "TlsCert", "TlsKey", "TokenFile", "TokensFile", "access_of", "single_token"]

TOKEN = "HAYASE_TOKEN"  # noqa: S105 - where it stands, not what it is

TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help=f"Requests need the token in FILE, or in the variable {TOKEN}; required for requests from other machines.",
        show_default=False,
    ),
]
TokensFile = Annotated[
    Path | None,
    typer.Option(
        "--tokens",
        metavar="FILE",
        help="Requests need one of the tokens in FILE: lines `NAME ROLES TOKEN` with the roles read, append, operate. It is read "
        "again when it changes.",
        show_default=False,
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert",
        metavar="FILE",
        help="Serve HTTP by TLS, and offer it for SQL, with this certificate (PEM); it is read again when it changes.",
        show_default=False,
    ),
]
TlsKey = Annotated[
    Path | None,
    typer.Option(
        "--tls-key", metavar="FILE", help="The key of the certificate, if not in the same file.", show_default=False
    ),
]


def access_of(
    token_file: Path | None, tokens: Path | None, tls_cert: Path | None, tls_key: Path | None, *, is_served: bool
) -> Access:
    """Return who may ask; BadParameter if an option has no use, because nothing is served or it lacks another one."""
    for given, name in ((token_file, "--token-file"), (tokens, "--tokens"), (tls_cert, "--tls-cert")):
        if given is not None and not is_served:
            raise typer.BadParameter("this is for requests; give --serve or --sql too", param_hint=name)
    if tls_key is not None and tls_cert is None:
        raise typer.BadParameter("a key belongs to a certificate; give --tls-cert too", param_hint="--tls-key")
    return Access(single_token(token_file), tokens, tls_cert, tls_key) if is_served else Access()


def single_token(file: Path | None) -> str | None:
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
