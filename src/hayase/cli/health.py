"""The command `hayase health`: whether a pipeline that is served over HTTP is well, as an exit code for probes and scripts."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Annotated, Any

import typer

from hayase.cli.access_options import TOKEN, single_token
from hayase.cli.terminal import output
from hayase.core.errors import HayaseError

__all__ = ["health"]

SECONDS = 5.0
LONGEST = 1 << 20
"""Bytes of an answer that are read."""


def health(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where the pipeline is served.")] = "http://127.0.0.1:8421",
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"The token is in FILE, if not in the variable {TOKEN}.",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long to wait for an answer.")
    ] = SECONDS,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole answer of /health.")] = False,
) -> None:
    """Ask a served pipeline how it is: its state and the reason. The exit code is 0 if it is well, 1 if not or without an answer.

    It is made for the probes of containers and for scripts; Spark is not started, and the home is not read.

    Example: [cyan]hayase health[/]

    Elsewhere, with a token: [cyan]hayase health https://shop.example:8421 --token-file token.txt[/]
    """
    code, answer = _ask(url, single_token(token_file), seconds)
    if as_json:
        typer.echo(json.dumps(answer))
    else:
        said = [answer.get(name) for name in ("state", "reason", "notice")]
        output().print(": ".join(str(part) for part in said if part), markup=False, soft_wrap=True)
    if code != 200:
        raise typer.Exit(1)


def _ask(url: str, token: str | None, seconds: float) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of the answer."""
    if not url.startswith(("http://", "https://")):
        raise HayaseError(f'"{url}" is no address of HTTP; write it like http://127.0.0.1:8421')
    request = urllib.request.Request(url.rstrip("/") + "/health")  # noqa: S310 - the scheme is checked above
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a probe asks the server itself
    try:
        with opener.open(request, timeout=seconds) as response:
            code, body = int(response.status), response.read(LONGEST)
    except urllib.error.HTTPError as refusal:
        with refusal:
            code, body = refusal.code, refusal.read(LONGEST)
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise HayaseError(f"nothing answers at {url}: {reason}; is it run with --serve?") from error
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or "state" not in answer:
        detail = answer.get("detail") if isinstance(answer, dict) else None
        raise HayaseError(f"{url}/health answered {code} {detail or 'without a state'}; is that a pipeline of Hayase?")
    return code, answer
