"""`makai run`: the command line only; `run_session` and what it uses are loaded when there is a prompt."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from makai.cli.console import epilog, note
from makai.cli.session_options import (
    POSITIVE_SECONDS,
    SessionCommand,
    check_session_options,
    check_text,
    session_options,
)

MAX_STDIN_BYTES = 20_000_000
PATIENCE_S = 2.0
"""How long standard input may be silent before a note says what is awaited."""
FORMATS = ("text", "json", "stream-json")


@epilog("""
Examples:
  makai run "Why is the sky blue?"
  makai run -m openai/gpt-6.1-sol --effort high "Prove it"
  cat notes.txt | makai run "Summarise this in three lines"
  makai run @src/app.py @error.png "Why does this fail?"
  makai run --allowed-tools "Bash(git log:*),Read" "What changed this week?"
  makai run --permission-mode accept_edits --max-turns 20 "Fix the failing test"
  makai run --sandbox read-only "Run the tests and say which fail"
  makai run -c "And now the other one"
  makai run --agent gemini "What does this folder hold?"
  makai run --json-schema person.json "Ada Lovelace, born 1815"
  makai run --output-format stream-json "Hi" | jq -r 'select(.type=="text_delta").delta'
  makai run -q -o answer.md "Write the release notes" < CHANGELOG.md

Every run is a session that you can continue (-c, -r, `makai -r ID`), unless you give --no-session.
Calls that need an approval are shown to you in a terminal. Without a terminal they are denied.
Exit codes: 0 done, 1 failed or stopped by a limit, 2 usage, 3 login needed, 130 interrupted.
""")
@click.command("run", cls=SessionCommand)
@click.argument("words", metavar="[@FILE]... [PROMPT]", nargs=-1)
@click.option(
    "-p",
    "--prompt",
    "--print",
    "prompt_option",
    metavar="[TEXT]",
    is_flag=False,
    flag_value="",
    help="The prompt; without a text, the argument or standard input is.",
)
@session_options
@click.option("--no-session", is_flag=True, help="Do not save this run as a session.")
@click.option("--max-seconds", type=POSITIVE_SECONDS, metavar="SECONDS", help="Stop after this time.")
@click.option("--json-schema", metavar="FILE|JSON", help="Require JSON that matches this schema.")
@click.option("--output-format", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option(
    "-o",
    "--output-last-message",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the last message of the model to this file too, when the run succeeds.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but the answer, warnings and errors.")
def command(words: tuple[str, ...], prompt_option: str | None, output_format: str, **given: Any) -> int:
    """Run one prompt and print the answer.

    Standard input, when it is not a terminal, is added to the prompt; the prompt - is standard input alone. Files that
    are named as @FILE before the prompt go along with it. Without -m, the model of your settings answers, else the
    first provider you are logged in to or whose API key is set, else the small model on this machine. The agent may
    read files and search; before changing anything, makai shows you the exact command or diff and asks.
    """
    prompt, files = _prompt_and_files(words)
    if prompt and prompt_option:
        raise click.UsageError("you gave two prompts, as an argument and with -p: give one")
    check_session_options(given)
    question = question_from(prompt or prompt_option)
    check_text(question, given)

    from makai.cli.console import run_async
    from makai.cli.run_request import request_from
    from makai.cli.run_session import answer

    return run_async(answer(request_from(question, given, files=files), output_format))


def _prompt_and_files(words: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """A file is a word of its own, so that text which a script puts into a prompt attaches nothing."""
    is_file = [word.startswith("@") and len(word) > 1 and not any(map(str.isspace, word)) for word in words]
    files = tuple(os.path.abspath(word[1:]) for word, named in zip(words, is_file, strict=True) if named)
    prompts = [word for word, named in zip(words, is_file, strict=True) if not named]
    if len(prompts) > 1:
        raise click.UsageError('put the prompt in quotes: makai run "your question"')
    for path in files:
        if not os.path.exists(path):
            raise click.UsageError(f"there is no file {path}; a word with @ that is none belongs into the prompt")
    return (prompts[0] if prompts else None), files


def question_from(prompt: str | None) -> str:
    """The prompt and standard input; "-" is standard input alone."""
    question = "\n\n".join(part for part in (prompt if prompt != "-" else None, piped_text().strip()) if part)
    if not question.strip():
        raise click.UsageError('the prompt is missing: write `makai run "your question"` or pipe one in')
    return question


def piped_text() -> str:
    """Standard input when it is not a terminal. Bytes that are no text are replaced, and the person learns it."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return ""
    if not _arrives_soon():
        note("makai: waiting for standard input… (add `< /dev/null` if there is none)", dim=True)
    data = sys.stdin.buffer.read(MAX_STDIN_BYTES + 1)
    if len(data) > MAX_STDIN_BYTES:
        raise click.UsageError(f"standard input is longer than {MAX_STDIN_BYTES} bytes")
    text = data.decode("utf-8", "replace")
    if text.encode() != data or "\0" in text:
        note("makai: standard input is not all text; the model sees \ufffd for each byte that is none", dim=True)
    return text.replace("\0", "\ufffd")


def _arrives_soon() -> bool:
    """Whether standard input has data, or its end, within `PATIENCE_S`."""
    if os.name != "posix":
        return True  # `select` knows only sockets there
    import select

    return bool(select.select([sys.stdin.buffer], [], [], PATIENCE_S)[0])
