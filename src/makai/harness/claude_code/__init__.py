"""Claude Code, driven by the lines of JSON that its own program reads and writes."""
