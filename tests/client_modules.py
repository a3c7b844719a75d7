"""The modules of Hayase that import a client of an optional extra, such as hayase[kafka]: `make test` runs without extras."""

from __future__ import annotations

import importlib.util
import pkgutil
import re
from functools import cache
from pathlib import Path

import hayase

CLIENTS = ("confluent_kafka", "deltalake", "fastavro", "obstore", "psycopg2", "pyiceberg")
_IMPORT = re.compile(r"^(?:from|import) ([\w.]+)", re.MULTILINE)

MODULES = sorted(
    each.name
    for each in pkgutil.walk_packages(hayase.__path__, "hayase.")
    if not each.name.endswith(("_loops", "__main__", ".daemon"))
)
"""All modules with examples."""


@cache
def needs_client(module: str) -> bool:
    """Whether a module imports a client at its top, itself or through other modules of the connectors."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return False
    names = _IMPORT.findall(Path(spec.origin).read_text(encoding="utf-8"))
    return any(
        name.partition(".")[0] in CLIENTS or (name.startswith("hayase.connectors.") and needs_client(name))
        for name in names
    )
