"""`makai config`: shows and changes the settings of the user and of a project. Every subcommand but `show` and `get`
works on one file, and `path` and `edit` work also when that file is broken."""

from __future__ import annotations

import os
from collections.abc import Callable
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

PROJECT_OPTION = click.option(
    "--project", is_flag=True, help="The file of this folder, .makai/config.toml, instead of your own."
)


@epilog("""
Examples:
  makai config show                          what counts in this folder, and where it is from
  makai config get model
  makai config set model sonnet
  makai config set aliases.fast haiku        another name of a model: makai -m fast
  makai config set --project mode plan       for everyone who trusts this folder
  makai config unset effort
  makai config edit                          open the file in $EDITOR

Settings: model, mode, effort, theme, sandbox, aliases.NAME, retries.max_seconds; docs/configuration.md has the rest.
A flag wins over MAKAI_MODEL, that over the project's file (in a trusted folder), that over yours.
""")
@click.group("config")
def command() -> None:
    """Show and change your settings."""


@command.command("path")
@PROJECT_OPTION
def path_command(project: bool) -> None:
    """Print where the file is, also when there is none yet."""
    say(str(_path(project)))


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
    from makai.cli.config_text import with_value

    if key == "mode":
        value = MODE_ALIASES.get(value, value)
    if key == "status_line":
        from makai.cli.terminal.status_line import StatusLine

        StatusLine(value)  # raises for a field that does not exist: the chat would not start
    path, parse = _path(project), _parser(project)
    text = with_value(_text(path), key, value, parse)
    if not project and (key == "model" or key.startswith("aliases.")):
        _check_model(text, value)
    _write(path, text)
    note(f"{key} = {value}, in {path}")
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
    from makai.cli.config_text import without

    path = _path(project)
    _write(path, without(_text(path), key, _parser(project)))
    note(f"{key} is removed from {path}")
    _say_how_to_trust(project)


@command.command("edit")
@PROJECT_OPTION
def edit_command(project: bool) -> None:
    """Open the file in your editor ($VISUAL or $EDITOR), then check it."""
    import subprocess

    from makai.cli.config_text import TEMPLATE
    from makai.core.programs import editor_command, failed_editor

    path = _path(project)
    if not path.exists():
        _write(path, TEMPLATE)
    try:
        # Commands may have written the current folder: an editor that is named without its path is not from there.
        command = editor_command(os.environ, [os.getcwd()])
        subprocess.run([*command, str(path)], check=True)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise failed_editor(os.environ, error) from error
    _parser(project)(_text(path))
    note(f"{path} is valid.")
    _say_how_to_trust(project)


def _path(project: bool) -> Path:
    from makai.core.home import home_directory

    return Path(".makai/config.toml").absolute() if project else home_directory(os.environ) / "config.toml"


def _parser(project: bool) -> Callable[[str], object]:
    from makai.core.config import parse_project_config
    from makai.providers.logins import checked_config

    where = str(_path(project))
    return (lambda text: parse_project_config(text, where)) if project else (lambda text: checked_config(text, where))


def _text(path: Path) -> str:
    from makai.core.errors import InvalidRequest

    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path} cannot be read: {error}") from error


def _write(path: Path, text: str) -> None:
    """Replace the file as a whole; through a link, as people keep their dotfiles."""
    import tempfile

    from makai.core.errors import InvalidRequest

    target = Path(os.path.realpath(path))
    try:
        # A home that others can read is refused by every other command.
        target.parent.mkdir(mode=0o777 if path == _path(True) else 0o700, parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=target.parent, delete=False) as file:
            file.write(text)
        os.chmod(file.name, mode)
        os.replace(file.name, target)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}.") from error


def _check_model(text: str, name: str) -> None:
    """Refuse a name that is no model's. Nothing is asked over the network."""
    from makai.core.config import parse_config
    from makai.core.home import home_directory
    from makai.providers.runtime import ModelRuntime

    ModelRuntime(home=home_directory(os.environ), config=parse_config(text)).resolver.resolve(name)


def _shown(value: Any) -> str:
    import msgspec

    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _other_settings() -> dict[str, Any]:
    """What your file says beside the settings of sessions, by dotted key. The secret of a client is not shown."""
    import msgspec

    from makai.core.settings import NAMES
    from makai.providers.logins import read_config

    def flat(value: Any, name: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            return {name: "(hidden)" if name.endswith(".client_secret") else value}
        return {key: one for part, inner in value.items() for key, one in flat(inner, f"{name}.{part}").items()}

    written = msgspec.to_builtins(read_config(_path(False)))
    others = (flat(value, name) for name, value in written.items() if name not in (*NAMES, "aliases"))
    return {key: value for other in others for key, value in other.items()}


def _value_in_file(key: str) -> Any:
    from makai.cli.config_text import value_in
    from makai.core.config import Config
    from makai.core.config_forms import kinds_at
    from makai.core.errors import InvalidRequest

    if not kinds_at(key.split("."), Config):
        raise InvalidRequest(f"there is no setting {key!r}.", hint="docs/configuration.md lists them.")
    text = _text(_path(False))
    _parser(False)(text)
    return value_in(text, key)


async def _settings_here() -> Settings:
    from makai.cli.run_request import folder_from
    from makai.cli.session_access import open_sessions
    from makai.core.settings import resolve_settings
    from makai.providers.logins import read_config
    from makai.sessions.requests import GetProjectSettings

    user = read_config(_path(False)).settings
    async with open_sessions() as sessions:
        project = await sessions.dispatch(GetProjectSettings(folder_from(None)))
    return resolve_settings(environ=os.environ, project=project, user=user)


def _values(settings: Settings) -> dict[str, Any]:
    from makai.core.settings import NAMES

    return {**{name: getattr(settings, name) for name in NAMES}, "aliases": settings.aliases}


def _say_how_to_trust(project: bool) -> None:
    if project:
        note("It counts once you trust the folder as it is now: `makai sessions trust --yes`.", dim=True)
