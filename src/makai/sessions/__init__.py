"""Sessions: their pure engine, their log, and who runs them."""
