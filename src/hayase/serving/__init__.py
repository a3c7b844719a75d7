"""Serving: the tables, streams and queries of a pipeline over HTTP, from the pipeline's own process."""

from hayase.serving.app import create_app
from hayase.serving.guard import Limits
from hayase.serving.server import Server, serving
from hayase.serving.service import Service, Status

__all__ = ["Limits", "Server", "Service", "Status", "create_app", "serving"]
