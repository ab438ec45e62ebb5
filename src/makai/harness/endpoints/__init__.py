"""Model endpoints as data: which companies serve models, where, and with what login; and the pure way to a binding."""
