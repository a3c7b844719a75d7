"""What Kafka's source and sink share: the settings of a client, and its errors in words."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from hayase.connectors.secrets import secret_in
from hayase.core.errors import EndpointError, PositionMoved

__all__ = ["TIMEOUT", "client_settings", "explained"]

TIMEOUT = 10.0
"""Seconds that a question to the brokers may take."""
_QUIET = logging.getLogger("hayase.kafka")
"""librdkafka repeats every failure to connect several times a second."""
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False
_FENCED = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)


def client_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a client of librdkafka: brokers and security."""
    settings: dict[str, Any] = {
        "bootstrap.servers": options["brokers"],
        "client.id": "hayase",
        "socket.connection.setup.timeout.ms": 10_000,
        "logger": _QUIET,
        "error_cb": lambda error: None,  # each call raises its own
    }
    protocol = ("SASL_" if options["sasl"] else "") + ("SSL" if options["tls"] else "PLAINTEXT")
    settings["security.protocol"] = protocol
    if options["tls_ca"]:
        settings["ssl.ca.location"] = options["tls_ca"]
    if options["sasl"]:
        settings |= {
            "sasl.mechanism": options["sasl"],
            "sasl.username": options["username"],
            "sasl.password": secret_in(options, "password"),
        }
    return settings


@contextlib.contextmanager
def explained(options: Mapping[str, Any]) -> Iterator[None]:
    """Turn an error of the client into EndpointError, or PositionMoved if another process has taken this one's place."""
    try:
        yield
    except KafkaException as error:
        detail = error.args[0]
        if isinstance(detail, KafkaError):
            if detail.code() in _FENCED:
                raise PositionMoved(
                    f'another process writes to topic "{options["topic"]}" as this output', "stop one of the two"
                ) from error
            text = f"{detail.str()} ({detail.name()})"
        else:
            text = str(detail)
        raise EndpointError(
            f'Kafka at {options["brokers"]}, topic "{options["topic"]}": {text}',
            "check the brokers, the topic and the access to it",
        ) from error
