"""Faults between Hayase and a real PostgreSQL, by seed: every change is once in the stream, and once in the tables behind it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import postgres_pipeline
import psycopg2
import pytest
from postgres_pipeline import shop

from hayase.connectors.status import status_of
from hayase.engine.home import Home
from hayase.streams import StreamLog
from hayase.streams.dead_letters import DEAD
from postgres_rows import new_name
from servers.postgres import Postgres
from servers.process import PATIENCE

SEEDS = range(int(os.environ.get("HAYASE_POSTGRES_SEEDS", "2")))


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, with the pipes to it."""
    process.kill()
    process.communicate()


class Round:
    """A table that is written to, and a home that follows it."""

    def __init__(self, postgres: Postgres, home: Path, seed: int):
        self.postgres, self.home, self.chance, self.table = postgres, home, random.Random(seed), new_name("faulty")
        self.environment = {**os.environ, "SHOP_DSN": postgres.dsn}
        self.zombies: list[subprocess.Popen[bytes]] = []
        postgres.execute(f"CREATE TABLE {self.table} (id bigint PRIMARY KEY, name text, n bigint)")

    def write(self, transactions: int) -> None:
        """Change the table; a connection that is cut loses a transaction, or was told too late that it is committed."""
        with suppress(psycopg2.Error), closing(psycopg2.connect(self.postgres.dsn)) as connection:
            for _ in range(transactions):
                with connection.cursor() as cursor:
                    for _ in range(self.chance.randrange(1, 6)):
                        cursor.execute(*self._statement())
                if self.chance.random() < 0.1:
                    connection.rollback()
                else:
                    connection.commit()

    def _statement(self) -> tuple[str, tuple[Any, ...]]:
        number, other, n = self.chance.randrange(50), self.chance.randrange(50), self.chance.randrange(1000)
        table, kind = self.table, self.chance.random()
        if kind < 0.45:
            text = f"INSERT INTO {table} VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET n = excluded.n"
            return text, (number, f"name{n}", n)
        if kind < 0.7:
            return f"UPDATE {table} SET n = n + 1 WHERE id %% 7 = %s", (number % 7,)
        if kind < 0.8:
            text = f"UPDATE {table} SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM {table} WHERE id = %s)"
            return text, (other, number, other)
        if kind < 0.98:
            return f"DELETE FROM {table} WHERE id = %s", (number,)
        return f"TRUNCATE {table}", ()

    # --------------------------------------------------------------------------------------------------------- faults

    def cut(self) -> None:
        """Cut all connections of Hayase, also inside a transaction."""
        self.postgres.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hayase'"
        )

    def restart(self) -> None:
        self.postgres.restart()

    def crash(self) -> None:
        self.postgres.kill()
        self.postgres.start()

    def drop_slot(self) -> None:
        """Drop the slot as soon as nobody uses it."""
        drop = f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{self.table}'"
        for _ in range(20):
            self.cut()
            with suppress(psycopg2.Error):
                self.postgres.execute(drop)
                return

    # ---------------------------------------------------------------------------------------------------------- checks

    def rows(self, table: str, columns: str = "id, name, n") -> Counter[tuple[Any, ...]]:
        return Counter(self.postgres.execute(f"SELECT {columns} FROM {table}"))

    def check_stream(self) -> None:
        """The stream has the rows of the table, and nothing was refused."""
        log = StreamLog.open(self.home, "users")
        present: Counter[tuple[Any, ...]] = Counter()
        for piece in log.read(0, log.index().next):
            for row in piece.rows.to_pylist():
                present[(row["id"], row["name"], row["n"])] += 1 if row["op"] == "+" else -1
                assert present[(row["id"], row["name"], row["n"])] >= 0
        assert +present == self.rows(self.table)
        assert not StreamLog.ensure(self.home, DEAD).index().next

    def check_changes(self) -> None:
        """The table of changes has every record of the stream once."""
        log = StreamLog.open(self.home, "users")
        records = [tuple(row.values()) for piece in log.read(0, log.index().next) for row in piece.rows.to_pylist()]
        numbered = [(number, *record) for number, record in enumerate(records)]
        columns = "row_id, op, at, id, name, n"
        assert sorted(self.postgres.execute(f"SELECT {columns} FROM {self.table}_changes")) == numbered

    def close(self) -> None:
        for zombie in self.zombies:
            end(zombie)
        for _ in range(100):
            with suppress(psycopg2.Error):
                self.drop_slot()
                return


