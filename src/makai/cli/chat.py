"""`makai chat`: a conversation in the terminal.

This file is the command line only; `makai.cli.terminal.chat_setup` is loaded when the chat starts.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from makai.cli.console import epilog
from makai.cli.early_prompt import EARLY_PROMPT
from makai.cli.session_options import SessionCommand, check_session_options, check_text, session_options


@epilog("""
Examples:
  makai chat
  makai "What does this folder hold?"   begins with a question
  makai chat -m groq/openai/gpt-oss-120b --system-prompt "Answer in French"
  makai chat --sandbox read-only  commands change no file
  makai -a gemini                 another agent, such as claude, codex or 'acp:my-agent --acp'
  makai -c                        the newest session of this folder
  makai -r 3f2a                   a session by the beginning of its id

Esc stops the agent, Ctrl-D leaves; /help lists commands and keys.
With a question, and without a terminal, it answers once and prints the answer, as `makai run` does.
""")
@click.command("chat", cls=SessionCommand)
@click.argument("prompt", required=False)
@session_options
def command(prompt: str | None, **given: Any) -> int:
    """Chat with an agent in the terminal."""
    check_session_options(given)
    is_old = given["continue_newest"] or given["resume"] is not None
    for option in ("system_prompt", "append_system_prompt", "tool_servers"):
        if is_old and given[option]:
            name = f"--{option.rstrip('s').replace('_', '-')}"
            raise click.UsageError(f"{name} is only for a new session: leave it out, or leave out -c and -r")
    check_text(prompt or "", given)
    if prompt is not None and not prompt.strip():
        raise click.UsageError('the question is empty: write `makai "your question"`, or only `makai` for a chat')

    EARLY_PROMPT.show()
    from makai.cli.run_request import request_from

    if prompt is not None and not (sys.stdin.isatty() and sys.stdout.isatty()):
        from makai.cli.console import run_async
        from makai.cli.run import question_from
        from makai.cli.run_session import answer

        return run_async(answer(request_from(question_from(prompt), given), "text"))
    from makai.cli.terminal.chat_setup import converse

    return converse(request_from(prompt or "", given, is_chat=True))
