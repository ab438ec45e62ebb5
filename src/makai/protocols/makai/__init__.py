"""The Makai protocol: JSON envelopes that any transport can carry (documents 000 and 001)."""
