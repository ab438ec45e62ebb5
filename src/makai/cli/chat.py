"""`makai chat`: a conversation in the terminal.

This file is the command line only; `makai.cli.terminal.chat_setup` is loaded when the chat starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click

from makai.cli.console import ACCOUNT_HELP, MODEL_HELP

if TYPE_CHECKING:
    from makai.core.session_events import PermissionMode

MODES = ("ask", "accept_edits", "plan", "full_access")
"""`core.session_events.PermissionMode`, written out so that help needs no import of it."""


@click.command(
    "chat",
    epilog="""\b
Examples:
  makai chat
  makai chat -m groq/openai/gpt-oss-120b --system-prompt "Answer in French"
  makai -c                        the newest session of this folder
  makai -r 3f2a                   a session by the beginning of its id

\b
Esc stops the agent, Ctrl-D leaves; /help lists commands and keys.
""",
)
@click.option("-m", "--model", metavar="MODEL", help=MODEL_HELP)
@click.option("-c", "--continue", "continue_newest", is_flag=True, help="Continue the newest session of this folder.")
@click.option("-r", "--resume", metavar="ID", help="Continue this session; the beginning of its id is enough.")
@click.option("--permission-mode", "mode", type=click.Choice(MODES), help="What the agent may do without asking you.")
@click.option("--cwd", metavar="FOLDER", help="The folder to work in.  [default: this one]")
@click.option("--account", metavar="NAME", help=ACCOUNT_HELP)
@click.option("--system-prompt", metavar="TEXT", help="Instructions for the model, in a new session.")
def command(
    model: str | None = None,
    continue_newest: bool = False,
    resume: str | None = None,
    mode: str | None = None,
    cwd: str | None = None,
    account: str | None = None,
    system_prompt: str | None = None,
) -> int:
    """Chat with an agent in the terminal."""
    is_old = continue_newest or resume is not None
    if continue_newest and resume is not None:
        raise click.UsageError("give -c or -r, not both")
    if is_old and system_prompt is not None:
        raise click.UsageError("--system-prompt is only for a new session: leave it out, or leave out -c and -r")

    from makai.cli.terminal.chat_setup import ChatRequest, converse

    return converse(
        ChatRequest(
            model=model,
            account=account,
            system_prompt=system_prompt,
            mode=cast("PermissionMode | None", mode),
            cwd=cwd,
            resume=resume,
            continue_newest=continue_newest,
        )
    )
