"""Tools of MCP servers: what is configured, how it is reached, and each of its tools as a `Tool`."""
