"""Shell completion of the names of streams, tables, queries, operations and stages, from the pipeline file and its home.

It must be quick. So the file is parsed as YAML only, the home is only listed, and errors give no completions: the command
itself reports them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import typer

from hayase.cli.pipeline_location import DEFAULT

__all__ = [
    "declared_streams",
    "groups",
    "operations",
    "queries",
    "relations",
    "stages",
    "streams",
    "tables",
    "templates",
]

_WRITING_SECTIONS = ("queries", "jobs", "operations")
"""Sections whose entries write a stream of the same name."""


def declared_streams(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete declared streams."""
    return _matching(incomplete, _names_in(ctx, "streams"))


def streams(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete all streams: declared ones, outputs of stages, and others in the home."""
    return _matching(
        incomplete, [*_names_in(ctx, "streams", *_WRITING_SECTIONS), *_stored_names(ctx, "streams/*/stream.json")]
    )


def tables(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete tables."""
    return _matching(incomplete, _names_in(ctx, "tables"))


def groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete streams and tables."""
    return [*tables(ctx, incomplete), *streams(ctx, incomplete)]


def queries(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete queries."""
    return _matching(incomplete, _names_in(ctx, "queries"))


def relations(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete what can be asked: tables, streams with the results of queries, and the dead letters."""
    names = [*_names_in(ctx, "queries", "tables", "streams", "jobs", "operations"), "dead_letters"]
    return _matching(incomplete, names)


def operations(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete operations, including those added while the pipeline runs."""
    return _matching(incomplete, _names_in(ctx, "operations"))


def stages(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete stages."""
    return _matching(incomplete, _names_in(ctx, *_WRITING_SECTIONS, "tables"))


def templates(incomplete: str) -> list[tuple[str, str]]:
    """Complete the templates of `hayase init`, with their descriptions."""
    from hayase.cli.templates import TEMPLATES

    return [(name, about) for name, about in TEMPLATES.items() if name.startswith(incomplete)]


def _matching(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _names_in(ctx: typer.Context, *sections: str) -> list[str]:
    """Return the names in sections of the file, then those of the newest definition in the home."""
    known = (_file(ctx), _definition(_home(ctx)))
    return [name for section in sections for source in known for name in _names(source.get(section))]


def _names(section: Any) -> list[str]:
    if isinstance(section, Mapping):
        return [str(name) for name in section]
    if isinstance(section, list):
        return [entry["name"] for entry in section if isinstance(entry, Mapping) and "name" in entry]
    return []


def _stored_names(ctx: typer.Context, pattern: str) -> list[str]:
    home = _home(ctx)
    return [] if home is None else sorted(path.parent.name for path in home.glob(pattern))


def _file(ctx: typer.Context) -> Mapping[str, Any]:
    """Return the pipeline file as a mapping; an empty one if there is no file or it cannot be read."""
    import yaml

    path = _path(ctx)
    try:
        read = None if path is None else yaml.load(path.read_bytes(), getattr(yaml, "CBaseLoader", yaml.BaseLoader))  # noqa: S506
    except (OSError, ValueError, yaml.YAMLError):
        read = None
    return read if isinstance(read, Mapping) else {}


def _path(ctx: typer.Context) -> Path | None:
    """Return the pipeline file as `pipeline_location.locate` chooses it; None if only a home is named."""
    file = ctx.params.get("pipeline") or ctx.params.get("file") or ctx.params.get("what")
    if file is not None and (path := Path(str(file))).suffix in (".yaml", ".yml"):
        return path
    return None if ctx.params.get("home") is not None else DEFAULT


def _home(ctx: typer.Context) -> Path | None:
    """Return the home of `--home`, or the one that the file names."""
    home, path = ctx.params.get("home"), _path(ctx)
    if home is not None or path is None:
        return None if home is None else Path(str(home))
    file = _file(ctx)
    place = file.get("home", file.get("pipeline"))
    return path.parent / place if isinstance(place, str) and place else None


def _definition(home: Path | None) -> Mapping[str, Any]:
    """Return the declaration in the newest definition of a home; an empty mapping if there is none."""
    files = [] if home is None else sorted((home / "definitions").glob("*.json"))
    try:
        declared = json.loads(files[-1].read_bytes().partition(b"\n")[2])["declaration"] if files else {}
    except (OSError, ValueError, KeyError, TypeError):
        declared = {}
    return declared if isinstance(declared, Mapping) else {}
