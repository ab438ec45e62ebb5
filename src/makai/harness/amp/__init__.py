"""Amp, driven by the lines of JSON that its own program writes."""
