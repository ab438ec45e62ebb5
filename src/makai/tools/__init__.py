"""What an agent may do (files, shell, search, fetch, MCP) and what confines it (policy, sandbox)."""
