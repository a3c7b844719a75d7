"""`python -m campaign.sink_deaths PIPELINE.yaml SEED OUTPUT`: an output whose process is killed at every step around its commits.

A step is a call that changes the target or a file: before it, inside it and behind it. The process is a fork of this one, which has
loaded everything and connected to nothing. It opens the output, delivers one write of a few changes, and kills itself at the step
whose number it was given.

- The first write: one process after the other dies, one step later each, until one gets through.
- Later writes: a process dies at each step; another one follows, which takes up what it left. Some of these die too.

At the end the number of deaths at each step is printed as JSON.
"""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hayase as hy
from hayase.connectors import delivery, transfers
from hayase.connectors.status import connector_named
from hayase.core.declarations import OutputDeclaration
from hayase.engine.home import Home
from hayase.streams import durable

LONGEST_INSIDE = {"commit of Kafka": 0.03, "commit of PostgreSQL": 0.004, "write of Delta": 0.06}
"""Seconds within which a process dies that dies inside such a call."""
TWICE = 0.3
"""How often whoever takes up what was left dies too."""
MOST_CHANGES = 3
OUT_OF_CHANGES = 3


class Steps:
    """Counts the steps of a process, and kills it at one of them."""

    def __init__(self, deadly: int | None, note: int, dice: random.Random):
        self.number, self.deadly, self._note, self._dice = 0, deadly, note, dice
        self.begun = False
        """Whether steps count: not before the output is opened."""

    def reached(self, step: str) -> None:
        """Note a step, and die if it is the one."""
        if not self.begun:
            return
        if self.number == self.deadly:
            os.write(self._note, step.encode())
            os.kill(os.getpid(), signal.SIGKILL)
        self.number += 1

    def inside(self, name: str, call: Callable[[], Any]) -> Any:
        """Make a call, with steps before, inside and behind it."""
        self.reached(f"before {name}")
        if self.begun and self.number == self.deadly:
            os.write(self._note, f"inside {name}".encode())
            after = self._dice.uniform(0.0, LONGEST_INSIDE[name])
            threading.Thread(target=_die, args=(after,), daemon=True).start()
            call()
            time.sleep(60)
        self.number += self.begun
        result = call()
        self.reached(f"after {name}")
        return result

    def around(self, name: str, call: Callable[[], Any]) -> Any:
        """Make a call, with steps before and behind it."""
        self.reached(f"before {name}")
        result = call()
        self.reached(f"after {name}")
        return result


def _die(after: float) -> None:
    time.sleep(after)
    os.kill(os.getpid(), signal.SIGKILL)


# ------------------------------------------------------------------------------------------------------- steps of clients


def _watch_kafka(steps: Steps) -> None:
    from hayase.connectors import kafka_sink

    class Producer(kafka_sink.Producer):  # type: ignore[misc]
        def init_transactions(self, *arguments: Any) -> Any:
            return steps.around("init of transactions", lambda: super(Producer, self).init_transactions(*arguments))

        def begin_transaction(self, *arguments: Any) -> Any:
            return steps.around("begin of a transaction", lambda: super(Producer, self).begin_transaction(*arguments))

        def produce(self, *arguments: Any, **named: Any) -> Any:
            return steps.around("message", lambda: super(Producer, self).produce(*arguments, **named))

        def send_offsets_to_transaction(self, *arguments: Any) -> Any:
            send = super().send_offsets_to_transaction
            return steps.around("position", lambda: send(*arguments))

        def commit_transaction(self, *arguments: Any) -> Any:
            return steps.inside("commit of Kafka", lambda: super(Producer, self).commit_transaction(*arguments))

    kafka_sink.Producer = Producer


def _watch_postgres(steps: Steps) -> None:
    from psycopg2.extensions import connection, cursor

    from hayase.connectors import postgres_client, postgres_sink

    class Cursor(cursor):  # type: ignore[misc]
        def execute(self, *arguments: Any) -> Any:
            return steps.around("statement", lambda: super(Cursor, self).execute(*arguments))

        def copy_expert(self, *arguments: Any) -> Any:
            return steps.around("copy", lambda: super(Cursor, self).copy_expert(*arguments))

    class Connection(connection):  # type: ignore[misc]
        def cursor(self) -> Any:
            return super().cursor(cursor_factory=Cursor)

        def commit(self) -> Any:
            return steps.inside("commit of PostgreSQL", lambda: super(Connection, self).commit())

    def connect(options: Any, **settings: str) -> Any:
        return postgres_client.connect(options, Connection, **settings)

    postgres_sink.connect = connect


