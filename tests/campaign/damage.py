"""A damage round: one file of a home that is not as it was written, and what Hayase makes of it.

A bit is flipped, a digit changed, a file cut short or gone; of every kind of file that a home has. Then somebody reads
all answers, and the pipeline goes on with more records. Each must give the right answers, or fail with an error that names
the file and whose remedy works: the commands that it quotes, or the file from a copy. A wrong answer, an error that is none of
Hayase's own, a crash or a hang is a failure.
"""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["DAMAGES", "DamageRound", "kind_of"]

PATIENCE = 900
"""Seconds after which a damaged home is said to hang: long, since a busy machine is no hang."""
LEFT_ALONE = ("lock", "LOCK", "LOG", "IDENTITY")
"""How files begin that hold nothing: their names are what counts, or nobody reads them."""


def _bit(data: bytearray, dice: random.Random) -> bytearray:
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    return data


def _digit(data: bytearray, dice: random.Random) -> bytearray:
    """Another digit in the place of one; in a file without digits, another byte."""
    places = [at for at, each in enumerate(data) if 0x30 <= each <= 0x39] or list(range(len(data)))
    at = dice.choice(places)
    data[at] = dice.choice([each for each in b"0123456789" if each != data[at]])
    return data


def _cut(data: bytearray, dice: random.Random) -> bytearray:
    return data[: dice.randrange(len(data))]


DAMAGES: dict[str, Callable[[bytearray, random.Random], bytearray] | None] = {
    "bit": _bit,
    "digit": _digit,
    "cut": _cut,
    "gone": None,
}


