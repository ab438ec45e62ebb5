"""The Python SDK: a program's own connection to makai, in process, to a child or to a server."""
