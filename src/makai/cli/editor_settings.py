"""The settings that make an editor start `makai acp`, ready to paste: what `makai acp --print-config EDITOR` prints.

Editors with windows of their own often see another PATH than the shell, so the command is `makai` only where PATH leads
to this installation, and otherwise its absolute path. Keys are never part of the settings: makai reads its own logins.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click

from makai.cli.console import note, say
from makai.core.home import home_directory

EDITORS: Final = ("zed", "jetbrains", "neovim", "emacs")


class EditorLaunch(NamedTuple):
    """How an editor starts makai."""

    command: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    """Variables that the editor may not have, because they were set in a shell."""


class EditorSettings(NamedTuple):
    """One block to paste, and the file it belongs in."""

    language: str
    place: str
    text: str


def this_makai(
    environ: Mapping[str, str], *, script: str = sys.argv[0], interpreter: str = sys.executable
) -> tuple[str, ...]:
    """The command that starts this installation from any folder: `makai` if PATH finds it, else absolute paths."""
    own = Path(script) if Path(script).name == "makai" else Path(interpreter).with_name("makai")
    if not own.is_file():
        return (interpreter, "-P", "-m", "makai")  # not a `makai` of the folder that the editor starts it in
    found = shutil.which("makai", path=environ.get("PATH", ""))
    is_on_path = found is not None and Path(found).is_absolute() and Path(found).samefile(own)
    return ("makai",) if is_on_path else (str(own.absolute()),)


def launch(environ: Mapping[str, str], options: Sequence[str] = ()) -> EditorLaunch:
    """`options` are those of `makai acp`."""
    command, *before = this_makai(environ)
    home = {"MAKAI_HOME": str(home_directory(environ).absolute())} if environ.get("MAKAI_HOME", "").strip() else {}
    return EditorLaunch(command, (*before, "acp", *options), home)


def editor_settings(editor: str, start: EditorLaunch) -> tuple[EditorSettings, ...]:
    """Every block for `editor`, one of `EDITORS`."""
    match editor:
        case "zed":
            return (EditorSettings("json", "~/.config/zed/settings.json", _json(start, type="custom")),)
        case "jetbrains":
            return (EditorSettings("json", "~/.jetbrains/acp.json", _json(start)),)
        case "neovim":
            place = "your Neovim configuration, if you use"
            return (
                EditorSettings("lua", f"{place} codecompanion.nvim", _codecompanion(start)),
                EditorSettings("lua", f"{place} avante.nvim", _avante(start)),
            )
        case _:
            return (EditorSettings("elisp", "your Emacs init file; it needs agent-shell", _agent_shell(start)),)


def print_settings(editor: str, environ: Mapping[str, str], options: Sequence[str]) -> None:
    for number, block in enumerate(editor_settings(editor, launch(environ, options))):
        note(f"{'' if number == 0 else chr(10)}Add this to {block.place}:", dim=True)
        say(block.text)


PRINT_CONFIG_OPTION = click.option(
    "--print-config",
    type=click.Choice(EDITORS),
    help="Print the settings for an editor, with these options, and exit.",
)


def _json(start: EditorLaunch, **first: str) -> str:
    server: dict[str, object] = {**first, "command": start.command, "args": list(start.arguments)}
    if start.environment:
        server["env"] = dict(start.environment)
    return json.dumps({"agent_servers": {"makai": server}}, indent=2, ensure_ascii=False)


def _quoted(text: str) -> str:
    """A string literal of Lua and of Emacs Lisp alike."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _codecompanion(start: EditorLaunch) -> str:
    """Without an `auth` handler the plugin would start the first login that makai offers, in every chat."""
    words = ", ".join(map(_quoted, (start.command, *start.arguments)))
    variables = "".join(f"\n            {name} = {_quoted(value)}," for name, value in start.environment.items())
    environment = f"\n          env = {{{variables}\n          }}," if variables else ""
    return f"""require("codecompanion").setup({{
  adapters = {{
    acp = {{
      makai = function()
        return require("codecompanion.adapters").extend("opencode", {{
          name = "makai",
          formatted_name = "makai",
          commands = {{ default = {{ {words} }} }},{environment}
          handlers = {{ auth = function() return true end }},
        }})
      end,
    }},
  }},
  interactions = {{ chat = {{ adapter = "makai" }} }},
}})"""


def _avante(start: EditorLaunch) -> str:
    """The plugin starts agents with PATH and these variables only."""
    words = ", ".join(map(_quoted, start.arguments))
    variables = "".join(f", {name} = {_quoted(value)}" for name, value in start.environment.items())
    return f"""require("avante").setup({{
  provider = "makai",
  acp_providers = {{
    makai = {{
      command = {_quoted(start.command)},
      args = {{ {words} }},
      env = {{ HOME = os.getenv("HOME"){variables} }},
    }},
  }},
}})"""


def _agent_shell(start: EditorLaunch) -> str:
    words = " ".join(map(_quoted, start.arguments))
    variables = " ".join(_quoted(f"{name}={value}") for name, value in start.environment.items())
    environment = f"\n       :environment-variables '({variables})" if variables else ""
    return f"""(with-eval-after-load 'agent-shell
  (add-to-list
   'agent-shell-agent-configs
   (agent-shell-make-agent-config
    :identifier 'makai
    :mode-line-name "makai"
    :buffer-name "makai"
    :shell-prompt "makai> "
    :shell-prompt-regexp "makai> "
    :client-maker
    (lambda (buffer)
      (acp-make-client
       :context-buffer buffer
       :command {_quoted(start.command)}
       :command-params '({words}){environment})))))"""
