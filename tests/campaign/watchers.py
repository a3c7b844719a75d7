"""Readers over HTTP during a round: what they were told once is never taken back."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx

from campaign.traffic import STREAMS, USERS

__all__ = ["Watcher"]

PAUSE = 0.4


class Watcher(threading.Thread):
    """Asks a server for figures that can only grow, and follows the changes of a query by its cursor.

    The server may go and come back: a reader asks again. `problems` are answers that went back.
    """

    def __init__(self, url: str, query: str = "spend"):
        super().__init__(name="watcher", daemon=True)
        self.url, self.query = url, query
        self.problems: list[str] = []
        self.answers = 0
        self.changes: list[tuple[Any, str, str]] = []
        self.cursor = "start"
        self.clock_jumps = False
        """Whether the wall clock is put back meanwhile: then the times of commits may go back with it."""
        self.ended = threading.Event()
        self._most: dict[str, Any] = {}
        self._reset: list[str] = []

    def run(self) -> None:
        with httpx.Client(base_url=self.url, trust_env=False, timeout=30) as http:
            while not self.ended.is_set():
                for look in (self._health, self._streams, self._rows, self._tables, self._changes):
                    self._tried(look, http)
                self.ended.wait(PAUSE)

    def _tried(self, look: Callable[[httpx.Client], None], http: httpx.Client) -> None:
        try:
            look(http)
        except httpx.HTTPError:
            pass  # it is not there now
        except Exception as error:
            self.problems.append(f"watcher: {look.__name__}: {type(error).__name__}: {error}")

    def _grown(self, what: str, value: Any) -> None:
        """A figure that must not be less than when it was told last."""
        self.answers += 1
        if value is None or any(each in what for each in self._reset):
            return
        most = self._most.get(what)
        if most is not None and value < most:
            self.problems.append(f"{what} went back from {most} to {value}")
        self._most[what] = value if most is None else max(value, most)

    def _knew(self, what: str) -> bool:
        """Whether something was there before, and is not built anew."""
        return what in self._most and not any(each in what for each in self._reset)

    def _health(self, http: httpx.Client) -> None:
        answer = http.get("/health")
        if answer.status_code == 200:
            said = answer.json()
            self._grown("version of /health", said["version"])
            if not self.clock_jumps:
                self._grown("committed_at of /health", said["committed_at"])

    def _streams(self, http: httpx.Client) -> None:
        for name in STREAMS:
            answer = http.get(f"/streams/{name}")
            if answer.status_code == 200:
                self._grown(f"next of /streams/{name}", answer.json()["next"])

    def _rows(self, http: httpx.Client) -> None:
        answer = http.get(f"/queries/{self.query}")
        if answer.status_code == 200:
            said = answer.json()
            self._grown(f"at of /queries/{self.query}", said["at"])
            for row in said["rows"]:
                self._grown(f"n of {row['user']} in /queries/{self.query}", row["n"])

    def _tables(self, http: httpx.Client) -> None:
        for user in USERS:
            answer = http.get(f"/tables/purchases/{quote(user)}")
            if answer.status_code == 200:
                row = answer.json()["row"]
                self._grown(f"orders of {user} in /tables/purchases", row["orders"])
                self._grown(f"total of {user} in /tables/purchases", row["total"])
            elif answer.status_code == 404 and self._knew(f"orders of {user} in /tables/purchases"):
                self.problems.append(f"{user} has gone from /tables/purchases")

    def _changes(self, http: httpx.Client) -> None:
        """Take what has changed since the last look; a cursor neither misses nor repeats anything."""
        answer = http.get(f"/queries/{self.query}/changes", params={"from": self.cursor, "wait": 0})
        if answer.status_code != 200:
            return
        for block in answer.text.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            if fields.get("event") == "gone":
                self.problems.append(f"the cursor {self.cursor} leads nowhere: {fields.get('data')}")
            if fields.get("event") == "change":
                said = json.loads(fields["data"])
                self.cursor = fields["id"]
                self.changes.append((said["time"], said["change"], json.dumps(said["row"], sort_keys=True)))

    def forget(self, what: str) -> None:
        """Accept that figures go back from now on: their stage is computed anew."""
        self._reset.append(what)
        self._most = {name: value for name, value in self._most.items() if what not in name}
