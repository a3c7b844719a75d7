"""The governor: decides how many records of which queues a pool of workers takes next, and when it polls again (paper 3).

| policy | input | `u` |
|---|---|---|
| round-robin | none | |
| als | loads | controls the rest between visits; 0 by default, no rest; above 0 the policy is asc |
| asc | loads | a share of about 1 - u of the polls is empty; 0.5 by default |
| informed | loads and the ends of the logs | a share of about 1 - u of the polls is empty; 0.97 by default |

`loads` measures, a policy decides, and `Governor` combines the two for a lane. `benchmarks/governor_simulator.py` simulates the
policies with any number of queues and workers.
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
from hayase.governor.policy import Asker, Policy, QueueState, Round
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
    "QueueState",
    "Round",
    "RoundRobin",
    "policy_named",
]

POLICIES: Mapping[str, Callable[..., Policy]] = MappingProxyType(
    {"round-robin": RoundRobin, "als": Adaptive, "asc": partial(Adaptive, u=0.5), "informed": Informed}
)
"""The policies, by their declared names."""


def policy_named(name: str, **options: Any) -> Policy:
    """Return the policy of that name, with options such as `u` from a declaration.

    >>> policy_named("als", u=0.5)
    Adaptive(u=0.5, length=50, longest=1.0, seed=0)
    >>> policy_named("informd")
    Traceback (most recent call last):
    hayase.core.errors.UnknownName: unknown policy "informd"; did you mean "informed"?
    """
    if name not in POLICIES:
        raise UnknownName("policy", name, POLICIES)
    option_names = [field.name for field in fields(cast(Any, POLICIES[name]()))]
    for option, value in options.items():
        if option not in option_names:
            raise UnknownName("option", option, option_names, f' of policy "{name}"')
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DeclarationError(f'the option "{option}" of policy "{name}" is {value!r}', "it is a number")
    return POLICIES[name](**options)
