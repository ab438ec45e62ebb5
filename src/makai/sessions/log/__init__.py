"""The log of sessions: append, read, and a list of what there is. Everything else about a session is folded from it.

In: events of one session and the number of the last one their writer knows. Out: their numbers, once they are durable.

    base        what a log is, and the shapes that go in and out
    encoding    events to lines and back: joining of deltas, numbers, checksums
    projection  what the list of sessions shows and what was granted for ever, folded from events
    folders     which folders a word about one of them concerns
    memory      a log that lives as long as its process
    sqlite      the log of a MAKAI_HOME; writer, heads, store, checkpoints, permissions, schema and ownership are its
                parts
    repair      finds damage in a stored log, and makes it readable again
"""
