"""Whether a call may run without asking: modes, written rules, grants, and commands that only look."""
