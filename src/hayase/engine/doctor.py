"""Checks of the machine (`hayase doctor`): Python, Java, memory, disk, open files and packages, with advice.

`examine` collects the facts; `diagnose` is a pure function of them.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import resource
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from hayase.core.data_classes import dataclass

__all__ = ["Facts", "Finding", "diagnose", "examine"]

GB = 10**9
_TOLD = ("pyspark", "pyarrow", "duckdb")
LEAST_PYTHON = (3, 11)
LEAST_MEMORY, GOOD_MEMORY = 2 * GB, 4 * GB
LEAST_FILES = 1024
"""Least limit of open files per process: the JVM alone opens hundreds of archives at start."""
LEAST_DISK, GOOD_DISK = 1 * GB, 10 * GB

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*([^;]*)(;.*)?")
_BOUND = re.compile(r"(>=|<)\s*(\d+(?:\.\d+)*)")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `missing` means that Hayase cannot run; `advice` does not."""

    what: str
    found: str
    state: Literal["good", "advice", "missing"] = "good"
    advice: str | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about the machine. Sizes are in bytes; `packages` has None for a package that is not installed."""

    system: str
    python: tuple[int, int, int]
    java: int | None
    cores: int
    memory: int | None
    memory_free: int
    disks: Mapping[str, int]
    packages: Mapping[str, str | None]
    required: Mapping[str, str]
    files: int | None = None
    """How many files a process may open; None means no limit."""
    bytecode: bool = True
    """Whether packages have compiled bytecode."""


def examine(home: Path | None = None) -> Facts:
    """Collect facts about this machine; the disks are those of the home (or the working directory) and of temporary files."""
    required = _requirements()
    packages = {name: _installed(name) for name in required}
    java = None
    if packages.get("pyspark") is not None:
        from hayase.engine.spark.session import java_version

        java = java_version()
    total, free = _memory() if packages.get("psutil") is not None else (None, 0)
    place = _existing((home or Path()).resolve())
    return Facts(
        system=f"{platform.system()} {platform.machine()}",
        python=sys.version_info[:3],
        java=java,
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory=total,
        memory_free=free,
        disks={str(directory): shutil.disk_usage(directory).free for directory in (place, Path(tempfile.gettempdir()))},
        packages=packages,
        required=required,
        files=None if (most := resource.getrlimit(resource.RLIMIT_NOFILE)[1]) == resource.RLIM_INFINITY else most,
        bytecode=_has_bytecode("numba"),
    )


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """Return one or more findings for each check."""
    return (
        _python(facts),
        _java(facts),
        _memory_finding(facts),
        *(
            _enough(f"disk {place}", free, LEAST_DISK, GOOD_DISK, " free",
                    "streams grow with what is appended: make room, or set a retention")
            for place, free in facts.disks.items()
        ),
        Finding("cores", f"{facts.cores} ({facts.system})"),
        *_files(facts),
        *_packages(facts),
        *_bytecode(facts),
    )  # fmt: skip


def _python(facts: Facts) -> Finding:
    found = ".".join(map(str, facts.python))
    if facts.python[:2] < LEAST_PYTHON:
        return Finding("Python", found, "missing", "it must be 3.11 or newer; `uv python install 3.11` gets one")
    return Finding("Python", found)


def _java(facts: Facts) -> Finding:
    if facts.packages.get("pyspark") is None:
        return Finding("Java", "not looked at: pyspark is not installed", "advice")
    from hayase.engine.spark.session import JAVA_HINT, LEAST_JAVA

    if facts.java is None or facts.java < LEAST_JAVA:
        return Finding("Java", "none" if facts.java is None else f"{facts.java}", "missing", JAVA_HINT)
    return Finding("Java", f"{facts.java}")


def _memory_finding(facts: Facts) -> Finding:
    if facts.memory is None:
        return Finding("memory", "not looked at: psutil is not installed", "advice")
    advice = "Spark and its workers need about 2 GB; close other programs or use a bigger machine"
    free = f" ({facts.memory_free / GB:.1f} GB free)"
    return _enough("memory", facts.memory, LEAST_MEMORY, GOOD_MEMORY, free, advice)


def _files(facts: Facts) -> tuple[Finding, ...]:
    """Return a finding only if a process may open too few files."""
    if facts.files is None or facts.files >= LEAST_FILES:
        return ()
    advice = "Spark does not start; allow more, for instance by `ulimit -n 65536`"
    return (Finding("open files", f"{facts.files:,} at most", "missing", advice),)


def _enough(what: str, size: int, least: int, good: int, more: str, advice: str) -> Finding:
    found = f"{size / GB:.1f} GB{more}"
    if size >= good:
        return Finding(what, found)
    return Finding(what, found, "missing" if size < least else "advice", advice)


def _packages(facts: Facts) -> tuple[Finding, ...]:
    missing = []
    for name, bounds in facts.required.items():
        version = facts.packages.get(name)
        if version is None or not _within(version, bounds):
            found = "not installed" if version is None else f"{version}, but {bounds} is needed"
            missing.append(Finding(name, found, "missing", f'pip install "{name}{bounds}"'))
    shown = ", ".join(f"{name} {facts.packages[name]}" for name in _TOLD if facts.packages.get(name))
    return tuple(missing) or (Finding("packages", f"all {len(facts.required)} ({shown})"),)


def _bytecode(facts: Facts) -> tuple[Finding, ...]:
    """Return advice if every start compiles all modules again: uv installs no bytecode, and PYTHONDONTWRITEBYTECODE keeps Python
    from writing it."""
    if facts.bytecode:
        return ()
    advice = (
        f"every command starts 2 seconds later: `{sys.executable} -m compileall -q {sysconfig.get_path('purelib')}`"
    )
    return (Finding("bytecode", "none in the packages", "advice", advice),)


def _has_bytecode(package: str) -> bool:
    """Whether Python would find or write bytecode for a package; also true if it is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.cached is None:
        return True
    return not sys.dont_write_bytecode or Path(spec.cached).exists()


def _within(version: str, bounds: str) -> bool:
    """Whether a version satisfies bounds such as `>=4.3,<4.4`.

    >>> _within("4.3.1", ">=4.3,<4.4"), _within("4.4", ">=4.3,<4.4")
    (True, False)
    """
    numbers = _numbers(version)
    limits = [(sign, _numbers(bound)) for sign, bound in _BOUND.findall(bounds)]
    return all(numbers >= limit if sign == ">=" else numbers < limit for sign, limit in limits)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the parts of a version without trailing zeros: 4.0 equals 4."""
    parts = [int(part) for part in re.match(r"\d*(?:\.\d+)*", version)[0].split(".") if part]  # type: ignore[index]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def _requirements() -> dict[str, str]:
    """Return the requirements in the metadata of the installed package, without extras."""
    requirements = {}
    for text in importlib.metadata.requires("hayase") or ():
        match = _REQUIREMENT.fullmatch(text)
        if match and "extra" not in (match[3] or ""):
            requirements[match[1]] = match[2].strip().replace(" ", "")
    return dict(sorted(requirements.items()))


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _memory() -> tuple[int, int]:
    """Return total and free memory, within the limit of the container, if there is one."""
    import psutil

    memory = psutil.virtual_memory()
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):  # no container, or "max": no limit
        return memory.total, memory.available
    return min(memory.total, limit), min(memory.available, max(0, limit - used))


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path
