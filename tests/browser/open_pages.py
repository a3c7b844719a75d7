"""Many open pages of the console without a browser: the event streams that each holds, and what it asks for after each event.

`python tests/browser/open_pages.py URL KIND COUNT` opens them until its standard input ends, and then prints what it received.
`OpenPages` runs that in a process of its own, so that its work is not counted as the server's.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

PAUSE = 0.7
"""Seconds between two requests for the same answer, as in `console-web/src/loading.ts`."""
KEPT_ALIVE = 4.0
"""Seconds for which a page uses its connection again; the server closes an idle one after 5."""
HEADERS = "Cache-Control: max-age=2\r\n"
"""What a page sends with a request, as in `console-web/src/api.ts`."""

_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class Kind:
    """A page: the paths that it asks for again when a figure of the pipeline's events changes, and the query that it follows."""

    paths: tuple[str, ...] = ()
    figure: str = "version"
    follows: str | None = None


KINDS = {
    "pipeline": Kind(),
    "query": Kind(
        ("/queries/spree/lifetimes?limit=1000&bins=240", "/queries/spree?lifetimes=true&limit=500"), follows="spree"
    ),
    "table": Kind(("/tables/purchases", "/scan/purchases?limit=200")),
    "stream": Kind(("/streams/orders", "/streams/orders/records?limit=200")),
    "dead letters": Kind(("/dead/groups", "/dead?settled=false&limit=1000"), figure="dead_open"),
}


class OpenPages:
    """Pages of one kind that are open inside the block; `received` is what they got, known after it."""

    def __init__(self, url: str, kind: str, count: int):
        self._command = [sys.executable, __file__, url, kind, str(count)]
        self.received: dict[str, Any] = {}

    def __enter__(self) -> OpenPages:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "open\n"
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        said, _ = self._process.communicate()
        if error is None:
            self.received = json.loads(said)


class _Page:
    """One page. `received` counts for all of them."""

    def __init__(self, host: str, port: int, kind: Kind, received: dict[str, int]):
        self._host, self._port, self._kind, self._received = host, port, kind, received
        self._last: bytes | None = None
        self._changed = {path: asyncio.Event() for path in kind.paths}
        self._figure = re.compile(rb'"%s":(\d+)' % kind.figure.encode())

    async def open(self) -> None:
        """Be open until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen("/pipeline/events"))
            if self._kind.follows is not None:
                group.create_task(self._listen(f"/queries/{self._kind.follows}/changes?from=now"))
            for path in self._kind.paths:
                group.create_task(self._load(path))

    async def _listen(self, path: str) -> None:
        while True:
            try:
                reader, writer, head = await self._ask(path)
                while head.startswith(b"http/1.1 200"):
                    event = await reader.readuntil(b"\n\n")
                    self._count("events", event)
                    if path == "/pipeline/events" and (found := self._figure.search(event)) and found[1] != self._last:
                        self._last = found[1]
                        for changed in self._changed.values():
                            changed.set()
                writer.close()
            except (asyncio.IncompleteReadError, ConnectionError):  # as a browser does, connect again
                pass
            self._received["refused"] += 1
            await asyncio.sleep(1)

    async def _load(self, path: str) -> None:
        loop = asyncio.get_running_loop()
        kept: _Connection | None = None
        used = 0.0
        while True:
            await self._changed[path].wait()
            self._changed[path].clear()
            due = loop.time() + PAUSE
            try:
                reader, writer, head = await self._ask(path, kept if loop.time() < used + KEPT_ALIVE else None)
                length = re.search(rb"content-length: (\d+)", head)
                assert length is not None, head
                is_answer = head.startswith(b"http/1.1 200")
                self._count("answers" if is_answer else "refused", await reader.readexactly(int(length[1])))
                kept, used = (reader, writer), loop.time()
            except (asyncio.IncompleteReadError, ConnectionError):
                kept = None
                self._received["refused"] += 1
            await asyncio.sleep(max(0.0, due - loop.time()))

    async def _ask(
        self, path: str, kept: _Connection | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        """Send a request on a connection, a new one if none is kept, and return it and the head of the answer."""
        reader, writer = kept or await asyncio.open_connection(self._host, self._port, limit=1 << 22)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n{HEADERS}\r\n".encode())
        return reader, writer, (await reader.readuntil(b"\r\n\r\n")).lower()

    def _count(self, what: str, data: bytes) -> None:
        self._received[what] += 1
        self._received["bytes"] += len(data)


async def hold_open(url: str, kind: str, count: int) -> dict[str, int]:
    """Open pages, hold them until standard input ends, and return what they received."""
    place = urlsplit(url)
    assert place.hostname is not None
    assert place.port is not None
    received = {"events": 0, "answers": 0, "refused": 0, "bytes": 0}
    pages = [_Page(place.hostname, place.port, KINDS[kind], received) for _ in range(count)]
    tasks = []
    for page in pages:
        tasks.append(asyncio.create_task(page.open()))
        await asyncio.sleep(0.02)
    print("open", flush=True)
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await asyncio.wait([ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    return received


if __name__ == "__main__":
    os.nice(10)  # pages are on other machines: their work is not to slow the pipeline
    print(json.dumps(asyncio.run(hold_open(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
