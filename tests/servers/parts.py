"""Parts of servers in the user's cache: fetched and built once, complete or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hayase.core.user_cache import user_cache
from servers.process import Missing

__all__ = ["GET", "fetch", "find", "install", "run", "unpack_packages"]

GET = "get it with: make servers"
_PATIENCE = 1500.0
_SYSTEM = Path("/var/cache/hayase/servers")
"""Where root keeps what another user runs: that user may not enter root's home."""


def find(name: str, for_all: bool = False) -> Path | None:
    """Return the directory of a part in the user's cache, or None if it was not fetched.

    With `for_all`, other users can run it: root keeps it in the system's cache.
    """
    directory = _cache(for_all) / name
    return directory if directory.is_dir() else None


def fetch(name: str, build: Callable[[Path], None], for_all: bool = False) -> None:
    """Let `build` fill the directory of a part, unless it is there. A build that is interrupted leaves nothing under that name."""
    if find(name, for_all) is not None:
        return
    print(f"servers: getting {name} ...", flush=True)
    scratch = Path(tempfile.mkdtemp(prefix=".building-", dir=_cache(for_all)))
    try:
        build(scratch)
        if for_all:
            scratch.chmod(0o755)
        try:
            scratch.rename(_cache(for_all) / name)
        except OSError:
            if find(name, for_all) is None:  # else another process was faster
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def install(package: str) -> None:
    """Install a Debian package if this process may; whoever needs the package says that it is missing."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"servers: installing {package} ...", flush=True)
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        run(["apt-get", "update", "-qq"], environment=quiet)
        run(["apt-get", "install", "-qq", "--no-install-recommends", package], environment=quiet)


def unpack_packages(package: str, directory: Path) -> None:
    """Unpack a Debian package, and those that it needs and this machine lacks, into a directory. Nothing is installed."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Missing(f"this is neither Debian nor Ubuntu, from which {package} would come")
    scratch = directory / ".apt"
    for name in ("lists/partial", "cache/archives/partial"):
        (scratch / name).mkdir(parents=True)
    apt = [
        "apt-get", "-qq", "-o", f"Dir::State::lists={scratch}/lists", "-o", f"Dir::Cache={scratch}/cache",
        "-o", "APT::Sandbox::User=root",
    ]  # fmt: skip
    run([*apt, "update"])
    needed = run([*apt, "install", "--simulate", "--no-install-recommends", package])
    names = [line.split()[1] for line in needed.splitlines() if line.startswith("Inst ")]
    run([*apt, "download", *names], directory=scratch)
    for archive in sorted(scratch.glob("*.deb")):
        run(["dpkg-deb", "--extract", str(archive), str(directory)])
    shutil.rmtree(scratch)


def run(command: Sequence[str], directory: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Run a command that gets or builds a part, and return its output."""
    try:
        done = subprocess.run(
            command, cwd=directory, env={**os.environ, **(environment or {})}, timeout=_PATIENCE,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Missing(f"{command[0]} took more than {_PATIENCE:.0f} s: {' '.join(command)}") from None
    if done.returncode:
        raise Missing(f"{' '.join(command)} ended with status {done.returncode}: {done.stdout.strip()[-2000:]}")
    return done.stdout


def _cache(for_all: bool = False) -> Path:
    if for_all and os.geteuid() == 0:
        _SYSTEM.mkdir(mode=0o755, parents=True, exist_ok=True)
        return _SYSTEM
    directory = user_cache("servers")
    if directory is None:
        raise Missing("the user's cache (XDG_CACHE_HOME, ~/.cache) cannot be written: there is no place for servers")
    return directory
