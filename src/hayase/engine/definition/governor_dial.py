"""The governor's dial u, changed by a command, whether or not the pipeline runs.

A change is a new version of the definition, which lanes adopt between two batches; they keep their measurements. Like a changed
operation, it stays in force until the pipeline's file says something else of the governor (`proposals.prepare`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hayase.core.data_classes import dataclass
from hayase.core.declarations import GovernorDeclaration
from hayase.core.errors import DeclarationError
from hayase.engine.definition.definitions import Definition, Dial
from hayase.engine.definition.proposals import Prepared, amend
from hayase.engine.home import Home
from hayase.governor import POLICIES, policy_named

__all__ = ["DialStatus", "dial_status", "set_dial"]


@dataclass(frozen=True, slots=True)
class DialStatus:
    """The policy of a definition with its u, None if it has none, and the u that the pipeline's file declares.

    It is set `by_command` if it differs from the file.
    """

    version: int
    policy: str
    u: float | None
    declared_u: float | None
    by_command: bool

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "version": self.version,
            "policy": self.policy,
            "u": self.u,
            "declared_u": self.declared_u,
            "by": "command" if self.by_command else "file",
        }


def dial_status(definition: Definition) -> DialStatus:
    """Return the policy and the dial of a definition."""
    governor, declared = definition.declaration.governor, _declared(definition)
    policy = (governor or GovernorDeclaration()).policy
    return DialStatus(definition.version, policy, _u_of(governor), _u_of(declared), definition.dial is not None)


def set_dial(home: Home, u: float | None) -> Definition:
    """Write a definition in which the governor has this u; None restores what the pipeline's file declares."""

    def edit(current: Definition) -> Prepared:
        declared = _declared(current)
        policy = (declared or GovernorDeclaration()).policy
        if _u_of(declared) is None:
            having = ", ".join(name for name in POLICIES if hasattr(POLICIES[name](), "u"))
            raise DeclarationError(f'the policy "{policy}" has no u', f"these have one: {having}")
        dial = None if u is None or u == _u_of(declared) else Dial(declared, u)
        governor = declared if dial is None else dial.governor
        _u_of(governor)  # raises if the policy does not take it
        declaration = replace(current.declaration, governor=governor)
        return replace(Prepared.of(current), declaration=declaration, dial=dial)

    return amend(home, edit)


def _declared(definition: Definition) -> GovernorDeclaration | None:
    """Return the governor as the pipeline's file declares it."""
    return definition.declaration.governor if definition.dial is None else definition.dial.declared


def _u_of(governor: GovernorDeclaration | None) -> float | None:
    governor = governor or GovernorDeclaration()
    u: float | None = getattr(policy_named(governor.policy, **dict(governor.options)), "u", None)
    return u
