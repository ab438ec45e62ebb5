"""The native agent loop: a model, its tools, and the rules between them. It knows no session, protocol or store."""
