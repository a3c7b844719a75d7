"""Hayase's streams in people's own Spark programs: `register(session)` makes `format("hayase")` known.

    hayase.spark.register(session)
    session.read.format("hayase").load("./shop/streams/orders").show()

`hayase.engine.spark.stream_source` and `stream_sink` describe the options and what reading and writing guarantee.
"""

from hayase.engine.spark.stream_source import register

__all__ = ["register"]
