"""The messages of the Agent Client Protocol, version 1, as values. Both sides use them: `protocols.acp`, where makai is
the agent that an editor starts, and `harness.acp`, where makai is the client of another agent."""
