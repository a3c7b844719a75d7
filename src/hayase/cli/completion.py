"""Names that the shell completes: of streams, tables, queries, operations and stages, from the pipeline file and its home.

A person waits for them between two keys. So the file is read as YAML and no further, the home is only listed, and where
something is wrong there is nothing to complete: the command itself will say what.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import typer

from hayase.cli.pipeline_location import DEFAULT

__all__ = ["declared_streams", "groups", "operations", "queries", "stages", "streams", "tables", "templates"]

_MADE = ("queries", "jobs", "operations")
"""Sections whose entries write streams of their names."""


def declared_streams(ctx: typer.Context, incomplete: str) -> list[str]:
    """Streams that take records."""
    return _beginning(incomplete, _sections(ctx, "streams"))


def streams(ctx: typer.Context, incomplete: str) -> list[str]:
    """All streams: declared ones, those that stages write, and what else lies in the home."""
    return _beginning(incomplete, [*_sections(ctx, "streams", *_MADE), *_stored(ctx, "streams/*/stream.json")])


def tables(ctx: typer.Context, incomplete: str) -> list[str]:
    """Tables."""
    return _beginning(incomplete, _sections(ctx, "tables"))


def groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Streams and tables."""
    return [*tables(ctx, incomplete), *streams(ctx, incomplete)]


def queries(ctx: typer.Context, incomplete: str) -> list[str]:
    """Queries."""
    return _beginning(incomplete, _sections(ctx, "queries"))


def operations(ctx: typer.Context, incomplete: str) -> list[str]:
    """Operations, those that were added while the pipeline runs too."""
    return _beginning(incomplete, _sections(ctx, "operations"))


def stages(ctx: typer.Context, incomplete: str) -> list[str]:
    """Whatever has state or an output of its own."""
    return _beginning(incomplete, _sections(ctx, *_MADE, "tables"))


def templates(incomplete: str) -> list[tuple[str, str]]:
    """Templates of `hayase init`, each with what it shows."""
    from hayase.cli.templates import TEMPLATES

    return [(name, about) for name, about in TEMPLATES.items() if name.startswith(incomplete)]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _sections(ctx: typer.Context, *sections: str) -> list[str]:
    """The names in sections of the file, then those of the newest definition in the home."""
    known = (_file(ctx), _definition(_home(ctx)))
    return [name for section in sections for each in known for name in _names(each.get(section))]


def _names(section: Any) -> list[str]:
    if isinstance(section, Mapping):
        return [str(name) for name in section]
    if isinstance(section, list):
        return [each["name"] for each in section if isinstance(each, Mapping) and "name" in each]
    return []


def _stored(ctx: typer.Context, pattern: str) -> list[str]:
    home = _home(ctx)
    return [] if home is None else sorted(path.parent.name for path in home.glob(pattern))


def _file(ctx: typer.Context) -> Mapping[str, Any]:
    """What the pipeline file says; nothing if there is none, or it cannot be read."""
    import yaml

    path = _path(ctx)
    try:
        read = None if path is None else yaml.load(path.read_bytes(), getattr(yaml, "CBaseLoader", yaml.BaseLoader))  # noqa: S506
    except (OSError, ValueError, yaml.YAMLError):
        read = None
    return read if isinstance(read, Mapping) else {}


def _path(ctx: typer.Context) -> Path | None:
    """The pipeline file, by the same order as `places.locate`: the one that is given, unless a home is."""
    given = ctx.params.get("pipeline") or ctx.params.get("file") or ctx.params.get("what")
    if given is not None and (path := Path(str(given))).suffix in (".yaml", ".yml"):
        return path
    return None if ctx.params.get("home") is not None else DEFAULT


def _home(ctx: typer.Context) -> Path | None:
    """The home that is given, or the one that the file names."""
    given, path = ctx.params.get("home"), _path(ctx)
    if given is not None or path is None:
        return None if given is None else Path(str(given))
    file = _file(ctx)
    place = file.get("home", file.get("pipeline"))
    return path.parent / place if isinstance(place, str) and place else None


def _definition(home: Path | None) -> Mapping[str, Any]:
    """The declaration in the newest definition of a home; nothing if there is none."""
    found = [] if home is None else sorted((home / "definitions").glob("*.json"))
    try:
        declared = json.loads(found[-1].read_bytes().partition(b"\n")[2])["declaration"] if found else {}
    except (OSError, ValueError, KeyError, TypeError):
        declared = {}
    return declared if isinstance(declared, Mapping) else {}
