"""`makai chat`: a conversation in the terminal.

This file is the command line only; `makai.cli.terminal.chat_setup` is loaded when the chat starts.
"""

from __future__ import annotations

from typing import Any

import click

from makai.cli.console import (
    ACCOUNT_OPTION,
    CONTINUE_OPTION,
    MODEL_OPTION,
    RESUME_OPTION,
    SANDBOX_OPTION,
    ModeType,
    epilog,
)


@epilog("""
Examples:
  makai chat
  makai chat -m groq/openai/gpt-oss-120b --system-prompt "Answer in French"
  makai chat --sandbox read-only  commands change no file
  makai -c                        the newest session of this folder
  makai -r 3f2a                   a session by the beginning of its id

Esc stops the agent, Ctrl-D leaves; /help lists commands and keys.
""")
@click.command("chat")
@MODEL_OPTION
@CONTINUE_OPTION
@RESUME_OPTION
@click.option("--permission-mode", "mode", type=ModeType(), help="What the agent may do without asking you.")
@SANDBOX_OPTION
@click.option("--cwd", metavar="FOLDER", help="The folder to work in.  [default: this one]")
@ACCOUNT_OPTION
@click.option("--system-prompt", metavar="TEXT", help="Instructions for the model, in a new session.")
def command(**given: Any) -> int:
    """Chat with an agent in the terminal."""
    is_old = given["continue_newest"] or given["resume"] is not None
    if given["continue_newest"] and given["resume"] is not None:
        raise click.UsageError("give -c or -r, not both")
    if is_old and given["system_prompt"] is not None:
        raise click.UsageError("--system-prompt is only for a new session: leave it out, or leave out -c and -r")

    from makai.cli.terminal.chat_setup import ChatRequest, converse

    return converse(ChatRequest(**given))