def kind_of(home: Path, path: Path) -> str:
    """What kind of file it is: its path, with a mark for every number and every digest.

    >>> kind_of(Path("/h"), Path("/h/state/main/000000000002-0-3155180960284380932404cefaab01a3.state"))
    'state/main/#-#-#.state'
    """
    return re.sub(r"[0-9a-f]{16,}|\d+", "#", str(path.relative_to(home)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an attempt: the answers, or the error, and whether it was one of Hayase's own."""

    answers: dict[str, Any] | None = None
    error: str | None = None
    own: bool = True


class DamageRound:
    """One round, in a folder of its own."""

    def __init__(self, seed: int, folder: Path, say: Callable[[str], None] = print):
        self.seed, self.folder, self.say = seed, folder, say
        self.dice = random.Random(f"damage {seed}")
        self.project = folder / "project"
        self.home = self.project / "home"

    def run(self) -> list[str]:
        """Play the round; returns what is wrong."""
        base, before, after = _base()
        shutil.copytree(base, self.project)
        path, damage = self._damaged()
        whole = base / path.relative_to(self.project)
        name = str(path.relative_to(self.home))
        self.say(f"damage round {self.seed}: {damage} of {name}")
        wrong = []
        tries = zip(("read", "go on"), _apart(self.project, "read", "go on"), (before, after))
        for what, found, wanted in tries:
            wrong += self._judged(what, found, wanted, path, whole)
        return wrong

    def _damaged(self) -> tuple[Path, str]:
        """Damage a file: of a kind that is drawn first, so that rare kinds have their turn."""
        kinds: dict[str, list[Path]] = {}
        wanted = os.environ.get("HAYASE_FILES", "")
        for path in sorted(self.home.rglob("*")):
            kind = kind_of(self.home, path)
            if path.is_file() and not path.name.startswith(LEFT_ALONE) and "logs" not in path.parts and wanted in kind:
                kinds.setdefault(kind, []).append(path)
        path = self.dice.choice(kinds[self.dice.choice(sorted(kinds))])
        damage = self.dice.choice([each for each in DAMAGES if each == "gone" or path.stat().st_size])
        change = DAMAGES[damage]
        if change is None:
            path.unlink()
        else:
            path.write_bytes(change(bytearray(path.read_bytes()), self.dice))
        return path, damage

    def _judged(self, what: str, found: Outcome, wanted: dict[str, Any], path: Path, whole: Path) -> list[str]:
        if found.error is None:
            assert found.answers is not None
            differing = [name for name in wanted if found.answers.get(name) != wanted[name]]
            return [f"{what}: WRONG ANSWERS and no error: {', '.join(differing)}"] if differing else []
        self.say(f"    {what}: {found.error[-400:]}")
        if not found.own:
            return [f"{what}: no error of Hayase's own: {found.error[-1500:]}"]
        if not _names(found.error, path, self.home):
            return [f"{what}: the error does not name the file: {found.error}"]
        return self._remedied(found.error, path, whole)

    def _remedied(self, error: str, path: Path, whole: Path) -> list[str]:
        """Do what the error says; then all is right."""
        commands = [each.strip() for each in re.findall(r"`(hayase [^`]+)`", error)]
        ways = [commands] if commands else []
        if re.search(r"(remove|delete) it and run", error):
            ways = [["delete", *commands]]
        ways += [["a copy"]] if re.search(r"copy|backup|restore", error) else []
        ways += [["delete"]] if re.search(r"[Dd]elete it|remove the file", error) else []
        if not ways:
            return [f"the error says no remedy: {error}"]
        tried = self.dice.choice(ways)
        for each in tried:
            said = _done(each, self.project, path, whole)
            if said is not None:
                return [f"the remedy {each!r} fails: {said}"]
        _, _, wanted = _base()
        if any("--accept-loss" in command for command in tried):
            wanted = self._recomputed(path)
        elif commands and tried[-1] == commands[-1]:
            wanted = _after(tuple(each.replace(str(self.home), "home") for each in commands))
        [found] = _apart(self.project, "go on")
        if found.error is not None:
            return [f"after the remedy {tried}: {found.error[-1500:]}"]
        assert found.answers is not None
        differing = [name for name in wanted if not _alike(name, found.answers.get(name), wanted[name])]
        return [f"after the remedy {tried} WRONG ANSWERS: {', '.join(differing)}"] if differing else []

    def _recomputed(self, path: Path) -> dict[str, Any]:
        """What the home answers after an accepted loss, by recomputation: a copy in which every stage that began anew does
        so once more. Dead letters are not compared if it is they, or what became of them, that was lost."""
        copy = self.folder / "recomputed"
        shutil.copytree(self.project, copy)
        [names] = _apart(copy, "begun anew")
        assert names.answers is not None, names.error
        if names.answers["stages"]:
            said = _done(f"hayase reset {' '.join(names.answers['stages'])} --from earliest", copy, copy, copy)
            assert said is None, said
        [found] = _apart(copy, "go on")
        assert found.answers is not None, found.error
        if path.parent.name in ("_dead", "_settled"):
            del found.answers["dead letters"]
        return found.answers


def _done(remedy: str, project: Path, path: Path, whole: Path) -> str | None:
    """Carry out a remedy; what it says if it fails."""
    if remedy == "a copy":
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(whole, path)
        return None
    if remedy == "delete":
        path.unlink(missing_ok=True)
        return None
    command = [sys.executable, "-c", "from hayase.cli import main; main()", *shlex.split(remedy)[1:]]
    done = subprocess.run(
        command, cwd=project, capture_output=True, text=True, timeout=PATIENCE, check=False, input="y\n"
    )
    return None if done.returncode == 0 else f"{done.stdout[-300:]}{done.stderr[-600:]}"


@functools.cache
def _after(commands: tuple[str, ...]) -> dict[str, Any]:
    """What a home answers that was never damaged, after the same commands and more records: a reset begins with the earliest
    record that is kept."""
    base, _, _ = _base()
    project = Path(tempfile.mkdtemp(dir=base.parent)) / "project"
    shutil.copytree(base, project)
    for each in commands:
        said = _done(each, project, project, project)
        assert said is None, said
    [found] = _apart(project, "go on")
    assert found.answers is not None, found.error
    return found.answers


def _alike(name: str, found: Any, wanted: Any) -> bool:
    """Stages that were computed anew have refused their records once more."""
    return set(found) == set(wanted) if name == "dead letters" and found is not None else found == wanted


def _names(error: str, path: Path, home: Path) -> bool:
    """Whether an error says where to look: the file, or the store, the stage or the folder that it belongs to."""
    relative = path.relative_to(home)
    names = {path.name, str(relative)}
    if relative.parts[0] == "streams":  # a file that is gone has no name any more; its records have
        names |= {str(path.parent)}
    if relative.parts[0] == "tables":
        names |= {f'table "{relative.parts[1]}"', f"tables/{relative.parts[1]}"}
    return any(each in error for each in names)


def _load() -> None:
    """Import and compile once what every attempt needs."""
    for name in (
        "hayase.engine.definition.stage_graph",
        "hayase.engine.dead_letters.letters",
        "hayase.jobs.job_planner",
        "hayase.tables.table_planner",
        "hayase.tables.lookups",
        "hayase.tables.rocksdb",
        "hayase.operations.operation_planner",
        "every_file",
    ):
        import_module(name)
    import_module("hayase.lifetimes.compilation").compile_ahead()


@functools.cache
def _base() -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """A home with a file of every kind, and its answers before and after more records; made once for each process."""
    folder = Path(tempfile.mkdtemp(prefix="hayase-damage-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    _load()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    base = folder / "project"
    [made] = _apart(base, "make")
    assert made.answers is not None, made.error
    shutil.copytree(base, folder / "whole")
    [after] = _apart(folder / "whole", "go on")
    assert after.answers is not None, after.error
    return base, made.answers, after.answers


def _apart(project: Path, *steps: str) -> list[Outcome]:
    """Take some steps in a process of its own, which may crash or hang; what became of each, up to the first that failed."""
    here, there = multiprocessing.get_context("fork").Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_attempt, args=(project, steps, there), daemon=True)
    process.start()
    there.close()
    found: list[Outcome] = []
    try:
        while len(found) < len(steps) and not (found and found[-1].error):
            if not here.poll(PATIENCE):
                found.append(Outcome(error=f"a hang: nothing after {PATIENCE} s", own=False))
                break
            found.append(here.recv())
    except EOFError:
        process.join(10)
        found.append(Outcome(error=f"a crash: the process ended with {process.exitcode}", own=False))
    finally:
        process.kill()
        process.join()
        here.close()
    return found


def _begun_anew(project: Path) -> list[str]:
    """The queries, tables, jobs and operations with which the newest definition begins anew; none if it is the original's."""
    homes, definitions = import_module("hayase.engine.home"), import_module("hayase.engine.definition.definitions")
    base, _, _ = _base()
    newest, original = (definitions.latest(homes.Home(each / "home")) for each in (project, base))
    if newest.version == original.version:
        return []
    return sorted({record.query for record in newest.records if record.generation == newest.version})


def _attempt(project: Path, steps: Sequence[str], answer: Any) -> None:
    """Make the home, read it, or go on with it; runs in a process of its own."""
    every_file = import_module("every_file")
    errors = import_module("hayase.core.errors")

    try:
        for step in steps:
            if step == "begun anew":
                answer.send(Outcome({"stages": _begun_anew(project)}))
                continue
            pipeline = every_file.history(project, newer=True) if step == "make" else every_file.opened(project)
            if step == "go on":
                every_file.later(pipeline)
            answer.send(Outcome(every_file.answers(pipeline)))
    except errors.HayaseError as error:
        answer.send(Outcome(error=str(error)))
    except BaseException as error:
        answer.send(Outcome(error="".join(traceback.format_exception(error)), own=False))
    finally:
        answer.close()
        os._exit(0)
