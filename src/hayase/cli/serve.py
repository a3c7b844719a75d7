"""The command `hayase serve`, which serves a home for reading from processes apart from its pipeline."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hayase.cli.access_options import TlsCert, TlsKey, TokenFile, TokensFile, access_of
from hayase.cli.pipeline_location import home_to_be
from hayase.cli.terminal import HomeOption, Verbose, is_verbose, output
from hayase.console.log_output import log_output
from hayase.console.stop_signals import Stopping

if TYPE_CHECKING:
    from hayase.core.access import Access
    from hayase.core.addresses import Address

__all__ = ["serve", "sql_line"]

REPLICA_AT = "127.0.0.1:8422"
LOOK = 0.2
"""Seconds between two checks of the workers."""


def serve(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The pipeline file, if not ./pipeline.yaml.", show_default=False),
    ] = None,
    home: HomeOption = None,
    address: Annotated[
        str, typer.Option("--address", metavar="HOST:PORT", help="Serve at this address; port 0 takes any free port.")
    ] = REPLICA_AT,
    sql: Annotated[
        str | None,
        typer.Option(
            "--sql",
            metavar="HOST:PORT",
            help="Serve SQL by PostgreSQL's protocol at this address too.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", min=1, max=64, help="Processes that share the address.")
    ] = 1,
    token_file: TokenFile = None,
    tokens: TokensFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    verbose: Verbose = False,
) -> None:
    """Serve a home for reading, apart from its pipeline, whether that runs or not; until Ctrl-C.

    Tables, queries, streams, changes, dead letters, metrics and the console, as `hayase run --serve` serves them, but read-only. It
    waits for a home that does not exist yet, and follows the pipeline through restarts, changes and resets.

    Example: [cyan]hayase serve --home shop --workers 2[/]

    With SQL: [cyan]hayase serve --home shop --sql 127.0.0.1:5433[/]
    """
    from hayase.serving.replica_process import replicas

    access = access_of(token_file, tokens, tls_cert, tls_key, is_served=True)
    place, stopping = home_to_be(file, home), Stopping()
    with log_output(verbose=is_verbose()), contextlib.ExitStack() as stack:
        running = stack.enter_context(replicas(place, address, workers=workers, access=access))
        if sql is not None:
            from hayase.wire.sql_process import sql_serving

            at = stack.enter_context(sql_serving(place, sql, access=access, log=False))
            output().print(sql_line(at, access), markup=False, soft_wrap=True)
        needed = " (requests need a token)" if access.is_secured else ""
        output().print(f"serving {place.path} at {running.url}{needed}", markup=False, soft_wrap=True)
        stack.enter_context(stopping.listening())
        while not stopping.wait(LOOK):
            running.check()


def sql_line(place: Address, access: Access) -> str:
    """Return the line that says how to ask by SQL."""
    needed = " (the password is the token, the user its name)" if access.tokens else " (the password is the token)"
    user = "NAME" if access.tokens else "hayase"
    return f"SQL at {place}{needed if access.is_secured else ''}: psql -h {place.host} -p {place.port} -U {user} hayase"
