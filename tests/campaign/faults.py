"""The faults of live rounds: what can be killed, stopped or paused, full disks, second drivers, changed definitions, clocks."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial

from campaign import processes
from campaign.live import Fault, LiveRound, Wrong, can_mount

__all__ = ["FAULTS", "drawn", "named"]

PARTS = ("tree", "driver", "jvm", "worker", "planner", "operation", "appender")
ENDING = ("tree", "driver", "jvm")
"""Parts without which a run cannot go on."""


def _strike(number: signal.Signals, part: str, round: LiveRound) -> None:
    """Send a signal to a part: to the whole tree, or to one process of the others."""
    found = round.some(part)
    chosen = found if part in ("tree", "driver") else [round.dice.choice(found)] if found else []
    processes.send(chosen, number)
    if part == "tree" and number == signal.SIGKILL:  # those that were being started
        processes.send([each for each in round.processes_left() if each not in chosen], number)


def _pause(part: str, round: LiveRound) -> None:
    """Stop processes for some seconds, and let them go on."""
    found = round.some(part)
    chosen = found if part == "tree" else [round.dice.choice(found)] if found else []
    processes.send(chosen, signal.SIGSTOP)
    time.sleep(1 + 7 * round.dice.random())
    processes.send(reversed(chosen), signal.SIGCONT)


def _all_workers(round: LiveRound) -> None:
    processes.send(round.some("worker"), signal.SIGKILL)


def _launcher(round: LiveRound) -> None:
    """End what started an interpreter. After the loss of the fork server there may be none: plain interpreters run until they
    are started again, so the planner is lost instead."""
    found = round.parts()["launcher"] or round.some("planner")
    processes.send([round.dice.choice(found)], signal.SIGKILL)


def _executor(round: LiveRound) -> None:
    processes.send(round.some("executor")[:1], signal.SIGKILL)


def _full_disk(round: LiveRound) -> None:
    """No room for some seconds: what waits is written when there is some again."""
    with contextlib.suppress(OSError), round.filler.open("wb", buffering=0) as filler:
        size = 2**20
        while size:
            try:
                filler.write(bytes(size))
            except OSError:
                size //= 4
    round.pace.let_go(1)
    time.sleep(4 + 6 * round.dice.random())
    round.filler.unlink(missing_ok=True)


def _second_driver(round: LiveRound) -> None:
    """Another run of the same home is told who has it."""
    said = round.command("run", "--until-idle", code=1)
    assert round.driver is not None
    if f"in use by process {round.driver.pid}" not in said:
        raise Wrong(f"a second run was told: {said[-300:]}")


def _definitions(round: LiveRound) -> None:
    """Apply another version of the pipeline: with one query more and one less."""
    file = round.project / "pipeline.yaml"
    text = file.read_text()
    more = f"  more{round.seed % 1000}: select item, count(*) as n from orders [Range 6 seconds] group by item\n"
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("  latest:")]
    file.write_text("".join(lines).replace("queries:\n", f"queries:\n{more}"))
    round.command("apply")


def _reset(round: LiveRound) -> None:
    """Let a stage begin anew, while it runs; what it answers in the end is the same."""
    stage = round.dice.choice(("recent", "pairs", "marks", "purchases", "large"))
    if stage == "purchases":  # before the command: the running pipeline may be quicker than it
        round.watcher.forget("/tables/purchases")
    round.command("reset", stage, "--from", "earliest")
    round.rebuilt |= {stage, "marked"} if stage == "marks" else {stage}


def _scratch_removed(round: LiveRound) -> None:
    """Somebody clears the folder for temporary files."""
    for path in round.scratch.iterdir():
        shutil.rmtree(path, ignore_errors=True)


def _clock(seconds: Callable[[random.Random], int], round: LiveRound) -> None:
    """The wall clock jumps, and stays there."""
    round.watcher.clock_jumps = True
    now = int(round.clock.read_text()) if round.clock.exists() else 0
    draft = round.clock.with_suffix(".part")
    draft.write_text(str(now + seconds(round.dice)))
    draft.rename(round.clock)


def _signals() -> list[Fault]:
    found = []
    for part in PARTS:
        ends = part in ENDING
        found.append(Fault(f"kill {part}", partial(_strike, signal.SIGKILL, part), ends))
        stop = LiveRound.stop if part == "driver" else partial(_strike, signal.SIGTERM, part)
        found.append(Fault(f"stop {part}", stop, ends))
        found.append(Fault(f"pause {part}", partial(_pause, part), False))
    return [*found, Fault("interrupt tree", partial(_strike, signal.SIGINT, "tree"), True)]


FAULTS = (
    *_signals(),
    Fault("kill all workers", _all_workers, False),
    Fault("kill fork server", partial(_strike, signal.SIGKILL, "fork server"), False, "this machine"),
    Fault("kill launcher", _launcher, False, "this machine"),
    Fault("kill executor", _executor, False, "cluster"),
    Fault("full disk", _full_disk, None, "small disk"),
    Fault("second driver", _second_driver, False),
    Fault("changed definitions", _definitions, False),
    Fault("reset", _reset, False),
    Fault("scratch removed", _scratch_removed, None),
    Fault("clock back", partial(_clock, lambda dice: -dice.choice((30, 3_600, 86_400))), False),
    Fault("clock ahead", partial(_clock, lambda dice: dice.choice((30, 3_600, 86_400))), False),
)


def named(name: str) -> Fault:
    """The fault of a name."""
    return next(each for each in FAULTS if each.name == name)


def drawn(seed: int, faults: int = 5) -> list[Fault]:
    """The faults of a seed: different ones, in any order, one of which ends the run."""
    dice = random.Random(f"faults {seed}")
    ending = [each for each in FAULTS if each.ends is not False]
    others = [each for each in FAULTS if each.ends is False]
    found = [*dice.sample(others, faults - 1), dice.choice(ending)]
    dice.shuffle(found)
    left_out = [] if can_mount() else ["small disk"]
    if any(each.needs == "cluster" for each in found):
        left_out.append("this machine")
    return [each for each in found if each.needs not in left_out]
