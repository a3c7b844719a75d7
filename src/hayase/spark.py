"""Hayase's streams as a Spark data source: `register(session)` adds `format("hayase")` to a session of your own.

    hayase.spark.register(session)
    session.read.format("hayase").load("./shop/streams/orders").show()

`hayase.engine.spark.stream_source` and `stream_sink` describe the options and the guarantees of reading and writing.
"""

from hayase.engine.spark.stream_source import register

__all__ = ["register"]