@pytest.fixture
def begun(postgres: Postgres, tmp_path: Path) -> Iterator[Callable[[int], Round]]:
    rounds: list[Round] = []

    def begin(seed: int) -> Round:
        rounds.append(Round(postgres, tmp_path / f"home{seed}", seed))
        return rounds[-1]

    yield begin
    for each in rounds:
        each.close()


# -------------------------------------------------------------------------------------------------------- whole pipelines


def run_once(round_: Round) -> subprocess.Popen[bytes]:
    command = [sys.executable, postgres_pipeline.__file__, str(round_.home), round_.table]
    return subprocess.Popen(command, env=round_.environment, stderr=subprocess.PIPE)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pipeline_that_is_killed_and_cut_off_mirrors_the_table(begun: Callable[[int], Round], seed: int) -> None:
    """From the table through a query to its mirror and its history; the process is killed, the server restarted, the slot lost."""
    round_ = begun(seed)
    faults = ["kill", "cut", "restart", "crash", "drop", "kill"]
    round_.chance.shuffle(faults)
    round_.write(5)
    for fault in faults:
        process = run_once(round_)
        writer = threading.Thread(target=round_.write, args=(round_.chance.randrange(5, 30),))
        delay = round_.chance.uniform(0.5, 4.0)
        writer.start()
        time.sleep(delay)
        if fault == "kill":
            process.kill()
        else:
            {"cut": round_.cut, "restart": round_.restart, "crash": round_.crash, "drop": round_.drop_slot}[fault]()
        process.communicate()
        writer.join()
    process = run_once(round_)
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    round_.check_stream()
    round_.check_changes()
    assert round_.rows(f"{round_.table}_mirror") == round_.rows(round_.table)
    history = round_.postgres.execute(f"SELECT id, name, n FROM {round_.table}_history WHERE valid_to IS NULL")
    assert Counter(history) == round_.rows(round_.table)


# ------------------------------------------------------------------------------------------------------------- processes


def worker(round_: Round, role: str, name: str) -> subprocess.Popen[bytes]:
    """A process of a connector, as a pipeline runs it."""
    command = [sys.executable, "-m", "hayase.connectors.worker", str(round_.home), role, name, "1"]
    log = (round_.home / "worker.log").open("ab")
    with log:
        return subprocess.Popen(command, env=round_.environment, stdin=subprocess.PIPE, stderr=log)


@pytest.mark.parametrize("seed", SEEDS)
def test_processes_that_are_killed_and_zombies_that_wake_up(begun: Callable[[int], Round], seed: int) -> None:
    """The source and an output run; each is killed, or stopped and replaced, and the stopped one wakes up later."""
    round_ = begun(seed)
    pipeline = shop(round_.home, round_.table)
    pipeline.apply()
    roles = {"sources": "users", "outputs": "changes"}
    running = {role: worker(round_, role, name) for role, name in roles.items()}
    try:
        for _ in range(8):
            round_.write(round_.chance.randrange(1, 20))
            role = round_.chance.choice(list(roles))
            time.sleep(round_.chance.uniform(0.0, 1.5))
            fault = round_.chance.choice(["kill", "zombie", "cut", "restart"])
            if fault == "kill":
                end(running[role])
                running[role] = worker(round_, role, roles[role])
            elif fault == "zombie":
                running[role].send_signal(signal.SIGSTOP)
                round_.zombies.append(running[role])
                running[role] = worker(round_, role, roles[role])
                round_.write(3)
                time.sleep(round_.chance.uniform(0.5, 2.0))
                round_.zombies[-1].send_signal(signal.SIGCONT)
            elif fault == "cut":
                round_.cut()
            else:
                round_.restart()
            if round_.chance.random() < 0.5 and round_.zombies:  # two of them at once, until one is gone
                zombie = round_.zombies.pop()
                zombie.send_signal(signal.SIGCONT)
                end(zombie)
        for zombie in round_.zombies:
            end(zombie)
        round_.write(5)
        _until(round_, round_.check_stream)
        _until(round_, round_.check_changes)
    finally:
        for process in running.values():
            end(process)


def _until(round_: Round, check: Callable[[], None]) -> None:
    """Wait until a check holds."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            check()
            return
        except (AssertionError, psycopg2.Error):
            if time.monotonic() > deadline:
                print((round_.home / "worker.log").read_text()[-4000:])
                home, declaration = Home(round_.home), shop(round_.home, round_.table).declaration
                print([status_of(home, "sources", source) for source in declaration.sources])
                raise
        time.sleep(0.2)
