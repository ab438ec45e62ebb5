"""What processes that share a MAKAI_HOME say to each other: the owner of the log, and those that attach to it."""
