"""The messages that `/init` and `/review` send, the same in every client. Pure."""

from __future__ import annotations

from typing import Final

INIT: Final = """\
Look at this project and write AGENTS.md in its root: what an agent must know to work here, in at most 60 lines. Say \
what the project is, how it is laid out, the exact commands to build it, to run all tests and a single one, and to \
lint, and the conventions that the code itself shows. Check each command in the files of the project; leave out what \
you cannot verify and what every developer knows. If AGENTS.md exists, improve it and keep what is still right."""
REVIEW: Final = """\
Review the uncommitted changes of this repository: look at `git status`, `git diff HEAD` and new files, and at the \
code around them as far as you need it. Change nothing. Report what is wrong, the most serious first, each with file \
and line, why it is wrong and how to fix it: bugs, lost error handling, security, missing tests, what contradicts the \
conventions here. Say so when you find nothing, and do not praise."""
BUILTIN_PROMPTS: Final = {"init": INIT, "review": REVIEW}


def with_hints(prompt: str, hints: str) -> str:
    """The message with what else the user says."""
    return f"{prompt}\n\n{hints}" if hints else prompt
