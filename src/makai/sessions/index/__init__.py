"""Search and usage over all sessions: a view of the log that can be thrown away and built again.

base         what an index of sessions is, and the shapes that go in and out
extraction   what of a session's events can be searched and counted
search_text  what a person types as a query, and the snippets that show what was found
words        how text is split into words where a store does not do it itself
ranking      which sessions come first, in every store
sqlite       the index of a MAKAI_HOME, in a file beside the log
postgres     the index of all nodes, in the database of the log; `postgres_schema` has its tables
indexer      keeps an index up to date with the log, and answers requests from it
"""
