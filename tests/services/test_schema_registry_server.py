"""The schema registry of the tests: it gives ids to Avro schemas, which the client's serializer and deserializer use."""

from __future__ import annotations

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from servers.schema_registry import SchemaRegistry

AMOUNT = '{"name": "amount", "type": "long"}'
ORDER = f'{{"type": "record", "name": "order", "fields": [{AMOUNT}]}}'
NOTED = (
    f'{{"type": "record", "name": "order", "fields": [{AMOUNT}, {{"name": "note", "type": "string", "default": ""}}]}}'
)


def test_records_are_written_and_read_by_registered_schemas(schema_registry: SchemaRegistry) -> None:
    context = SerializationContext("orders", MessageField.VALUE)
    with SchemaRegistryClient({"url": schema_registry.url}) as client:
        payloads = [
            AvroSerializer(client, schema, conf={"subject.name.strategy": lambda context, name: "orders-value"})(
                row, context
            )
            for schema, row in ((ORDER, {"amount": 3}), (NOTED, {"amount": 4, "note": "gift"}))
        ]
    assert payloads[0][:1] == b"\0"
    assert payloads[0][:5] != payloads[1][:5]  # the magic byte, then the schema's id
    with SchemaRegistryClient({"url": schema_registry.url}) as client:
        read = AvroDeserializer(client)
        assert [read(payload, context) for payload in payloads] == [{"amount": 3}, {"amount": 4, "note": "gift"}]


def test_schemas_stay_when_the_registry_is_killed(schema_registry: SchemaRegistry) -> None:
    with SchemaRegistryClient({"url": schema_registry.url}) as client:
        registered = client.register_schema("kept-value", Schema(ORDER, "AVRO"))
    schema_registry.kill()
    schema_registry.start()
    with SchemaRegistryClient({"url": schema_registry.url}) as client:
        assert client.get_latest_version("kept-value").schema_id == registered
        with pytest.raises(SchemaRegistryError, match="404"):
            client.get_schema(registered + 1000)
