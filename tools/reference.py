"""Writes docs/reference/ from the code: commands, configuration keys, HTTP routes, and the names of both SDKs.

`make docs` writes the pages; a test compares them with what is written here, so none of them can be out of date.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "docs/reference"
_GENERATED: Final = "<!-- Written by `make docs` (tools/reference.py). -->\n"
_EXPORT: Final = re.compile(r"^export (type )?(?:\{([^}]*)\}|\*) from \"\./([\w/]+)\.js\";$", re.MULTILINE)
_DECLARED: Final = re.compile(
    r"(/\*\*(?:(?!\*/).)*\*/\n)?export (?:async )?(?:abstract )?(function|class|interface|type|const) (\w+)",
    re.DOTALL,
)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Every generated page by its file name."""
    makers: dict[str, Callable[[], str]] = {
        "commands.md": _commands,
        "configuration.md": _configuration,
        "http.md": _routes,
        "python.md": _python,
        "typescript.md": _typescript,
    }
    return {name: make() for name, make in makers.items()}


def _page(title: str, lead: str, parts: Iterator[str]) -> str:
    body = "\n\n".join([f"# {title}", lead, *parts])
    return f"{_GENERATED}\n{body}\n"


# ---------------------------------------------------------------- commands


def _commands() -> str:
    from makai.cli.commands import cli

    lead = (
        "Every command with its options, as `--help` prints them. [Commands](../commands.md) explains how they work "
        "together, and lists the exit codes."
    )
    return _page("Command reference", lead, _command_parts(cli, "makai"))


