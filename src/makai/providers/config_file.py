"""Reading and changing a config.toml on disk: the user's own, and that of a project. `makai config` and the settings of
the page go through the same code, so that both refuse the same values. Everything here blocks."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from makai.core.config import parse_config, parse_project_config
from makai.core.config_text import with_value, without
from makai.core.errors import InvalidRequest
from makai.providers.logins import CONFIG_FILE, checked_config

PROJECT_FILE = ".makai/config.toml"


class ConfigFile:
    """One file; it need not exist yet."""

    def __init__(self, path: Path, *, home: Path | None) -> None:
        """`home` is the makai home of the user's own file; None for the file of a project."""
        self.path = path
        self._home = home

    @property
    def is_project(self) -> bool:
        return self._home is None

    def text(self) -> str:
        """The content; empty when there is no such file."""
        try:
            return self.path.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"{self.path} cannot be read: {error}") from error

    def check(self, text: str) -> object:
        """Parse a text as this file; `InvalidRequest` names the line or key that is wrong."""
        where = str(self.path)
        return parse_project_config(text, where) if self.is_project else checked_config(text, where)

    def set_value(self, key: str, value: str) -> None:
        """Change one dotted key; comments and the order stay."""
        self.change({key: value})

    def unset(self, key: str) -> None:
        """Remove one dotted key. `InvalidRequest` when the file does not have it."""
        self.write(without(self.text(), key, self.check))

    def change(self, values: dict[str, str], removed: tuple[str, ...] = ()) -> None:
        """Change several dotted keys at once: all of them or, with `InvalidRequest`, none."""
        text = self.text()
        for key, value in values.items():
            text = with_value(text, key, value, self.check)
            if self._home is not None and (key == "model" or key.startswith("aliases.")):
                _check_model(self._home, text, value)
        for key in removed:
            text = without(text, key, self.check)
        self.write(text)

    def write(self, text: str) -> None:
        """Replace the file as a whole; through a link, as people keep their dotfiles."""
        replace_file(self.path, text, folder_mode=0o777 if self.is_project else 0o700)


def replace_file(path: Path, text: str, *, folder_mode: int = 0o700) -> None:
    """Write a text file in one step; a new one is readable by the user alone. A link stays a link."""
    target = Path(os.path.realpath(path))
    try:
        # A home that others can read is refused by every other command.
        target.parent.mkdir(mode=folder_mode, parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=target.parent, delete=False) as file:
            try:
                file.write(text)
                file.flush()
                os.chmod(file.name, mode)
                os.replace(file.name, target)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(file.name)
                raise
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}.") from error


def user_config_file(home: Path) -> ConfigFile:
    return ConfigFile(home / CONFIG_FILE, home=home)


def project_config_file(folder: Path) -> ConfigFile:
    return ConfigFile(folder / PROJECT_FILE, home=None)


def _check_model(home: Path, text: str, name: str) -> None:
    """Refuse a name that is no model's. Nothing is asked over the network."""
    from makai.providers.runtime import ModelRuntime

    ModelRuntime(home=home, config=parse_config(text)).resolver.resolve(name)
