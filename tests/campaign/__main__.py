"""`python -m campaign`: rounds by seed, each in a process of its own.

HAYASE_SEEDS=20          how many seeds, counted from a fresh one (by default 5)
HAYASE_SEED=123          this one alone
HAYASE_ROUNDS=live       which kinds, of live, damage, flood, connectors (by default all)
HAYASE_FAULTS="kill jvm,full disk"     these faults instead of those that the seed draws, in live and connector rounds
    HAYASE_FILES=tables/     only files whose paths contain this, in damage rounds
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

LONGEST = 1_800
"""Seconds after which a round is ended, as a hang."""


def main() -> None:
    """Run the rounds that the environment asks for; the exit code says whether all were right."""
    if len(sys.argv) > 2:
        right = [one(sys.argv[1], int(seed)) for seed in sys.argv[2:]]
        sys.exit(0 if all(right) else 1)
    alone = os.environ.get("HAYASE_SEED")
    first = int(alone) if alone else random.SystemRandom().randrange(1, 10**6)
    seeds = range(first, first + (1 if alone else int(os.environ.get("HAYASE_SEEDS", "5"))))
    kinds = [each for each in os.environ.get("HAYASE_ROUNDS", ",".join(ROUNDS)).split(",") if each]
    if "live" in kinds:  # otherwise the first rounds start slowly, and record it themselves
        subprocess.run([sys.executable, "-m", "hayase.engine.spark.class_recorder"], check=False)
    failed = [(kind, seed) for kind in kinds for seed in seeds if not _apart(kind, seed)]
    print(f"{len(kinds) * len(seeds)} rounds, {len(failed)} failed")
    for kind, seed in failed:
        print(f"  again: HAYASE_SEED={seed} HAYASE_ROUNDS={kind} make test-long")
    sys.exit(1 if failed else 0)


def _apart(kind: str, seed: int) -> bool:
    """Run a round in a process of its own, so that neither a crash nor a hang of it ends the campaign. Damage rounds see to
    that by themselves, and share what is imported; connector rounds share their servers."""
    if kind in ("damage", "connectors"):
        return one(kind, seed)
    lock = os.environ.get("HAYASE_SPARK_LOCK")  # where several people share a machine
    command = [*(["flock", lock] if lock and kind == "live" else []), sys.executable, "-m", "campaign", kind, str(seed)]
    try:
        return subprocess.run(command, timeout=LONGEST, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"{kind} round {seed}: a hang: it took longer than {LONGEST} s", flush=True)
        return False


def one(kind: str, seed: int) -> bool:
    """Play one round and print its verdict; a folder of one that failed is kept."""
    memory = "/dev/shm" if kind == "damage" and Path("/dev/shm").is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix=f"hayase-{kind}-{seed}-", dir=memory))
    began = time.monotonic()
    try:
        wrong = ROUNDS[kind](seed, folder)
    except Exception:  # a round that cannot be judged has failed, and the others are played
        wrong = [traceback.format_exc()]
    verdict = "right" if not wrong else "WRONG"
    _say(f"{kind} round {seed}: {verdict} after {time.monotonic() - began:.0f} s")
    for each in wrong:
        _say(f"    {each}")
    if wrong:
        _say(f"    kept in {folder}; again: HAYASE_SEED={seed} HAYASE_ROUNDS={kind} make test-long")
    else:
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)
    return not wrong


def _live(seed: int, folder: Path) -> list[str]:
    from campaign.faults import drawn, named
    from campaign.live import LiveRound

    asked = os.environ.get("HAYASE_FAULTS")
    faults = [named(each.strip()) for each in asked.split(",")] if asked else drawn(seed)
    _say(f"live round {seed}: {', '.join(each.name for each in faults)}")
    return LiveRound(seed, faults, folder, say=_say).run()


def _flood(seed: int, folder: Path) -> list[str]:
    from campaign.flood import FloodRound

    round = FloodRound(seed, folder, _say)
    _say(f"flood round {seed}: {', '.join(round.floods)}")
    return round.run()


def _damage(seed: int, folder: Path) -> list[str]:
    from campaign.damage import DamageRound

    return DamageRound(seed, folder, _say).run()


def _connectors(seed: int, folder: Path) -> list[str]:
    try:
        from campaign.connector_endpoints import endpoints
        from campaign.connector_faults import drawn, named
        from campaign.connectors import ConnectorRound
        from servers.process import Missing
    except ImportError as error:  # `make test-long` installs the clients
        return [f"a client is missing: {error}; run: make servers"]
    try:
        endpoints()
    except Missing as missing:
        _say(f"connectors round {seed}: left out: {missing}")
        return []
    asked = os.environ.get("HAYASE_FAULTS")
    faults = [named(each.strip()) for each in asked.split(",")] if asked else drawn(seed)
    _say(f"connectors round {seed}: {', '.join(each.name for each in faults)}")
    return ConnectorRound(seed, faults, folder, _say).run()


ROUNDS = {"live": _live, "damage": _damage, "flood": _flood, "connectors": _connectors}


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
