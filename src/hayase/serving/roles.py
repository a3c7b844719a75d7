"""The role that a request needs: `read` for what only reads, `append` for records, `operate` for everything else that changes."""

from __future__ import annotations

from hayase.core.tokens import Role

__all__ = ["role_needed"]

_READING_POSTS = ("/playground/check", "/playground/explain", "/playground/run", "/playground/plan")
"""Requests with a body that change nothing."""


def role_needed(method: str, path: str) -> Role:
    """Return the role that a request needs.

    >>> role_needed("GET", "/dead"), role_needed("POST", "/streams/orders"), role_needed("POST", "/dead/replay")
    ('read', 'append', 'operate')
    """
    if method in ("GET", "HEAD"):
        return "read"
    if method == "POST" and (path.startswith("/tables/") or path in _READING_POSTS):
        return "read"
    return "append" if method == "POST" and path.startswith("/streams/") else "operate"
