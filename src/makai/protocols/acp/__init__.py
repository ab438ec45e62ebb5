"""The agent side of the Agent Client Protocol without I/O: events, prompts, questions and settings as messages."""