def _watch_delta(steps: Steps) -> None:
    from hayase.connectors import delta_sink

    write = delta_sink.write_deltalake

    class Table(delta_sink.DeltaTable):  # type: ignore[misc]
        @classmethod
        def create(cls, *arguments: Any, **named: Any) -> Any:
            return steps.inside("write of Delta", lambda: super(Table, cls).create(*arguments, **named))

    def write_deltalake(*arguments: Any, **named: Any) -> Any:
        return steps.inside("write of Delta", lambda: write(*arguments, **named))

    delta_sink.DeltaTable, delta_sink.write_deltalake = Table, write_deltalake


_WATCHED = {"kafka": _watch_kafka, "postgres": _watch_postgres, "delta": _watch_delta}


# ------------------------------------------------------------------------------------------------------------- processes


def _deliver(pipeline: hy.Pipeline, output: OutputDeclaration, steps: Steps) -> None:
    """Deliver one write, and end."""
    writes = 0
    opened = transfers.open_sink

    def open_sink(*arguments: Any) -> Any:
        steps.begun = True
        sink = opened(*arguments)
        sink.every, write = 0.0, sink.write

        def counted(changes: Any) -> None:
            nonlocal writes
            write(changes)
            writes += 1

        sink.write = counted
        return sink

    looks = 0

    def stopping(seconds: float) -> bool:
        nonlocal looks
        looks += seconds == 0.0
        if writes == 0 and looks > 100:
            os._exit(OUT_OF_CHANGES)
        time.sleep(min(seconds, 0.2))
        return writes > 0

    if output.kind in _WATCHED:
        _WATCHED[output.kind](steps)
    durable.reached = steps.reached
    delivery.MOST_CHANGES = MOST_CHANGES
    transfers.open_sink = open_sink
    transfers.run_transfer(pipeline.home, pipeline.declaration, output, stopping)


def attempt(pipeline: hy.Pipeline, output: OutputDeclaration, deadly: int | None, seed: str) -> str | None:
    """Deliver a write in a process of its own; return the step at which it died, None if it got through."""
    heard, note = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(heard)
            _deliver(pipeline, output, Steps(deadly, note, random.Random(seed)))
        except BaseException as error:
            print(f"{output.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    os.close(note)
    with os.fdopen(heard, "rb") as notes:
        step = notes.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and step:
        return step
    if status:
        code = os.waitstatus_to_exitcode(status)
        raise SystemExit(f"{output.name}: a process that was to die at step {deadly} ended with {code} ({step!r})")
    return None


def kill_at_every_step(pipeline: hy.Pipeline, output: OutputDeclaration, seed: int) -> Counter[str]:
    """Return how many processes died at which step."""
    dice, deaths = random.Random(f"deaths {seed} {output.name}"), Counter[str]()
    run = functools.partial(attempt, pipeline, output)
    number = 0
    while (step := run(number, f"{seed} first {number}")) is not None:
        deaths[f"first write, {step}"] += 1
        number += 1
    number = 0
    while (step := run(number, f"{seed} {number}")) is not None:
        deaths[step] += 1
        number += 1
        if dice.random() < TWICE and (again := run(dice.randrange(30), f"{seed} again {number}")) is not None:
            deaths[f"taking up, {again}"] += 1
        run(None, "")
    return deaths


def main() -> None:
    pipeline = hy.Pipeline.from_file(Path(sys.argv[1]))
    output = connector_named(pipeline.declaration, "outputs", sys.argv[3])
    assert isinstance(output, OutputDeclaration)
    from hayase.connectors.kinds import sink_class

    sink_class(output)  # loaded before the first fork
    with Home(pipeline.home.path).lock():
        print(json.dumps(kill_at_every_step(pipeline, output, int(sys.argv[2]))))


if __name__ == "__main__":
    main()
