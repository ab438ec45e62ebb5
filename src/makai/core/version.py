"""The version of makai: one string, here so that every layer may name it."""

__version__ = "0.1.0"
