"""The class archive: Spark's classes as the JVM keeps them in memory (class data sharing), in a file of the user's cache.

A JVM that maps the archive does not read, parse and verify these classes again, which halves the CPU time of a start. The archive
is recorded by a run of its own, in the background, when a process that found none ends (`hayase.engine.spark.class_recorder`).

Nothing depends on it. The JVM itself compares the archive with its build and class path and does without if they differ. Only a
truncated archive would crash it, so the name states the size; and a JVM that does not start is started again without an archive.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pyspark

from hayase.core.data_classes import dataclass
from hayase.core.user_cache import keep_newest, last_used, user_cache

__all__ = ["JAVA_OPTIONS", "ClassArchive", "class_archive"]

JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
"""The setting for options of the driver's JVM; those that users give in `spark.driver.extraJavaOptions` follow them."""
OFF = "HAYASE_CLASS_ARCHIVE"
"""If this variable is 0, archives are neither used nor recorded."""
KEPT = 4
"""How many archives are kept however long ago they were used, each of about 160 MB: one per environment and Java."""
MOST = 16
"""How many archives there are at most. If all of them are in use, no further one is recorded: they would evict each other."""
UNUSED = 7 * 24 * 3600.0
"""Seconds after which an archive that no JVM has used is no longer in use."""
RETRY = 24 * 3600.0
"""Seconds until a recording that failed is tried again."""
_QUIET = "-Xlog:cds*=off"
_CLASS_PATH = ("SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
_CLASS_SETTINGS = ("spark.driver.extraClassPath", "spark.driver.extraJavaOptions", "spark.jars", "spark.jars.packages")

_to_record: set[str] = set()


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive for one Java, Spark, class path and set of options, whether it is there or not.

    Beside `<key>-<size>.jsa` the directory has `<key>.lock`, locked while a process records, and `<key>.failed`, written when
    a recording failed.
    """

    directory: Path
    key: str

    @property
    def file(self) -> Path | None:
        """The archive, if it is complete."""
        for path in self.directory.glob(f"{self.key}-*.jsa"):
            with contextlib.suppress(OSError):
                if path.name == self._name(path.stat().st_size):
                    return path
        return None

    def java_options(self) -> str:
        """Return the options for a JVM that uses the archive, if there is one, and mark it as used."""
        path = self.file
        if path is None:
            return ""
        with contextlib.suppress(OSError):
            os.utime(path)
        return f'-XX:SharedArchiveFile="{path}" {_QUIET}'

    @staticmethod
    def recording_options(path: Path) -> str:
        """Return the options for a JVM that writes the classes it has loaded to `path` when it ends."""
        return f'-XX:ArchiveClassesAtExit="{path}" {_QUIET}'

    def record_at_exit(self) -> None:
        """Record the archive in the background when this process ends, unless it is there, or could not be recorded lately, or
        there is no room for it."""
        failed = self.directory / f"{self.key}.failed"
        with contextlib.suppress(OSError):
            if time.time() - failed.stat().st_mtime < RETRY:
                return
        if len(self._all()) - len(self._unused()) >= MOST:
            return
        if self.key not in _to_record:
            _to_record.add(self.key)
            atexit.register(self._record_in_background)

    def _record_in_background(self) -> None:
        if self.file is not None:
            return
        command = [sys.executable, "-P", "-m", "hayase.engine.spark.class_recorder", str(self.directory), self.key]
        nowhere = subprocess.DEVNULL
        with contextlib.suppress(OSError):
            subprocess.Popen(
                command, stdin=nowhere, stdout=nowhere, stderr=nowhere, cwd="/", start_new_session=True, close_fds=True
            )

    def take(self, recorded: Path) -> None:
        """Make a recorded file the archive, atomically, and remove the archives that are no longer in use."""
        with recorded.open("rb") as file:
            os.fsync(file.fileno())
        recorded.rename(self.directory / self._name(recorded.stat().st_size))
        (self.directory / f"{self.key}.failed").unlink(missing_ok=True)
        for path in {*self._unused(), *keep_newest(self._all(), MOST)}:
            path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the archive, and try again later: a JVM did not start with it."""
        self.fail("a JVM did not start with the archive")
        for path in self.directory.glob(f"{self.key}-*.jsa"):
            path.unlink(missing_ok=True)

    def fail(self, reason: str) -> None:
        """Note that a recording failed, and why."""
        (self.directory / f"{self.key}.failed").write_text(f"{reason}\n", encoding="utf-8")

    def _all(self) -> list[Path]:
        """The archives of all environments."""
        return list(self.directory.glob("*.jsa"))

    def _unused(self) -> list[Path]:
        """The archives that no JVM has used for long, but for the newest."""
        since = time.time() - UNUSED
        return [path for path in keep_newest(self._all(), KEPT) if last_used(path) < since]

    def _name(self, size: int) -> str:
        return f"{self.key}-{size}.jsa"


def class_archive(java: str, settings: Mapping[str, str]) -> ClassArchive | None:
    """Return the archive for what `java -version` printed, this Spark and the settings of a session.

    None where archives are not used: where the user's cache cannot be written, the settings have Java options of their own,
    or a variable says so.
    """
    if os.environ.get(OFF) == "0" or JAVA_OPTIONS in settings:
        return None
    directory = user_cache("classes")
    return None if directory is None else ClassArchive(directory, _key(java, settings))


def _key(java: str, settings: Mapping[str, str]) -> str:
    """Return a digest of all that the classes depend on. Jars are compared by name, size and time, as the JVM does."""
    words = [java, os.environ.get("JAVA_HOME", ""), pyspark.__version__]
    words += [os.environ.get(name, "") for name in _CLASS_PATH]
    words += [settings.get(name, "") for name in _CLASS_SETTINGS]
    jars = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"
    with contextlib.suppress(OSError), os.scandir(jars) as entries:
        words.append(str(jars))
        words += sorted(f"{entry.name} {entry.stat().st_size} {entry.stat().st_mtime_ns}" for entry in entries)
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:24]
