"""SQL over PostgreSQL's protocol: psql, JDBC, SQLAlchemy and others ask a home, as `hayase.relations` reads it."""
