"""`makai chat`: a conversation in the terminal.

In: options. Out: an exit code. This file is the command line only; `makai.cli.conversation` talks, and is loaded when
there is somebody to talk to.
"""

from __future__ import annotations

import click

from makai.cli.console import ACCOUNT_HELP, MODEL_HELP


@click.command(
    "chat",
    epilog="""\b
Examples:
  makai chat
  makai chat -m groq/openai/gpt-oss-120b --system-prompt "Answer in French"

\b
Ctrl-C stops an answer, Ctrl-D leaves; /help in the chat lists its commands.
""",
)
@click.option("-m", "--model", metavar="MODEL", help=MODEL_HELP)
@click.option("--account", metavar="NAME", help=ACCOUNT_HELP)
@click.option("--system-prompt", metavar="TEXT", help="Instructions for the model.")
def command(model: str | None = None, account: str | None = None, system_prompt: str | None = None) -> int:
    """Talk to a model in the terminal."""
    from makai.cli.conversation import converse

    return converse(model, system_prompt, account)
