"""Helpers for asyncio that know nothing else of makai: task sets, cancellation, supervised child processes."""
