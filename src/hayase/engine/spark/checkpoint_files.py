"""Spark's own logs of a lane, without a process for every file.

For each batch Spark writes two small files to its checkpoint. Hadoop's local file system has no native library in a pip package,
so it starts the program `chmod` for each of them and for each of their checksum files: four processes a batch. Where all of Spark
is one process, the checkpoint is written through a file system of our own, which leaves permissions to the umask and writes no
checksums: the home is private, and a checkpoint carries no truth (docs/design/0002-one-manifest.md).

The file system is a Java class of a few lines. Spark brings the compiler along: it compiles its own queries with it.
"""

from __future__ import annotations

import logging
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from hayase.engine.spark.session import is_one_process

__all__ = ["checkpoint_location"]

_SCHEME = "hayase-checkpoint"
_CLASS = "hayase.CheckpointFileSystem"
_SOURCE = f"""
package hayase;

public class CheckpointFileSystem extends org.apache.hadoop.fs.RawLocalFileSystem {{
    public String getScheme() {{ return "{_SCHEME}"; }}
    public java.net.URI getUri() {{ return java.net.URI.create("{_SCHEME}:///"); }}
    public void setPermission(org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission) {{}}
}}
"""


def checkpoint_location(session: SparkSession, directory: Path) -> str:
    """Return what to give Spark as the location of a checkpoint in a directory."""
    if not is_one_process(session.sparkContext.master):
        return str(directory)
    try:
        _register(session)
    except (Py4JError, TypeError) as error:  # TypeError: py4j knows no such class, as in another build of Spark
        logging.getLogger(__name__).info("checkpoints are written through Hadoop's local file system: %s", error)
        return str(directory)
    return f"{_SCHEME}://{directory.absolute()}"


def _register(session: SparkSession) -> None:
    """Compile the file system and register it with the session, once."""
    settings, jvm = session.sparkContext._jsc.hadoopConfiguration(), session._jvm
    if settings.get(f"fs.{_SCHEME}.impl") is None:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(settings.getClassLoader())
        compiler.cook(_SOURCE)
        settings.setClassLoader(compiler.getClassLoader())
        settings.set(f"fs.{_SCHEME}.impl", _CLASS)
