"""`makai complete`: one answer of a model or an agent, without a session that is kept. Loaded parts: when it runs."""

from __future__ import annotations

import os
from typing import Any

import click

from makai.cli.console import AGENT_OPTION, EXIT_FAILED, MODEL_OPTION, epilog, note, output_format, say, say_json
from makai.cli.run import question_from
from makai.cli.session_options import AGENT_EFFORTS, POSITIVE_SECONDS, agent_effort


@epilog("""
Examples:
  makai complete "Name a colour"
  makai complete --schema person.json "Ada Lovelace, born 1815"
  makai complete --schema '{"type":"integer"}' -m openai/gpt-6.1-sol "How many legs has a spider?"
  cat mail.txt | makai complete --schema invoice.json -a claude-code "Extract the invoice"
  makai complete --schema person.json --json "Ada" | jq .cost

With --schema, standard output is one JSON value that is valid under the schema, or nothing. An answer that is not is
asked for again (--repairs). Agents work in an empty folder, and every call that needs an approval is denied.
Exit codes: 0 done, 1 failed or no valid answer, 2 usage, 3 login needed, 130 interrupted.
""")
@click.command("complete")
@click.argument("prompt", required=False)
@MODEL_OPTION
@AGENT_OPTION
@click.option("--schema", metavar="FILE|JSON", help="Require JSON that matches this JSON Schema.")
@click.option("--system-prompt", "system", metavar="TEXT", default="", help="Instructions for the model.")
@click.option("--effort", type=click.Choice(AGENT_EFFORTS), help="How much the model reasons first.")
@click.option("--max-tokens", type=click.IntRange(min=1), default=None, help="Maximum length of the answer, in tokens.")
@click.option(
    "--repairs", type=click.IntRange(0, 5), default=1, show_default=True, help="Further tries for valid JSON."
)
@click.option("--timeout", type=POSITIVE_SECONDS, default=600.0, metavar="SECONDS", help="Give up after this time.")
@output_format
def command(prompt: str | None, as_json: bool, **given: Any) -> int:
    """Ask once and print the answer: text, or JSON that matches a schema.

    Standard input, when it is not a terminal, is added to the prompt. Nothing is kept; use `makai run` for a session.
    """
    question = question_from(prompt)

    from makai.cli.console import run_async

    return run_async(_answer(question, given, as_json=as_json))


async def _answer(question: str, given: dict[str, Any], *, as_json: bool) -> int:
    from makai.cli.run_request import read_schema
    from makai.client.harness.opening import open_harness
    from makai.client.one_shot import complete
    from makai.providers.logins import user_settings

    settings = user_settings(os.environ)
    schema = None if given["schema"] is None else read_schema(given["schema"])
    async with open_harness(given["agent"] or "native") as harness:
        answer = await complete(
            harness,
            question,
            schema,
            system=given["system"],
            model=given["model"] or "",
            effort=agent_effort(given["effort"], settings.effort),
            max_tokens=given["max_tokens"] or 0,
            repairs=given["repairs"],
            timeout_s=given["timeout"],
        )
    is_done = schema is None or answer.schema_ok
    if as_json:
        say_json(
            {
                "text": answer.text,
                "structured": answer.structured,
                "schemaOk": answer.schema_ok,
                "problem": answer.problem,
                "cost": answer.cost,
                "transportUsed": answer.transport_used,
                "attempts": answer.attempts,
            }
        )
    elif schema is None:
        say(answer.text)
    elif is_done:
        say_json(answer.structured)
    if not is_done:
        tries = f" after {answer.attempts} tries" if answer.attempts > 1 else ""
        note(f"makai: there is no valid answer{tries}. {answer.problem}", fg="red")
    return 0 if is_done else EXIT_FAILED
