"""The HTTP interface of a pipeline: tables, streams, queries, operations and dead letters, served from its own process."""

from hayase.serving.app import create_app
from hayase.serving.guard import Limits
from hayase.serving.server import Server, serving
from hayase.serving.service import Service, Status

__all__ = ["Limits", "Server", "Service", "Status", "create_app", "serving"]
