"""A package, unlike its neighbours: otherwise `acp` would be the official SDK, where that is installed."""
