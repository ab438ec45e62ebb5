"""`makai config`: shows and changes the settings of the user and of a project. Every subcommand but `show` and `get`
works on one file, and `path` and `edit` work also when that file is broken."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from makai.cli.console import (
    EXIT_FAILED,
    MODE_ALIASES,
    NO_SANDBOX,
    epilog,
    note,
    output_format,
    run_async,
    say,
    say_json,
)

if TYPE_CHECKING:
    from makai.core.settings import Settings
    from makai.providers.config_file import ConfigFile

PROJECT_OPTION = click.option(
    "--project", is_flag=True, help="The file of this folder, .makai/config.toml, instead of your own."
)


@epilog("""
Examples:
  makai config show                          what counts in this folder, and where it is from
  makai config get model
  makai config set model sonnet
  makai config set agent claude              new sessions use it: `-a native` is makai's own agent
  makai config set aliases.fast haiku        another name of a model: makai -m fast
  makai config set --project mode plan       for everyone who trusts this folder
  makai config unset effort
  makai config edit                          open the file in $EDITOR

Settings: agent, model, mode, effort, theme, sandbox, aliases.NAME, retries.max_seconds.
docs/configuration.md has the rest.
A flag wins over MAKAI_MODEL, that over the project's file (in a trusted folder), that over yours.
""")
@click.group("config")
def command() -> None:
    """Show and change your settings."""


@command.command("path")
@PROJECT_OPTION
def path_command(project: bool) -> None:
    """Print where the file is, also when there is none yet."""
    say(str(_file(project).path))


@command.command("show")
@output_format
def show_command(as_json: bool) -> None:
    """Show the settings that count in this folder, and where each is from."""
    settings = run_async(_settings_here())
    others = _other_settings()
    if as_json:
        sources = settings.sources | dict.fromkeys(others, "user")
        say_json({**_values(settings), **others, "sources": sources, "ignored": settings.ignored})
        return
    values = {name: value for name, value in _values(settings).items() if name != "aliases"}
    rows = [(name, "(default)" if value is None else value, settings.sources[name]) for name, value in values.items()]
    rows += [(f"aliases.{name}", to, settings.sources[f"aliases.{name}"]) for name, to in settings.aliases.items()]
    rows += [(name, _shown(value), "user") for name, value in others.items()]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, source in rows:
        say(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {source}")
    for sentence in settings.ignored:
        note(f"makai: {sentence}", fg="yellow")


@command.command("get")
@click.argument("key")
@output_format
def get_command(key: str, as_json: bool) -> int:
    """Print one setting as it counts in this folder, or another key as it is in your file."""
    from makai.core.settings import NAMES

    name, _, alias = key.partition(".")
    if name in NAMES or name == "aliases":
        values = _values(run_async(_settings_here()))
        value = values.get(name) if not alias else values["aliases"].get(alias)
    else:
        value = _value_in_file(key)
    if as_json:
        say_json(value)
    elif value is None:
        note(f"makai: {key} is not set.", dim=True)
    else:
        say(_shown(value))
    return EXIT_FAILED if value is None else 0


@command.command("set")
@click.argument("key")
@click.argument("value")
@PROJECT_OPTION
def set_command(key: str, value: str, project: bool) -> None:
    """Change one key of your file; comments stay as they are."""
    if key == "mode":
        value = MODE_ALIASES.get(value, value)
    if key == "status_line":
        from makai.cli.terminal.status_line import StatusLine

        StatusLine(value)  # raises for a field that does not exist: the chat would not start
    file = _file(project)
    if key == "agent" and not project:
        from makai.harness.acp.known_agents import check_agent_name
        from makai.providers.logins import read_config

        check_agent_name(value, read_config(file.path).agents)
    file.set_value(key, value)
    note(f"{key} = {value}, in {file.path}")
    if (key, value) == ("sandbox", "full-access"):
        note(NO_SANDBOX, fg="yellow")
    if key == "model" and os.environ.get("MAKAI_MODEL"):
        note("makai: MAKAI_MODEL is set and wins over it.", fg="yellow")
    _say_how_to_trust(project)


@command.command("unset")
@click.argument("key")
@PROJECT_OPTION
def unset_command(key: str, project: bool) -> None:
    """Remove one key from your file, so that the default counts again."""
    file = _file(project)
    file.unset(key)
    note(f"{key} is removed from {file.path}")
    _say_how_to_trust(project)


@command.command("edit")
@PROJECT_OPTION
def edit_command(project: bool) -> None:
    """Open the file in your editor ($VISUAL or $EDITOR), then check it."""
    import subprocess

    from makai.core.config_text import TEMPLATE
    from makai.core.programs import editor_command, failed_editor

    file = _file(project)
    if not file.path.exists():
        file.write(TEMPLATE)
    try:
        # Commands may have written the current folder: an editor that is named without its path is not from there.
        command = editor_command(os.environ, [os.getcwd()])
        subprocess.run([*command, str(file.path)], check=True)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise failed_editor(os.environ, error) from error
    file.check(file.text())
    note(f"{file.path} is valid.")
    _say_how_to_trust(project)


def _file(project: bool) -> ConfigFile:
    from makai.core.home import home_directory
    from makai.providers.config_file import project_config_file, user_config_file

    return project_config_file(Path.cwd()) if project else user_config_file(home_directory(os.environ))


def _shown(value: Any) -> str:
    import msgspec

    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _other_settings() -> dict[str, Any]:
    """What your file says beside the settings of sessions, by dotted key. Secrets are not shown."""
    import msgspec

    from makai.core.settings import NAMES
    from makai.providers.logins import read_config

    def flat(value: Any, name: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            has_password = name.startswith("store.") and ("@" in value or "password" in value)
            return {name: "(hidden)" if has_password or name.endswith(".client_secret") else value}
        return {key: one for part, inner in value.items() for key, one in flat(inner, f"{name}.{part}").items()}

    written = msgspec.to_builtins(read_config(_file(False).path))
    others = (flat(value, name) for name, value in written.items() if name not in (*NAMES, "aliases"))
    return {key: value for other in others for key, value in other.items()}


def _value_in_file(key: str) -> Any:
    from makai.core.config import Config
    from makai.core.config_forms import kinds_at
    from makai.core.config_text import value_in
    from makai.core.errors import InvalidRequest

    if not kinds_at(key.split("."), Config):
        raise InvalidRequest(f"there is no setting {key!r}.", hint="docs/configuration.md lists them.")
    file = _file(False)
    text = file.text()
    file.check(text)
    return value_in(text, key)


async def _settings_here() -> Settings:
    from makai.cli.run_request import folder_from
    from makai.cli.session_access import open_sessions
    from makai.core.settings import resolve_settings
    from makai.providers.logins import read_config
    from makai.sessions.requests import GetProjectSettings

    user = read_config(_file(False).path).settings
    async with open_sessions() as sessions:
        project = await sessions.dispatch(GetProjectSettings(folder_from(None)))
    return resolve_settings(environ=os.environ, project=project, user=user)


def _values(settings: Settings) -> dict[str, Any]:
    from makai.core.settings import NAMES

    return {**{name: getattr(settings, name) for name in NAMES}, "aliases": settings.aliases}


def _say_how_to_trust(project: bool) -> None:
    if project:
        note("It counts once you trust the folder as it is now: `makai sessions trust --yes`.", dim=True)
