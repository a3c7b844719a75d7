"""The faults of connector rounds: servers that go away, connections that are cut, full disks, killed and resumed processes."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

import psutil

from campaign import processes
from campaign.connector_endpoints import SmallDisk
from campaign.connectors import OUTPUTS, ConnectorFault, ConnectorRound
from campaign.live import PATIENCE, Wrong, can_mount
from campaign.proxy import Trap

__all__ = ["FAULTS", "drawn", "named"]

MEET = 60.0
"""Seconds in which a fault waits to be met by a process."""
OPENING = 1 / 3
"""How many rounds begin with an output that is killed at every step."""


# ----------------------------------------------------------------------------------------------------------------- servers


def _broker_killed(round: ConnectorRound) -> None:
    broker = round.dice.choice([each for each in round.at.kafka.brokers if each.running])
    broker.kill()
    time.sleep(round.dice.uniform(0.5, 4.0))
    broker.start()


def _all_brokers_killed(round: ConnectorRound) -> None:
    round.at.kafka.kill()
    time.sleep(round.dice.uniform(0.0, 2.0))
    round.at.kafka.start()


def _broker_lost(round: ConnectorRound) -> None:
    """Until the round is judged."""
    round.dice.choice(round.at.kafka.brokers).kill()


def _postgres_ended(number: signal.Signals, round: ConnectorRound) -> None:
    server = round.at.postgres
    processes.send([psutil.Process(server.process_id)], number)
    round.wait("the end of PostgreSQL", lambda: not server.running)
    time.sleep(round.dice.uniform(0.0, 2.0))
    server.start()


def _slot_dropped(round: ConnectorRound) -> None:
    """The slot is gone while the source runs: the table is copied again, into another slot."""
    round.slot_dropped = True
    if not round.at.drop_slot(round.name):
        raise Wrong("there was no slot to drop")
    look = f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{round.name}'"
    round.wait("another slot", lambda: bool(round.at.rows(look)))


# ------------------------------------------------------------------------------------------------------------- connections


def _cut(arm: Callable[[str, bool], Trap], requests: Sequence[str], round: ConnectorRound) -> None:
    """Drop connections at a request inside a transaction, before it is sent or before its answer comes."""
    request, passes = round.dice.choice(requests), round.dice.random() < 0.5
    trap = arm(request, passes)
    _met(round, f"a {request}", trap.struck.is_set)
    round.say(f"        at {request}, {'behind' if passes else 'before'} the server")


def _kafka_cut(round: ConnectorRound) -> None:
    requests = ("AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")
    _cut(round.at.trap_kafka, requests, round)


def _postgres_cut(round: ConnectorRound) -> None:
    _cut(round.at.trap_postgres, ("BEGIN", "COPY", "COMMIT"), round)


def _all_cut(round: ConnectorRound) -> None:
    for _ in range(round.dice.randrange(2, 6)):
        for proxy in (*round.at.kafka_proxies, round.at.postgres_proxy):
            proxy.drop()
        time.sleep(round.dice.uniform(0.0, 1.0))


def _met(round: ConnectorRound, what: str, holds: Callable[[], bool]) -> None:
    """Send records until a process meets a fault: each wave makes the results of the one before final."""
    while not holds():
        round.traffic.join()
        round.catch_up()  # or else its records are late
        if holds():
            return
        round.traffic.begin(60, 40, 10)
        deadline = time.monotonic() + MEET
        while not holds() and time.monotonic() < deadline:
            time.sleep(0.1)
        if round.traffic.chunks > 60:
            raise Wrong(f"nobody met {what}: {round.said()}")


# ------------------------------------------------------------------------------------------------------------------- disks


def _disk_full(disk: Callable[[ConnectorRound], SmallDisk], outputs: Sequence[str], round: ConnectorRound) -> None:
    """No room for some seconds: the outputs say so, and write what waits when there is room again."""
    small = disk(round)
    small.fill()
    try:
        _met(round, "a full disk", lambda: any(_is_full(round, name) for name in outputs))
        time.sleep(round.dice.uniform(0.0, 2.0))
    finally:
        small.free()


def _is_full(round: ConnectorRound, name: str) -> bool:
    status = round.status("outputs", name)
    return status.state == "retrying" and "No space left" in (status.error or "")


# --------------------------------------------------------------------------------------------------------------- processes


def _connectors_killed(round: ConnectorRound) -> None:
    for _ in range(round.dice.randrange(2, 5)):
        time.sleep(round.dice.uniform(0.0, 1.5))
        round.kill(round.worker(*round.any_connector()))


def _driver_killed(round: ConnectorRound) -> None:
    """The pipeline is killed; its processes end by themselves, and perhaps not before the next ones begin."""
    assert round.driver is not None
    round.driver.kill()
    round.driver.wait()
    round.release()
    round.driver = None
    if round.dice.random() < 0.5:
        round.wait("the end of its processes", lambda: not processes.belonging(round.mark))
    round.start()


def _zombie(round: ConnectorRound) -> None:
    """A process is stopped, another takes its place, and the first goes on: both are there, until one is killed."""
    role, name = round.any_connector()
    zombie = round.worker(role, name)
    processes.send([zombie], signal.SIGSTOP)
    round.stopped.append(zombie)
    command = zombie.cmdline()
    with (round.folder / "successors.txt").open("ab") as out:
        successor = subprocess.Popen(
            command, cwd=round.folder, env=round.environment, stdin=subprocess.PIPE, stdout=out, stderr=out
        )
    try:
        time.sleep(round.dice.uniform(2.0, 8.0))
        processes.send([zombie], signal.SIGCONT)
        round.stopped.remove(zombie)
        time.sleep(round.dice.uniform(0.5, 4.0))
        if successor.poll() is not None:
            raise Wrong(f"the successor of {name} ended with {successor.returncode}")
        if round.dice.random() < 0.5:
            round.kill(zombie)
            time.sleep(round.dice.uniform(0.0, 2.0))
    finally:
        successor.kill() if round.dice.random() < 0.5 else successor.terminate()
        successor.communicate(timeout=PATIENCE)
    round.say(f"        of {name}")


def _deaths(output: str, round: ConnectorRound) -> None:
    """The process of an output is killed at every step around its commits."""
    command = [sys.executable, "-m", "campaign.sink_deaths", str(round.file), str(round.seed), output]
    done = subprocess.run(
        command, cwd=round.folder, env=round.environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    if done.returncode:
        raise Wrong(f"{output}, killed at every step: {done.stderr[-3000:]}")
    deaths: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    (round.folder / f"deaths-{output}.json").write_text(json.dumps(deaths, indent=1))
    round.say(f"        {sum(deaths.values())} deaths at {len(deaths)} steps")


FAULTS = (
    ConnectorFault("broker killed", _broker_killed),
    ConnectorFault("all brokers killed", _all_brokers_killed),
    ConnectorFault("broker lost", _broker_lost),
    ConnectorFault("Kafka cut in a transaction", _kafka_cut),
    ConnectorFault("PostgreSQL cut in a transaction", _postgres_cut),
    ConnectorFault("connections cut", _all_cut),
    ConnectorFault("PostgreSQL restarted", partial(_postgres_ended, signal.SIGINT)),
    ConnectorFault("PostgreSQL crashed", partial(_postgres_ended, signal.SIGQUIT)),
    ConnectorFault("slot dropped", _slot_dropped),
    ConnectorFault("lake disk full", partial(_disk_full, lambda round: round.at.lake_disk, ("lake", "table"))),
    ConnectorFault("table disk full", partial(_disk_full, lambda round: round.at.table_disk, ("mirror", "history"))),
    ConnectorFault("connectors killed", _connectors_killed),
    ConnectorFault("pipeline killed", _driver_killed),
    ConnectorFault("zombie", _zombie),
    *(ConnectorFault(f"deaths of {name}", partial(_deaths, name), opens=True) for name in OUTPUTS),
)


def named(name: str) -> ConnectorFault:
    """The fault of a name."""
    return next(each for each in FAULTS if each.name == name)


def drawn(seed: int, faults: int = 3) -> list[ConnectorFault]:
    """The faults of a seed: different ones. One round of three begins with an output that is killed at every step."""
    dice = random.Random(f"connector faults {seed}")
    possible = [each for each in FAULTS if not each.opens and (can_mount() or "disk full" not in each.name)]
    opening = [each for each in FAULTS if each.opens]
    return [*([dice.choice(opening)] if dice.random() < OPENING else []), *dice.sample(possible, faults)]
