"""`makai completion`: the script that teaches a shell to complete makai's commands and options.

In: the name of a shell. Out: the script on stdout. Click writes the script; nothing is installed.
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from makai.cli.console import say


@click.command(
    "completion",
    epilog="""\b
Examples:
  makai completion bash >> ~/.bashrc
  makai completion zsh  >> ~/.zshrc
  makai completion fish > ~/.config/fish/completions/makai.fish
""",
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of your shell."""
    writer = get_completion_class(shell)
    assert writer is not None
    root = ctx.find_root()
    say(writer(root.command, {}, "makai", "_MAKAI_COMPLETE").source())
