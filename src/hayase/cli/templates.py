"""The templates of `hayase init`: small working pipelines, stored as files in `hayase/templates/`."""

from __future__ import annotations

from importlib import resources

from hayase.core.errors import UnknownName

__all__ = ["TEMPLATES", "template"]

TEMPLATES = {
    "queries": "continuous queries over a stream of events",
    "tables": "tables that rules keep right, however late events come",
    "jobs": "MapReduce over an access log, merged with a stored list",
    "operations": "your own Python on orders, in processes of its own",
    "all": "a shop that uses all of these in one pipeline",
}
"""The templates with their descriptions."""


def template(name: str = "queries") -> dict[str, str]:
    """Return the files of a template: path within the new directory -> text.

    >>> sorted(template())
    ['.gitignore', 'README.md', 'events.ndjson', 'pipeline.yaml']
    """
    if name not in TEMPLATES:
        raise UnknownName("template", name, TEMPLATES)
    files = resources.files("hayase").joinpath("templates", name).iterdir()
    # .gitignore is stored without its dot, so that git does not apply it here; compiled modules are not part of a template
    return {
        ".gitignore" if file.name == "gitignore" else file.name: file.read_text(encoding="utf-8")
        for file in sorted(files, key=lambda file: file.name)
        if file.is_file()
    }
