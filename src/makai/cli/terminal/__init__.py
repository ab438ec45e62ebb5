"""The interactive terminal of `makai chat`: one more client of a live session."""
