"""Java and what Maven Central has for it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from servers.parts import install, run
from servers.process import Missing

__all__ = ["java", "maven"]

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"


def maven(directory: Path, goal: str, *options: str) -> None:
    """Run a goal of Maven's dependency plugin in a directory; Maven is installed if it is missing and this process may."""
    if shutil.which("mvn") is None:
        install("maven")
    if shutil.which("mvn") is None:
        raise Missing(
            "Maven is missing, which gets Kafka and the schema registry; Debian, Ubuntu: apt-get install maven"
        )
    run(["mvn", "--quiet", "--batch-mode", f"{_PLUGIN}:{goal}", f"-DoutputDirectory={directory}", *options], directory)


def java() -> list[str]:
    """Return the command of a small JVM that starts fast."""
    home = os.environ.get("JAVA_HOME")
    command = shutil.which(f"{home}/bin/java" if home else "java")
    if command is None:
        raise Missing(
            "Java 17 or newer is missing; Debian, Ubuntu: apt-get install openjdk-17-jre-headless; or set JAVA_HOME"
        )
    return [command, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
