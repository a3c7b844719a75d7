"""Lets the reference know Hayase's data classes (`hayase.core.data_classes`) as such, so that it shows their parameters."""

from __future__ import annotations

from typing import Any

import griffe

__all__ = ["DataClasses"]


class DataClasses(griffe.Extension):
    """Takes Hayase's decorator for the standard one, as type checkers do."""

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        """Let the name of the decorator stand for the standard one in a module that imports it."""
        imported = mod.members.get("dataclass")
        if isinstance(imported, griffe.Alias) and imported.target_path == "hayase.core.data_classes.dataclass":
            imported.target_path = "dataclasses.dataclass"
