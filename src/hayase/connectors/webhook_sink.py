"""Results as requests to a URL, at least once: POST of a JSON object with some changes, with an idempotency key.

A request is kept in the home before it is sent, and so is the position behind it when it was answered: what is sent again after a
crash has the same body and the same key, `Idempotency-Key: HOME/OUTPUT/BEGUN-NUMBER`. BEGUN is drawn when the output begins: one
whose files were removed does not use a key again.
"""

from __future__ import annotations

import urllib.error
import urllib.request
import uuid
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO

import orjson

from hayase.connectors.change_texts import change_texts
from hayase.connectors.secrets import secret_in
from hayase.connectors.sink import APPEARS, HEADS, Changes, Position, Sink, SinkSetting
from hayase.core.errors import EndpointError, PositionMoved
from hayase.engine.home import writing
from hayase.engine.results.output_positions import REQUEST, REQUEST_REMEDY
from hayase.streams import durable
from hayase.streams.records import row_texts
from hayase.streams.sealed import read_sealed, seal

__all__ = ["WebhookSink"]

SHOWN = 200
"""Characters of an answer that are shown if it is not a success."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A request that is sent elsewhere would become a GET, or carry the token to another server."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


class WebhookSink(Sink):
    """A URL that takes requests; any answer of success (200 to 299) means that the changes were taken."""

    def __init__(self, setting: SinkSetting):
        self._setting, self._options = setting, setting.options
        self._path: Path | None = None if setting.keep is None else setting.keep / "request.json"
        self._opener = urllib.request.build_opener(_NoRedirects())
        self._at: Position | None = None
        self._begun = uuid.uuid4().hex[:8]
        self.every, self.most = self._options["every"] / 1e6, self._options["most"]

    def position(self) -> Position | None:
        secret_in(self._options, "token")
        if self._path is None:
            return None
        try:
            stored = orjson.loads(read_sealed(self._path, REQUEST, REQUEST_REMEDY))
        except FileNotFoundError:
            return None
        self._at, self._begun = Position(stored["number"], stored["cursor"]), stored["begun"]
        if stored["body"] is not None:
            self._send(stored["body"].encode(), self._at.number)
            self._keep(self._at, None)
        return self._at

    def write(self, changes: Changes) -> None:
        if changes.since != self._at:
            raise PositionMoved(f"{self._at} was sent, not {changes.since}", "start the output again")
        body = self._body(changes)
        self._keep(changes.until, body)
        self._at = changes.until
        if body is not None:
            self._send(body.encode(), changes.until.number)
            self._keep(changes.until, None)

    def _body(self, changes: Changes) -> str | None:
        """Return the body of a request; None if there is nothing to send."""
        rows = changes.rows
        if self._options["emit"] == "rows":
            name, texts = "rows", row_texts(rows.filter(rows.column(APPEARS)).drop_columns(list(HEADS)))
        else:
            name, texts = "changes", list(change_texts(rows, self._setting.stream))
        if not texts and not changes.anew:
            return None
        about = {"pipeline": self._setting.pipeline, "output": self._setting.output, "number": changes.until.number}
        head = orjson.dumps({**about, "anew": changes.anew}).decode()
        return f'{head[:-1]},"{name}":[{",".join(texts)}]}}'

    def _send(self, body: bytes, number: int) -> None:
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": f"{self._setting.home}/{self._setting.output}/{self._begun}-{number}",
            "User-Agent": "hayase",
        }
        token = secret_in(self._options, "token")
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        url = self._options["url"]
        request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310 (checked in the declaration)
        try:
            with self._opener.open(request, timeout=self._options["timeout"] / 1e6) as answer:
                answer.read(1 << 20)
        except urllib.error.HTTPError as error:
            with error:
                text = error.read(SHOWN).decode("utf-8", "replace")
            raise EndpointError(f"{url} answers {error.code}: {text}", "see what it says") from error
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)  # without the words of urllib around it
            raise EndpointError(f"{url} cannot be reached: {reason}", "check the address") from error

    def _keep(self, position: Position, body: str | None) -> None:
        if self._path is None:
            return
        data = {"number": position.number, "cursor": position.cursor, "begun": self._begun, "body": body}
        with writing(f"the request of output {self._setting.output}"):
            durable.make_directory(self._path.parent)
            durable.write_atomic(self._path, seal(REQUEST, orjson.dumps(data)))
