"""The command group: names, one line of help each, and where each command lives. Importing it must stay cheap."""

from __future__ import annotations

import importlib
import itertools

import click

from makai.cli.console import epilog

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("makai.cli.run:command", "Run one prompt and print the answer."),
    "chat": ("makai.cli.chat:command", "Chat with an agent in the terminal."),
    "sessions": ("makai.cli.sessions:command", "List, read, continue, export and delete sessions; manage permissions."),
    "auth": ("makai.cli.auth:command", "Log in to providers, log out, and show logins."),
    "models": ("makai.cli.models:command", "List models, or download the weights of the local one."),
    "web": ("makai.cli.serve:web_command", "Open the web page in your browser."),
    "serve": ("makai.cli.serve:command", "Start a server for the web page and other programs: WebSocket, SSE, gRPC."),
    "tokens": ("makai.cli.tokens:command", "Create, list and revoke tokens for programs and people."),
    "stdio": ("makai.cli.serve:stdio_command", "Serve one program on standard input and output."),
    "doctor": ("makai.cli.doctor:command", "Check what is installed and reachable, and what to do next."),
    "completion": ("makai.cli.commands:completion_command", "Print the completion script for your shell."),
}
"""Command -> `module:attribute`, and its line in the overview."""

_RUN = ("-p", "--prompt")
_RUN_OR_CHAT = (*_RUN, "-c", "--continue", "-r", "--resume", "-m", "--model")
"""Options that may come first, without a command."""

EXAMPLES = """\b
Examples:
  makai                                   chat with the default model
  makai run "Why is the sky blue?"        print one answer
  makai -p "Why is the sky blue?"         the same
  makai -c                                continue the newest session of this folder
  makai -r 3f2c9a1b                       continue a session by its id
  git diff | makai run "Review this"      standard input is added to the prompt
  makai run -m anthropic/claude-sonnet-5-5 --output-format json "Hi"
  makai web                               the same sessions in your browser
  makai sessions list                     the sessions of this folder
  makai auth login anthropic              log in once, for every makai process
  makai models list                       models you can use, and what others need
  makai doctor                            find out what is missing

\b
Exit codes: 0 done, 1 failed, 2 usage, 3 login needed, 130 interrupted.
"""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and args and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise click.UsageError(f"there is no command {args[0]!r}. {_did_you_mean(args[0])}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # As in other agents, `makai -p "…"` runs a prompt and `makai -c` continues a chat.
        if args and _is_option(args[0], _RUN_OR_CHAT):
            is_run = any(_is_option(word, _RUN) for word in itertools.takewhile(lambda word: word != "--", args))
            args = ["run" if is_run else "chat", *args]
        return super().parse_args(ctx, args)


def _is_option(word: str, names: tuple[str, ...]) -> bool:
    """Whether a word is one of these options, also with its value attached (`-pHi`, `--prompt=Hi`)."""
    return word.split("=")[0] in names or (word[:2] in names and not word.startswith("--"))


def _did_you_mean(word: str) -> str:
    from difflib import get_close_matches  # only an error pays for this import

    if close := get_close_matches(word, COMMANDS, n=1):
        return f"Did you mean `makai {close[0]}`?"
    return 'To ask a model, write `makai run "…"`.'


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="makai", message="makai %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> int | None:
    """One agent runtime for every model and every protocol.

    Without a command, makai starts a chat with the default model: the first provider you are logged in to or whose API
    key is set, else the small model on this machine.
    """
    if ctx.invoked_subcommand is not None:
        return None
    chat = cli.get_command(ctx, "chat")
    assert chat is not None
    code: int = ctx.invoke(chat)
    return code


@epilog("""
Examples:
  makai completion bash >> ~/.bashrc
  makai completion zsh  >> ~/.zshrc
  makai completion fish > ~/.config/fish/completions/makai.fish
""")
@click.command("completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion_command(shell: str) -> None:
    """Print the completion script for your shell."""
    from click.shell_completion import get_completion_class

    writer = get_completion_class(shell)
    assert writer is not None
    click.echo(writer(cli, {}, "makai", "_MAKAI_COMPLETE").source())
