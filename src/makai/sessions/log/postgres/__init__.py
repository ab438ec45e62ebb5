"""The log in PostgreSQL, for one node or many (extra `postgres`)."""
