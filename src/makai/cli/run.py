"""`makai run`: one question, one answer.

In: a prompt from the arguments and standard input. Out: the answer as text, as one JSON object, or as a line of JSON
per event. This file is the command line only; `makai.cli.answer` asks and prints, and is loaded when there is a
question.
"""

from __future__ import annotations

import os
import sys

import click

from makai.cli.console import ACCOUNT_HELP, MODEL_HELP, note

MAX_STDIN_BYTES = 20_000_000
PATIENCE_S = 2.0
"""How long we wait for standard input before we say that we do."""
FORMATS = ("text", "json", "stream-json")
EFFORTS = ("off", "minimal", "low", "medium", "high", "xhigh")
"""`core.model.ReasoningEffort`, written out so that help needs no import of it."""


@click.command(
    "run",
    epilog="""\b
Examples:
  makai run "Why is the sky blue?"
  makai run -m openai/gpt-6.1-sol --effort high "Prove it"
  cat notes.txt | makai run "Summarise this in three lines"
  makai run --json-schema person.json "Ada Lovelace, born 1815"
  makai run --output-format stream-json "Hi" | jq -r 'select(.type=="text_delta").delta'

\b
Exit codes: 0 done, 1 failed, 2 usage, 3 login needed, 130 interrupted.
""",
)
@click.argument("prompt", required=False)
@click.option("-p", "--prompt", "prompt_option", metavar="TEXT", help="The prompt, as an option.")
@click.option("-m", "--model", metavar="MODEL", help=MODEL_HELP)
@click.option("--account", metavar="NAME", help=ACCOUNT_HELP)
@click.option("--system-prompt", metavar="TEXT", help="Instructions for the model.")
@click.option("--json-schema", metavar="FILE|JSON", help="The answer must be JSON of this schema.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Longest answer, in tokens.")
@click.option("--temperature", type=click.FloatRange(0, 2), help="Randomness of the answer.")
@click.option("--effort", type=click.Choice(EFFORTS), help="How much the model thinks first.")
@click.option(
    "--stall-timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Give up when the model says nothing new for so long.  [default: 300]",
)
@click.option(
    "--max-retries",
    type=click.IntRange(min=0),
    help="Further attempts after a rate limit, a server fault or a failed connection.  [default: 3]",
)
@click.option("--output-format", type=click.Choice(FORMATS), default="text", show_default=True)
def command(
    prompt: str | None,
    prompt_option: str | None,
    model: str | None,
    system_prompt: str | None,
    json_schema: str | None,
    output_format: str,
    **settings: object,
) -> int:
    """Ask a model once and print its answer.

    Standard input, when it is not a terminal, is added to the prompt. Without -m the first provider whose API key is
    set answers, else the small model on this machine.
    """
    if prompt and prompt_option:
        raise click.UsageError("the prompt is given twice, as an argument and with -p: give it once")
    question = _question(prompt or prompt_option)
    if _has_stray_bytes(question) or _has_stray_bytes(system_prompt or ""):
        raise click.UsageError("the prompt is not valid UTF-8 text")

    from makai.cli.answer import answer, options_from
    from makai.cli.console import run_async

    options = options_from(json_schema, **settings)
    return run_async(answer(model, question, system_prompt, options, output_format))


def _question(prompt: str | None) -> str:
    piped = _piped_text()
    question = "\n\n".join(part for part in (prompt, piped.strip()) if part)
    if not question.strip():
        raise click.UsageError('there is no prompt: write `makai run "your question"` or pipe one in')
    return question


def _piped_text() -> str:
    """What was piped in. Bytes that are not UTF-8 are replaced: logs have them, and they carry no meaning."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return ""
    if not _arrives_soon():
        note("makai: reading standard input… (nothing came yet; `< /dev/null` says there is none)", dim=True)
    data = sys.stdin.buffer.read(MAX_STDIN_BYTES + 1)
    if len(data) > MAX_STDIN_BYTES:
        raise click.UsageError(f"standard input is longer than {MAX_STDIN_BYTES} bytes")
    return data.decode("utf-8", "replace")


def _arrives_soon() -> bool:
    """Whether standard input has something, or its end, within the time a person waits without wondering."""
    if os.name != "posix":
        return True  # `select` knows only sockets there
    import select

    return bool(select.select([sys.stdin.buffer], [], [], PATIENCE_S)[0])


def _has_stray_bytes(text: str) -> bool:
    """Whether the text came with bytes that are not UTF-8, which Python keeps as lone surrogates."""
    return any("\ud800" <= character <= "\udfff" for character in text)
