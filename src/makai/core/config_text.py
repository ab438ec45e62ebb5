"""Changes of a config.toml that keep its comments and its order. Pure.

tomlkit does the editing. What comes out is parsed and validated before it is returned, so that no command writes a file
that the next one refuses.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from makai.core.config import Config
from makai.core.config_forms import choices_of, expected_form
from makai.core.errors import InvalidRequest

Parse: TypeAlias = Callable[[str], object]
"""`parse_config` or `parse_project_config`: raises `InvalidRequest` for what the file may not hold."""

TEMPLATE: Final = """\
# Settings of makai; `makai config show` lists them. https://toml.io explains the format.

# agent = "claude"              # instead of makai's own agent; `makai harness list`
# model = "sonnet"              # a model or an alias; `makai models list`
# mode = "ask"                  # ask, accept_edits, plan, never_ask
# effort = "high"               # off, minimal, low, medium, high, xhigh
# theme = "auto"                # auto, dark, light, plain
# sandbox = "workspace-write"   # read-only, workspace-write, full-access

# [aliases]
# fast = "haiku"

# [retries]
# max_seconds = 600             # how long a provider that limits the rate is asked again; 0: not at all
"""


def value_in(text: str, key: str) -> Any:
    """The value of a dotted key in the text of a file that has been validated; None when it is not there."""
    found: Any = tomllib.loads(text)
    for part in key.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def with_value(text: str, key: str, value: str, parse: Parse) -> str:
    """The text with another value of a dotted key. The value is taken as text where that is what the key holds, else as
    TOML: `false`, `["a", "b"]`."""
    parts = _parts(key)
    _check_choice(key, value)
    _check_syntax(text, parse)
    try:
        return _set(text, parts, value, parse)
    except InvalidRequest as error:
        try:
            literal = tomllib.loads(f"value = {value}")["value"]
            return _set(text, parts, literal, parse)
        except (tomllib.TOMLDecodeError, InvalidRequest):
            parse(text)  # raises when something else in the file is wrong
            if form := expected_form(parts, Config):
                raise InvalidRequest(f"{key} cannot be {value!r}.", hint=f"It {form}") from None
            _, _, reason = error.message.partition(": ")  # it names a line of a file that was not written
            raise InvalidRequest(f"{key} cannot be {value!r}: {reason or error.message}", hint=error.hint) from None


def without(text: str, key: str, parse: Parse) -> str:
    """The text without a dotted key. `InvalidRequest` when it is not there."""
    import tomlkit

    _check_syntax(text, parse)
    *tables, last = _parts(key)
    document = tomlkit.parse(text)
    table: Any = document
    for name in tables:
        table = table.get(name, {})
    if last not in table:
        raise InvalidRequest(f"{key} is not set in this file.", hint="`makai config show` says where values are from.")
    del table[last]
    changed = tomlkit.dumps(document)
    parse(changed)
    return changed


def _check_syntax(text: str, parse: Parse) -> None:
    """Raise what `parse` raises for a text that is no TOML. A wrong value may stand in it: this is how it is mended."""
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        parse(text)
        raise


def _parts(key: str) -> list[str]:
    parts = key.split(".")
    if not all(parts):
        raise InvalidRequest(f"{key!r} is no name of a setting.", hint="Write model, or aliases.fast.")
    return parts


def _check_choice(key: str, value: str) -> None:
    choices = choices_of(key.split("."), Config)
    if choices and value not in choices:
        from difflib import get_close_matches

        close = get_close_matches(value, choices, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise InvalidRequest(f"{key} cannot be {value!r}.{hint}", hint=f"It is one of {', '.join(choices)}.")


def _set(text: str, parts: list[str], value: Any, parse: Parse) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    table: Any = document
    *tables, last = parts
    for name in tables:
        if name not in table:
            table[name] = tomlkit.table()
        table = table[name]
        if not isinstance(table, dict):
            raise InvalidRequest(f"{'.'.join(parts)}: {name} has a value and is no table.", hint="Set its value.")
    if parts == ["sandbox"] and isinstance(document.get("sandbox"), dict):
        parts = ["sandbox", "level"]  # the longer way to write it
        table, last = document["sandbox"], "level"
    table[last] = value
    changed = tomlkit.dumps(document)
    parse(changed)
    if value_in(changed, ".".join(parts)) != value:
        raise InvalidRequest(f"{'.'.join(parts)} cannot be set in this file.", hint="Use `makai config edit`.")
    return changed
