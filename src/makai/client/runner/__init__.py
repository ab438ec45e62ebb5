"""Runs a harness on one task in a git worktree of its own, and reports what came of it as a `Result`."""
