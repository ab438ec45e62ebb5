"""The harness contract over sessions of makai: `open_harness` gives any agent as a `makai.harness.Harness`."""
