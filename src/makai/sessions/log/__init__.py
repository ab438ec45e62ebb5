"""The log of sessions: append, read, and the list of sessions. Everything else about a session is folded from it.

base        what a log is, and the shapes that go in and out
opening     opens the log that config.toml names; the only module that knows which stores there are
leases      who may append: the lease, its generation, and the lock of a machine
watchers    callbacks of readers that wait for a session to change
encoding    events to lines and back: joining of deltas, numbers, checksums
projection  the list of sessions and the saved permissions, folded from events
memory      a log that lives as long as its process
sqlite      the log of a MAKAI_HOME; writer, heads, store, permissions and schema are its parts
nodes       what a store adds that several processes write to: nodes, leases, owners of sessions
shards      in which of several databases a session is
postgres    the log in PostgreSQL, in one database or, by `postgres.sharded`, in several
repair      finds damage in a stored log, and makes it readable again
"""
