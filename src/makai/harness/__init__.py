"""The port through which a session runs an agent, and the agents behind it."""
