"""`makai mcp`: the command line only; `mcp_servers` reads, writes and checks."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

import click

from makai.cli.console import EXIT_FAILED, epilog, note, output_format, run_async, say_result, tell

if TYPE_CHECKING:
    from makai.server.mcp_servers import ListedServer, ServerFile

_SCOPE = click.Choice(("user", "project"))
_ANY_SCOPE = click.option("--scope", type=_SCOPE, help="Only this file: yours (MAKAI_HOME) or the project's.")


@epilog("""
Examples:
  makai mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
  makai mcp add issues https://mcp.example/mcp --header "Authorization=Bearer ${ISSUES_TOKEN}"
  makai mcp list --check
  makai mcp test files
  makai mcp remove files

Your servers are in MAKAI_HOME/mcp.json, a project's in .mcp.json, in the form that Claude and Cursor use.
""")
@click.group("mcp")
def command() -> None:
    """Add, list, remove and test MCP servers, whose tools the agent may use."""


class _AddCommand(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = (
                f"For an option of the program, write `--` before it: makai mcp add NAME -- COMMAND {error.option_name}"
            )
            raise click.UsageError(f"{error.format_message()} {hint}", ctx) from None


@epilog("""
Examples:
  makai mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
  makai mcp add --env TOKEN='${MY_TOKEN}' --network web -- uvx some-server
  makai mcp add issues https://mcp.example/mcp

Options come first; `--` ends them. ${NAME} is a variable that is read when the server starts.
""")
@command.command("add", cls=_AddCommand)
@click.argument("name")
@click.argument("target", nargs=-1, required=True, metavar="URL | COMMAND [ARGUMENT]...")
@click.option("--scope", type=_SCOPE, default="user", show_default=True, help="For you, or for this project.")
@click.option("--transport", type=click.Choice(("stdio", "http", "sse")), help="[default: by the look of it]")
@click.option("-e", "--env", metavar="NAME=VALUE", multiple=True, help="A variable of the program. Repeatable.")
@click.option("--header", metavar="NAME=VALUE", multiple=True, help="A header for the URL. Repeatable.")
@click.option("--network", is_flag=True, help="Let the program use the network; without it the sandbox has none.")
@click.option("--git", is_flag=True, help="Let the program write the git repository.")
@click.option("--force", is_flag=True, help="Replace a server of this name.")
@output_format
def add_command(name: str, scope: str, force: bool, as_json: bool, **given: Any) -> int:
    """Add a server: a program, or the URL of one that runs elsewhere."""
    from makai.agent.project_trust import PROJECT_SERVERS

    entry = _entry(**given)
    file = _files(scope)[0]
    file.put(name, entry, replace=force)
    told = [f"Added {name} to {file.path}. Try it: makai mcp test {shlex.quote(name)}"]
    if scope == "project":
        told.append(f"{PROJECT_SERVERS} counts in trusted folders only: makai sessions trust --yes .")
    say_result({"name": name, "scope": scope, "path": str(file.path), "entry": entry}, told, as_json=as_json)
    return 0


def _entry(
    target: tuple[str, ...], transport: str | None, env: tuple[str, ...], header: tuple[str, ...], **opened: bool
) -> dict[str, Any]:
    first = target[0]
    kind = transport or ("http" if first.startswith(("http://", "https://")) and len(target) == 1 else "stdio")
    wanted = {name: True for name, is_open in opened.items() if is_open}
    if kind == "stdio":
        if header:
            raise click.UsageError("--header is for a URL: give a program its variables with --env")
        variables = _pairs(env, "--env")
        return {"command": first, "args": list(target[1:]), **({"env": variables} if variables else {}), **wanted}
    if len(target) > 1:
        raise click.UsageError("a URL takes no arguments")
    if env or wanted:
        raise click.UsageError("--env, --network and --git are for a program")
    headers = _pairs(header, "--header")
    return {"type": kind, "url": first, **({"headers": headers} if headers else {})}


def _pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    pairs = {}
    for word in given:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise click.UsageError(f"{option} looks like NAME=VALUE, not {name!r}")
        pairs[name.strip()] = value.strip()
    return pairs


@epilog("""
Examples:
  makai mcp list
  makai mcp list --check --json | jq '.servers[] | select(.problem)'

With --check the exit code is 1 when an enabled server cannot be used.
""")
@command.command("list")
@_ANY_SCOPE
@click.option("--check", is_flag=True, help="Start each server, in the sandbox, and say whether it answers.")
@output_format
def list_command(scope: str | None, check: bool, as_json: bool) -> int:
    """List your servers and those of this project."""
    listed = [one for file in _files(scope) for one in file.listed(os.environ)]
    if check:
        listed = _checked(listed)
    lines = [_row(one) for one in listed] or ["No MCP server is configured. Add one: makai mcp add NAME -- COMMAND"]
    say_result({"servers": listed}, lines, as_json=as_json)
    return EXIT_FAILED if check and any(one.is_down for one in listed) else 0


@command.command("remove")
@click.argument("name")
@_ANY_SCOPE
def remove_command(name: str, scope: str | None) -> int:
    """Remove a server from your file and the project's."""
    removed = [file for file in _files(scope) if file.remove(name)]
    for file in removed:
        tell(f"Removed {name} from {file.path}.")
    if not removed:
        note(f"makai: there is no MCP server {name!r}: `makai mcp list` lists them", fg="red")
        return EXIT_FAILED
    return 0


@epilog("""
Example:
  makai mcp test files

Exit code 0 when the server answers, else 1.
""")
@command.command("test")
@click.argument("name")
@_ANY_SCOPE
@output_format
def test_command(name: str, scope: str | None, as_json: bool) -> int:
    """Start a server as a session would, in the sandbox, and list its tools."""
    listed = [one for file in _files(scope) for one in file.listed(os.environ) if one.name == name]
    if not listed:
        note(f"makai: there is no MCP server {name!r}: `makai mcp list` lists them", fg="red")
        return EXIT_FAILED
    one = _checked(listed)[0]
    say_result(one, [_row(one), *(f"  {tool}" for tool in one.tools)], as_json=as_json)
    return EXIT_FAILED if one.is_down or not one.enabled else 0


def _files(scope: str | None) -> list[ServerFile]:
    from makai.cli.run_request import folder_from
    from makai.core.home import home_directory
    from makai.server.mcp_servers import server_files

    files = server_files(home_directory(os.environ), folder_from(None))
    return [file for file in files if scope in (None, file.scope)]


def _checked(listed: list[ListedServer]) -> list[ListedServer]:
    from makai.cli.run_request import folder_from
    from makai.cli.session_access import trust_of
    from makai.core.home import home_directory
    from makai.server.mcp_servers import checked_servers

    home = home_directory(os.environ)
    return run_async(checked_servers(listed, home, folder_from(None), dict(os.environ), trust=trust_of))


def _row(one: ListedServer) -> str:
    from makai.server.mcp_servers import server_line

    return server_line(one)
