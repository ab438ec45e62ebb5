"""How frames move between two makai processes; what they say is the business of `makai.protocols`."""
