"""Reads shell commands, and compares their programs and options with lists of what is harmless."""
