"""Slash commands that an editor offers while a person types: /compact, /undo, /redo, /diff, those that were written as
files, the prompts of MCP servers, and the commands of an external agent. A prompt `/name text` reaches the command with
its text as the input (ACP-UPD-010)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from makai.core import session_events as ev
from makai.core.server_prompts import MAX_DESCRIPTION, ServerPrompt
from makai.core.visible_text import one_line
from makai.sessions.requests import CommandSummary
from makai.wire import json_rpc
from makai.wire.acp.updates import AvailableCommand, CommandInput
from makai.wire.json_rpc_errors import RpcError

COMPACT: Final = "compact"
UNDO: Final = "undo"
REDO: Final = "redo"
DIFF: Final = "diff"
MAX_COMMANDS: Final = 200
_COMMAND: Final = re.compile(r"/([^\s/]+)(?:\s+(.*))?", re.DOTALL)
_NOT_IN_NAMES: Final = re.compile(r"[\s/]+")


class PromptCommand(msgspec.Struct, frozen=True):
    """A prompt that begins with a slash: the name, and the text after it."""

    name: str
    argument: str = ""


def available_commands(
    prompts: Sequence[ServerPrompt],
    agent: ev.AgentSession | None,
    *,
    custom: Sequence[CommandSummary] = (),
    can_compact: bool = True,
) -> tuple[AvailableCommand, ...]:
    """The commands of a session. An external agent interprets its own commands: `agent` is its newest report."""
    added = [*_RESTORING, *map(_of_file, custom)]
    found = [*([_compact()] if can_compact else []), *(each for each in added if not is_agents_own(each.name, agent))]
    found += [_of_prompt(prompt) for prompt in prompts]
    found += [_of_agent(option) for option in (agent.commands if agent is not None else ())]
    unique: dict[str, AvailableCommand] = {}
    for command in found:
        unique.setdefault(command.name, command)  # the first of a name is the one that is run
    unique.pop("", None)
    return tuple(unique.values())[:MAX_COMMANDS]


def is_agents_own(name: str, agent: ev.AgentSession | None) -> bool:
    """Whether an external agent has a command of this name."""
    return agent is not None and name in {option.id.lstrip("/") for option in agent.commands}


def parsed_command(text: str) -> PromptCommand | None:
    """None for what is no command, such as a path. Whether the command exists is for the caller to look up; the text of
    an unknown one is an ordinary message."""
    matched = _COMMAND.fullmatch(text.strip())
    return None if matched is None else PromptCommand(matched[1], (matched[2] or "").strip())


def requested_prompt(
    command: PromptCommand, prompts: Iterable[ServerPrompt]
) -> tuple[ServerPrompt, dict[str, str]] | None:
    """The prompt of an MCP server that a command names, and its arguments; None when there is none. `RpcError` -32602
    says which arguments are missing. A prompt with one argument takes the whole text as it is typed."""
    prompt = next((prompt for prompt in prompts if _name(prompt) == command.name), None)
    if prompt is None:
        return None
    given = _arguments(prompt, command.argument)
    known = {each.name for each in prompt.arguments}
    missing = [each.name for each in prompt.arguments if each.required and each.name not in given]
    unknown = sorted(given.keys() - known)
    if missing or unknown:
        problem = f"{missing[0]} is missing" if missing else f"it has no {unknown[0]}"
        usage = f"/{command.name} {_hint(prompt)}".strip()
        raise RpcError(json_rpc.INVALID_PARAMS, f"/{command.name}: {one_line(problem, 100)}. Write {usage}")
    return prompt, given


def _compact() -> AvailableCommand:
    hint = CommandInput(hint="what to keep (optional)")
    return AvailableCommand(name=COMPACT, description="Replace the conversation so far by a summary", input=hint)


_STEPS: Final = CommandInput(hint="how many messages, files, and yes to confirm (optional)")
_RESTORING: Final = (
    AvailableCommand(name=UNDO, description="Restore files to before your last message", input=_STEPS),
    AvailableCommand(name=REDO, description="Bring back file changes that were undone", input=_STEPS),
    AvailableCommand(name=DIFF, description="Show the files that this session changed"),
)


def _of_file(command: CommandSummary) -> AvailableCommand:
    hint = CommandInput(hint=command.argument_hint or "input (optional)")
    return AvailableCommand(name=command.name, description=command.description, input=hint)


def _of_prompt(prompt: ServerPrompt) -> AvailableCommand:
    description = one_line(prompt.description, MAX_DESCRIPTION) or f"Prompt of the MCP server {one_line(prompt.server)}"
    hint = CommandInput(hint=_hint(prompt)) if prompt.arguments else None
    return AvailableCommand(name=_name(prompt), description=description, input=hint)


def _of_agent(option: ev.AgentOption) -> AvailableCommand:
    """What an external agent takes after a command is unknown, so there is always a field for it."""
    description = one_line(option.description or option.name or option.id, MAX_DESCRIPTION)
    return AvailableCommand(name=option.id.lstrip("/"), description=description, input=CommandInput(hint="input"))


def _name(prompt: ServerPrompt) -> str:
    """Without spaces and slashes, at which a command's name ends."""
    return _NOT_IN_NAMES.sub("_", one_line(f"{prompt.server}:{prompt.name}"))


def _hint(prompt: ServerPrompt) -> str:
    if len(prompt.arguments) == 1:
        return one_line(prompt.arguments[0].name, MAX_DESCRIPTION)
    words = (f"{each.name}=…" if each.required else f"[{each.name}=…]" for each in prompt.arguments)
    return one_line(" ".join(words), MAX_DESCRIPTION)


def _arguments(prompt: ServerPrompt, text: str) -> dict[str, str]:
    if not text:
        return {}
    if len(prompt.arguments) == 1:
        name = prompt.arguments[0].name
        return {name: text.removeprefix(f"{name}=")}
    try:
        words = shlex.split(text)
    except ValueError:
        raise RpcError(json_rpc.INVALID_PARAMS, "A quotation mark is missing in the command.") from None
    return {name: value for name, _, value in (word.partition("=") for word in words)}
