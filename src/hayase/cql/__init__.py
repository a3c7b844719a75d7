"""Continuous queries: from CQL text to the stages that the engine runs."""
