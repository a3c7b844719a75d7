"""Real servers for tests: Kafka, PostgreSQL and S3, on ports of their own at 127.0.0.1, each with a directory of its own.

`python -m servers`, which `make test-services` calls, gets what is missing and keeps it in the user's cache; a server itself never
downloads anything. A server whose parts are missing raises `Missing`, which says how to get them. Servers end with the process
that started them, however that ends.
"""
