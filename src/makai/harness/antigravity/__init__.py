"""Antigravity behind the port of external agents: plain words on a terminal, one process per prompt."""
