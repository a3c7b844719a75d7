"""Streams: durable, append-only logs of records with event times; reading and writing them, and conforming records."""

from hayase.streams.event_time import event_times
from hayase.streams.log import UNKNOWN, Appended, Piece, StreamLog
from hayase.streams.log_index import Entry, Index
from hayase.streams.segments import stage

__all__ = [
    "UNKNOWN",
    "Appended",
    "Entry",
    "Index",
    "Piece",
    "StreamLog",
    "event_times",
    "stage",
]
