"""Drives other agents over the Agent Client Protocol, in which makai is the client."""