def _command_parts(command: click.Command, name: str) -> Iterator[str]:
    context = click.Context(command, info_name=name)
    yield f"## {name}" if " " not in name else f"{'#' * (2 + name.count(' '))} {name}"
    text = inspect.cleandoc(command.help or "")
    about, _, examples = text.partition("\b\n")
    if about.strip():
        yield _escaped(about.strip())
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{name} {usage}\n```"
    if rows := [row for parameter in command.params if (row := _option_row(parameter, context))]:
        yield "\n".join(["| option | meaning |", "|---|---|", *rows])
    epilogue = "\n".join(part for part in (examples, _epilogue(command)) if part.strip())
    if epilogue.strip():
        yield f"```text\n{epilogue.strip()}\n```"
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None and not found.hidden:
                yield from _command_parts(found, f"{name} {child}")


def _epilogue(command: click.Command) -> str:
    return inspect.cleandoc(command.epilog or "").replace("\b\n", "").replace("\b", "")


def _option_row(parameter: click.Parameter, context: click.Context) -> str | None:
    record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
    if record is None:
        return None
    names, meaning = record
    return f"| `{names.replace('|', chr(92) + '|')}` | {_cell(meaning)} |"


# ---------------------------------------------------------------- configuration


def _configuration() -> str:
    schema = json.loads((ROOT / "schema/config.json").read_text(encoding="utf-8"))
    definitions = schema["$defs"]
    lead = (
        "Every key of `~/.makai/config.toml` with its type and default. [Configuration](../configuration.md) says what "
        "they mean and which file wins."
    )

    def parts() -> Iterator[str]:
        yield "## Top level"
        yield _keys(definitions["Config"])
        for key, definition in _tables(definitions, definitions["Config"], ""):
            yield f"## \\[{key}\\]"
            if about := definition.get("description"):
                yield _escaped(about)
            yield _keys(definition)

    return _page("Configuration keys", lead, parts())


def _tables(definitions: dict[str, Any], of: dict[str, Any], prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Tables below a definition: `[retries]`, and `[providers.NAME]` for tables that are named by the user."""
    for name, each in of["properties"].items():
        for ref, is_named in _references(each):
            key = f"{prefix}{name}" + (".NAME" if is_named else "")
            yield key, definitions[ref]
            yield from _tables(definitions, definitions[ref], f"{key}.")


def _references(each: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    for option in [each, *each.get("anyOf", ())]:
        if "$ref" in option:
            yield option["$ref"].rpartition("/")[2], False
        named = option.get("additionalProperties")
        if isinstance(named, dict) and "$ref" in named:
            yield named["$ref"].rpartition("/")[2], True


def _keys(definition: dict[str, Any]) -> str:
    required = definition.get("required", [])
    rows = ["| key | type | default |", "|---|---|---|"]
    for name, each in definition["properties"].items():
        default = "required" if name in required else f"`{json.dumps(each.get('default'))}`"
        rows.append(f"| `{name}` | {_cell(_kind(each))} | {'none' if default == '`null`' else default} |")
    return "\n".join(rows)


def _kind(each: dict[str, Any]) -> str:
    if "enum" in each:
        return " or ".join(f"`{value}`" for value in each["enum"])
    if "anyOf" in each:
        return " or ".join(_kind(option) for option in each["anyOf"] if option.get("type") != "null")
    if "$ref" in each:
        return "table"
    if each.get("type") == "array":
        return f"list of {_kind(each.get('items', {})) or 'any'}"
    if each.get("type") == "object":
        return "table"
    return str(each.get("type", "any"))


# ---------------------------------------------------------------- HTTP


def _routes() -> str:
    from makai.server.route_scopes import ROUTES
    from tools.reference_routes import MEANINGS

    lead = (
        "Every address of `makai serve`. Send `Authorization: Bearer TOKEN`; the token needs the scope that "
        "the table names, or a wider one (`observe < prompt < approve < admin`). Errors are JSON: "
        '`{"error": {"code", "message", "hint"}}`. [Servers and protocols](../servers-and-protocols.md) has the '
        "basics."
    )

    def parts() -> Iterator[str]:
        rows = [
            f"| `{method} {path}` | {scope or 'none'} | {_cell(MEANINGS[method, path])} |"
            for (method, path), scope in sorted(ROUTES.items(), key=lambda item: (item[0][1], item[0][0]))
        ]
        yield "\n".join(["| route | scope | what it does |", "|---|---|---|", *rows])

    return _page("HTTP routes", lead, parts())


# ---------------------------------------------------------------- SDKs


def _python() -> str:
    import makai

    lead = "The public names of the Python package `makai`. [SDKs](../sdks.md) shows how to use them."

    def parts() -> Iterator[str]:
        kinds: dict[str, list[str]] = {"Functions": [], "Classes": [], "Types": []}
        for name in sorted(name for name in makai.__all__ if not name.startswith("_")):
            value = getattr(makai, name)
            kind = "Classes" if inspect.isclass(value) else "Functions" if inspect.isroutine(value) else "Types"
            signature = _signature(value) if kind == "Functions" else ""
            about = "" if kind == "Types" else _first_sentence(value)  # of a union it would be that of `typing`
            kinds[kind].append(f"| `{name}{_cell(signature)}` | {_cell(about)} |")
        for kind, rows in kinds.items():
            if rows:
                yield f"## {kind}"
                yield "\n".join(["| name | what it is |", "|---|---|", *rows])

    return _page("Python names", lead, parts())


def _signature(value: Any) -> str:
    shown: list[str] = []
    for parameter in inspect.signature(value).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not any(one.startswith("*") for one in shown):
            shown.append("*")
        is_rest = parameter.kind is parameter.VAR_POSITIONAL
        star = "*" if is_rest else "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        default = "" if parameter.default is parameter.empty or star else "=…"
        shown.append(f"{star}{parameter.name}{default}")
    return f"({', '.join(shown)})"


def _first_sentence(value: Any) -> str:
    text = " ".join(inspect.cleandoc(value.__doc__ or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.) ", text)[0]


def _typescript() -> str:
    lead = "The names that the npm package exports. [SDKs](../sdks.md#typescript) shows how to use them."
    source = ROOT / "sdk/typescript/src"
    index = (source / "index.ts").read_text(encoding="utf-8")

    def parts() -> Iterator[str]:
        rows: list[tuple[str, str, str]] = []
        for _, listed, module in _EXPORT.findall(index):
            declared = {
                name: (kind, _comment(comment))
                for comment, kind, name in _DECLARED.findall((source / f"{module}.ts").read_text(encoding="utf-8"))
            }
            names = [name.strip().removeprefix("type ") for name in listed.split(",")] if listed else list(declared)
            rows += [(name, *declared.get(name, ("type", ""))) for name in names]
        yield "\n".join(
            ["| name | kind | what it is |", "|---|---|---|"]
            + [f"| `{name}` | {kind} | {_cell(about)} |" for name, kind, about in sorted(rows)]
        )

    return _page("TypeScript names", lead, parts())


def _comment(text: str) -> str:
    words = " ".join(line.strip().lstrip("/*").strip() for line in text.removesuffix("*/\n").splitlines()).strip()
    return re.split(r"(?<=\.) ", words.removesuffix("*/").strip())[0]


def _cell(text: str) -> str:
    return _escaped(" ".join(text.split())).replace("|", "\\|")


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is: no HTML tag begins by accident."""
    return re.sub(r"<(?=[A-Za-z/])", "&lt;", text)


if __name__ == "__main__":
    main()
