"""Hayase's streams in people's own Spark programs: `register(session)` makes `format("hayase")` known.

    hayase.spark.register(session)
    session.read.format("hayase").load("./shop/streams/orders").show()

The options, and what reading and writing guarantee, stand in `hayase.engine.datasource` and `hayase.engine.sink`.
"""

from hayase.engine.datasource import register

__all__ = ["register"]
