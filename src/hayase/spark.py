"""Hayase as a Spark data source: `register(session)` adds `format("hayase")` to a session of your own.

    hayase.spark.register(session)
    session.read.format("hayase").option("home", "./shop").option("query", "spend").load().show()

`hayase.engine.spark.data_source` describes the options, `stream_sink` the guarantees of writing.
"""

from hayase.engine.spark.data_source import register

__all__ = ["register"]
