"""The native agent behind the port: the loop of `agent` with the tools of a session."""
