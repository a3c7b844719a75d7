"""The governor: which queues a pool of workers takes from, how much, and when it looks again (paper 3).

| policy | looks at | `u` |
|---|---|---|
| round-robin | nothing | |
| als | loads | rest between visits, none by default; with it this is asc |
| asc | loads | about a share of 1 - u of the polls are empty; 0.5 by default |
| informed | loads and the ends of the logs | likewise, of the looks; 0.97 by default |

`loads` measures, a policy decides, `Governor` holds the two together for a lane, `simulator` tries them at any size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from types import MappingProxyType
from typing import Any, cast

from hayase.core.errors import DeclarationError, UnknownName
from hayase.governor.adaptive import Adaptive
from hayase.governor.governor import Governor
from hayase.governor.informed import Informed
from hayase.governor.loads import LoadMeter, Loads
from hayase.governor.policy import Asker, Policy, Round, Sight
from hayase.governor.round_robin import RoundRobin

__all__ = [
    "POLICIES",
    "Adaptive",
    "Asker",
    "Governor",
    "Informed",
    "LoadMeter",
    "Loads",
    "Policy",
    "Round",
    "RoundRobin",
    "Sight",
    "policy_named",
]

POLICIES: Mapping[str, Callable[..., Policy]] = MappingProxyType(
    {"round-robin": RoundRobin, "als": Adaptive, "asc": partial(Adaptive, u=0.5), "informed": Informed}
)
"""By the names under which they are declared."""


def policy_named(name: str, **options: Any) -> Policy:
    """The policy of that name, with options such as `u`, as they stand in a declaration.

    >>> policy_named("als", u=0.5)
    Adaptive(u=0.5, length=50, longest=1.0, seed=0)
    >>> policy_named("informd")
    Traceback (most recent call last):
    hayase.core.errors.UnknownName: unknown policy "informd"; did you mean "informed"?
    """
    if name not in POLICIES:
        raise UnknownName("policy", name, POLICIES)
    known = [each.name for each in fields(cast(Any, POLICIES[name]()))]
    for option, value in options.items():
        if option not in known:
            raise UnknownName("option", option, known, f' of policy "{name}"')
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DeclarationError(f'the option "{option}" of policy "{name}" is {value!r}', "it is a number")
    return POLICIES[name](**options)
