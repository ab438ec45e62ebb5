"""Codex behind the port of external agents: its app-server protocol as requests and updates of ACP."""
