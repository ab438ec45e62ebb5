"""Which models exist, what they can do, how they are named, and the one resolver that makes them runnable."""
