"""The command group: names, one line of help each, and where each command lives. Importing it must stay cheap."""

from __future__ import annotations

import importlib
import itertools
import sys

import click

from makai.cli.console import epilog

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("makai.cli.run:command", "Run one prompt and print the answer."),
    "complete": ("makai.cli.complete:command", "Ask once for text or JSON of a schema; nothing is kept."),
    "chat": ("makai.cli.chat:command", "Chat with an agent in the terminal."),
    "sessions": ("makai.cli.sessions:command", "List, read, continue, export and delete sessions; manage permissions."),
    "usage": ("makai.cli.usage:command", "Show tokens and costs by day, model, agent or folder."),
    "top": ("makai.cli.top:command", "Watch sessions, agents, cost and nodes live."),
    "setup": ("makai.cli.setup:command", "Get a model to work with: a local one, a login, or a demo."),
    "auth": ("makai.cli.auth:command", "Log in to providers, log out, and show logins."),
    "models": ("makai.cli.models:command", "List models, or download the weights of the local one."),
    "mcp": ("makai.cli.mcp:command", "Add, list, remove and test MCP servers."),
    "web": ("makai.cli.serve:web_command", "Open the web page in your browser."),
    "serve": ("makai.cli.serve:command", "Start a server for the web page and other programs: WebSocket, SSE, gRPC."),
    "tokens": ("makai.cli.tokens:command", "Create, list and revoke tokens for programs and people."),
    "stdio": ("makai.cli.serve:stdio_command", "Serve one program on standard input and output."),
    "acp": ("makai.cli.acp:command", "Be the agent of an editor: Zed, JetBrains, Neovim, Emacs."),
    "harness": ("makai.cli.harness:command", "Run other agents on tasks, in git worktrees, and see what each can do."),
    "doctor": ("makai.cli.doctor:command", "Check what is installed and reachable, and what to do next."),
    "config": ("makai.cli.config:command", "Show and change your settings: model, mode, effort, theme, sandbox."),
    "self-update": ("makai.cli.self_update:command", "Show the command that updates makai."),
    "completion": ("makai.cli.commands:completion_command", "Print the completion script for your shell."),
}
"""Command -> `module:attribute`, and its line in the overview."""

_RUN = (
    *("-p", "--prompt", "--print", "--output-format", "--json-schema", "--no-session", "--max-seconds"),
    *("-o", "--output-last-message", "-q", "--quiet"),
)
"""Options that only `run` has: with one of them, and without a command, it is a run."""
_OWN = ("-h", "--help", "--version")
"""Options of `makai` itself. Any other one that comes first is one of `run` and `chat`."""
_OTHER_WORDS = {
    **{"help": "makai --help", "version": "makai --version", "ask": "makai run", "exec": "makai run"},
    **{
        "login": "makai auth login",
        "logout": "makai auth logout",
        "status": "makai doctor",
        "list": "makai sessions list",
    },
    **{
        "resume": "makai -r ID",
        "continue": "makai -c",
        "history": "makai sessions list",
        "settings": "makai config show",
    },
    **{
        "set": "makai config set",
        "get": "makai config get",
        "agents": "makai harness list",
        "pull": "makai models pull",
        "update": "makai self-update",
        "upgrade": "makai self-update",
    },
}
"""Words that are commands of other programs or belong to another command of makai."""

EXAMPLES = """\b
Examples:
  makai                                   chat with the default model
  makai "Why is the sky blue?"            the same, and begin with a question
  makai run "Why is the sky blue?"        print one answer
  makai -p "Why is the sky blue?"         the same
  makai -c                                continue the newest session of this folder
  makai -r 3f2c9a1b                       continue a session by its id; makai -r lists them
  git diff | makai run "Review this"      standard input is added to the prompt
  makai run -m anthropic/claude-sonnet-5-5 --output-format json "Hi"
  makai -a gemini                         chat with another agent
  makai web                               the same sessions in your browser
  makai sessions list                     the sessions of this folder
  makai auth login anthropic              log in once, for every makai process
  makai models list                       models you can use, and what others need
  makai config set model sonnet           the model to use from now on
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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # As in other agents, `makai -p "…"` runs a prompt, `makai -c` continues a chat, `makai "…"` begins one, and
        # `… | makai` prints the answer to what is piped.
        if not args and not ctx.resilient_parsing and not sys.stdin.isatty():
            args = ["run"]
        if args and args[0] not in COMMANDS and not _is_option(args[0], _OWN) and not ctx.resilient_parsing:
            words = list(itertools.takewhile(lambda word: word != "--", args))
            if not args[0].startswith("-"):
                _check_question(ctx, words)
            args = ["run" if any(_is_option(word, _RUN) for word in words) else "chat", *args]
        return super().parse_args(ctx, args)


def _is_option(word: str, names: tuple[str, ...]) -> bool:
    """Whether a word is one of these options, also with its value attached (`-pHi`, `--prompt=Hi`)."""
    return word.split("=")[0] in names or (word[:2] in names and not word.startswith("--"))


def _check_question(ctx: click.Context, words: list[str]) -> None:
    """A word that is nearly a command is refused: a typing error must not be sent to a model."""
    first = words[0]
    if any(map(str.isspace, first)):
        return
    from difflib import get_close_matches  # only a word that is no command pays for this import

    close = [_OTHER_WORDS[first]] if first in _OTHER_WORDS else get_close_matches(first, COMMANDS, n=1, cutoff=0.65)
    ask = 'To ask a model, write `makai run "…"`.'
    if close:
        command = close[0] if close[0].startswith("makai") else f"makai {close[0]}"
        raise click.UsageError(f"there is no command {first!r}. Did you mean `{command}`? {ask}", ctx)
    if len(words) > 1 and not words[1].startswith("-"):
        quoted = 'Put a question in quotes: makai "your question".'
        raise click.UsageError(f"there is no command {first!r}. {quoted}", ctx)


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

    Without a command, makai starts a chat. The model is that of your settings (`makai config set model sonnet`), else
    of the first provider you are logged in to or whose API key is set, else the small one on this machine.
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
