"""Continuous queries: from CQL text to the stages that the engine runs."""

from hayase.cql.planner import Planned, plan

__all__ = ["Planned", "plan"]
