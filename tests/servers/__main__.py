"""Gets all parts of servers that are missing. What cannot be had is said, and is no failure: the tests say it again."""

from __future__ import annotations

import sys

from servers.azure import fetch_azure
from servers.gcs import fetch_gcs
from servers.iceberg import fetch_iceberg
from servers.kafka import fetch_kafka
from servers.postgres import fetch_postgres
from servers.process import Missing
from servers.promtool import fetch_promtool
from servers.s3 import fetch_s3
from servers.schema_registry import fetch_schema_registry

PARTS = (
    fetch_kafka,
    fetch_schema_registry,
    fetch_postgres,
    fetch_s3,
    fetch_azure,
    fetch_gcs,
    fetch_iceberg,
    fetch_promtool,
)

for fetch in PARTS:
    try:
        fetch()
    except Missing as missing:
        print(f"servers: {missing}", file=sys.stderr)
