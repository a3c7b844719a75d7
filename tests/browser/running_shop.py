"""The demo shop as `hayase demo` runs it, in a process of its own, on Spark."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import BrowserContext


class RunningShop:
    """The demo shop in a process of its own, on Spark, and a client of it once it is served (`wait`)."""

    def __init__(self, home: Path, token: str = "") -> None:
        self._token = token
        hayase = Path(sys.executable).with_name("hayase")
        self.process = subprocess.Popen(
            [hayase, "demo", "--keep", "--plain", "--home", home],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "HAYASE_TOKEN": token},
        )  # fmt: skip
        self.output: list[str] = []
        self.url = ""

    def wait(self) -> RunningShop:
        """Wait until it is served, and return it."""
        if self.url:
            return self
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)
            if named := re.search(r"the shop in a browser: (\S+)", line):
                self.url = named[1]
                break
        assert self.url, "".join(self.output)
        self._reader = threading.Thread(target=lambda: self.output.extend(self.process.stdout or ()), daemon=True)
        self._reader.start()
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        self.http = httpx.Client(base_url=self.url, trust_env=False, timeout=60, headers=headers)
        return self

    def log_in(self, context: BrowserContext) -> None:
        """Begin a session of a browser, as the form for the token does."""
        answer = self.http.post("/session", json={"token": self._token})
        assert answer.status_code == 204, answer.text
        ((name, value),) = answer.cookies.items()
        context.add_cookies([
            {"name": name, "value": value, "url": self.url, "httpOnly": True, "sameSite": "Strict"}
        ])  # fmt: skip

    def get(self, path: str) -> Any:
        answer = self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def close(self) -> None:
        if self.url:
            self.http.close()
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(300)
        finally:
            self.process.kill()
            if self.url:
                self._reader.join(10)
            assert self.process.stdout is not None
            self.process.stdout.close()
