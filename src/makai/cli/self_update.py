"""`makai self-update`: says what to type for a newer makai. It reads how this one was installed from the files that
installers leave behind, changes nothing and asks no server."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

import click

from makai.cli.console import epilog, note, output_format, say, say_json
from makai.core.version import __version__

Method: TypeAlias = Literal["checkout", "docker", "pipx", "uv-tool", "uv", "pip", "unknown"]
IMAGE_MARK = "makai-image"
"""A file in the environment of the Docker image; its Dockerfile creates it."""
_EXTRAS = {"local": "xllamacpp", "grpc": "grpc", "keyring": "keyring"}
"""Extra -> the module that it installs."""


class Installation(NamedTuple):
    """How this makai was installed, and the commands that bring a newer one. Not a Struct: help loads nothing heavy."""

    method: Method
    description: str
    commands: tuple[str, ...]
    """To be typed one after the other; empty when another program manages the installation."""


@epilog("""
Examples:
  makai self-update            what to type for a newer version
  makai self-update --json     the same for programs

It changes nothing, and makes no network request: it does not know whether there is a newer version.
""")
@click.command("self-update")
@output_format
def command(as_json: bool) -> int:
    """Show the command that updates makai, for the way it was installed."""
    found = find_installation(Path(sys.prefix), sys.executable, _direct_url(), _installer(), _installed_extras())
    if as_json:
        say_json({"version": __version__, **found._asdict()})
        return 0
    say(f"makai {__version__}, {found.description}.")
    if not found.commands:
        note("Update it with the program that installed it, or install it again: pipx install makai")
        return 0
    say("To update it, type:")
    for line in found.commands:
        say(f"  {line}")
    note("Running servers keep the old version until you start them again.", dim=True)
    return 0


def find_installation(
    prefix: Path, python: str, direct_url: str, installer: str, extras: Sequence[str] = ()
) -> Installation:
    """Judge by what installers write: `direct_url` is the text of PEP 610, "" for a package of an index; `installer`
    is the name in the file INSTALLER."""
    wanted = "makai" + (f"[{','.join(extras)}]" if extras else "")
    source, is_editable = _source(direct_url)
    pip = f"{shlex.quote(python)} -m pip install --upgrade"
    lines: tuple[str, ...]
    if is_editable:
        folder = shlex.quote(_path(source))
        lines = (f"git -C {folder} pull", f"make -C {folder} run")
        return Installation(method="checkout", description=f"from the checkout {_path(source)}", commands=lines)
    if (prefix / IMAGE_MARK).is_file():
        lines = ("git pull", "docker build --pull -t makai .")
        description = "in a container; its image is built in a checkout"
        return Installation(method="docker", description=description, commands=lines)
    if (prefix / "pipx_metadata.json").is_file():
        return Installation(method="pipx", description="installed by pipx", commands=_again(source, "pipx", wanted))
    if (prefix / "uv-receipt.toml").is_file():
        return Installation(method="uv-tool", description="installed by uv", commands=_again(source, "uv tool", wanted))
    if installer == "uv":
        lines = (f"uv pip install --python {shlex.quote(python)} --upgrade {_named(source, wanted)}",)
        return Installation(method="uv", description=f"installed by uv into {prefix}", commands=lines)
    if installer == "pip":
        lines = (f"{pip} {_named(source, wanted)}",)
        return Installation(method="pip", description=f"installed by pip into {prefix}", commands=lines)
    by = f"installed by {installer}" if installer else "installed in an unknown way"
    return Installation(method="unknown", description=f"{by} into {prefix}", commands=())


def _again(source: str, program: str, wanted: str) -> tuple[str, ...]:
    """An upgrade of what came from an index; what came from a file or an address is installed again from there."""
    if not source:
        return (f"{program} upgrade makai",)
    return (f"{program} install --force {_named(source, wanted)}",)


def _named(source: str, wanted: str) -> str:
    """What an installer is asked for. A file has its version in its name, so the user names the newer one."""
    if not source:
        return shlex.quote(wanted)
    if urlsplit(source).scheme == "file":
        path = _path(source)
        return shlex.quote(wanted.replace("makai", "NEWER_FILE" if path.endswith((".whl", ".tar.gz")) else path, 1))
    return shlex.quote(f"{wanted} @ {source}")


def _source(direct_url: str) -> tuple[str, bool]:
    """Where it was installed from, "" for an index, and whether it runs from there."""
    try:
        read = json.loads(direct_url)
        url = str(read["url"])
    except (ValueError, KeyError, TypeError):
        return "", False
    version_control = read.get("vcs_info", {}).get("vcs")
    return (f"{version_control}+{url}" if version_control else url), bool(read.get("dir_info", {}).get("editable"))


def _path(url: str) -> str:
    return unquote(urlsplit(url).path)


def _direct_url() -> str:
    return _installed_file("direct_url.json")


def _installer() -> str:
    return _installed_file("INSTALLER").strip()


def _installed_file(name: str) -> str:
    try:
        return importlib.metadata.distribution("makai").read_text(name) or ""
    except importlib.metadata.PackageNotFoundError:
        return ""


def _installed_extras() -> list[str]:
    return [extra for extra, module in _EXTRAS.items() if importlib.util.find_spec(module) is not None]
