"""One batch of a lane: how far it reads, map side, exchange, reduce side, state. Without Spark."""
