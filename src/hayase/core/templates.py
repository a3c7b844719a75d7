"""What `hayase init` writes: small pipelines that run as they are, kept as files in `hayase/templates/`."""

from __future__ import annotations

from importlib import resources

from hayase.core.errors import UnknownName

__all__ = ["template"]


def template(name: str = "shop") -> dict[str, str]:
    """The files of a template: path within the new directory -> text.

    >>> sorted(template())
    ['.gitignore', 'README.md', 'events.ndjson', 'pipeline.yaml']
    """
    known = {each.name: each for each in resources.files("hayase").joinpath("templates").iterdir() if each.is_dir()}
    if name not in known:
        raise UnknownName("template", name, known)
    # kept without its dot, so that it says nothing about this package's own files
    return {
        ".gitignore" if each.name == "gitignore" else each.name: each.read_text(encoding="utf-8")
        for each in sorted(known[name].iterdir(), key=lambda each: each.name)
    }
