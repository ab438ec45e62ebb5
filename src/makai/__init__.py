"""makai: one agent runtime for every protocol."""

__version__ = "0.1.0"
