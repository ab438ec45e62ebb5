"""Search and usage over all sessions: a view of the log that can be thrown away and built again.

base         what an index of sessions is, and the shapes that go in and out
extraction   what of a session's events can be searched and counted
search_text  what a person types as a query, and the snippets that show what was found
sqlite       the index of a MAKAI_HOME, in a file beside the log
indexer      keeps an index up to date with the log, and answers requests from it
"""
