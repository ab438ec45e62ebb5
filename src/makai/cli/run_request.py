"""The request of `makai run` and of `makai chat`, read from their options. Only the named folders, the schema file
and the place of the output file are looked at."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from makai.core.errors import InvalidRequest
from makai.core.request import StreamOptions
from makai.core.sanitize import is_clean
from makai.core.session_events import PermissionMode, RunTerms, SandboxLevel

_OPTION_NAMES: Final = {"effort": "reasoning_effort", "stall_timeout": "stall_timeout_s", "retry_for": "retry_for_s"}


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt, or a chat, and the session it belongs to."""

    question: str
    """ "" for a chat that does not begin with one."""
    model: str | None = None
    """None: the model of the session, or the default in a new one."""
    agent: str | None = None
    """Another agent than makai's own, for a new session."""
    cwd: str
    roots: tuple[str, ...] = ()
    """`cwd` and the added folders; empty when none was added."""
    resume: str | None = None
    """The id of a session, or the beginning of it; `console.CHOOSE` when the user is to choose."""
    continue_newest: bool = False
    keep: bool = True
    """Whether the session is kept."""
    mode: PermissionMode | None = None
    sandbox: SandboxLevel | None = None
    """None: what the session has, or in a new one what the settings say; so with `mode`."""
    session_usd: float | None = None
    """What all runs of the session may cost together."""
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    title: str = ""
    fork: bool = False
    """Continue in a copy of the session."""
    files: tuple[str, ...] = ()
    """Paths of files that go along with the question."""
    last_message_file: Path | None = None
    """Where to write the last message of the model."""
    is_quiet: bool = False
    """Show neither progress nor hints."""
    tools: bool = True
    """Whether the model may use the built-in tools."""
    tool_servers: tuple[str, ...] = ()
    """Empty: what the session has."""
    terms: RunTerms = RunTerms()
    demo: bool = False
    """Chat with the scripted model of the demo, in a folder of its own."""

    @property
    def is_new(self) -> bool:
        return self.resume is None and not self.continue_newest

    @property
    def takes_default_model(self) -> bool:
        return self.is_new and not self.demo and self.model is None and self.agent is None


_MODEL_OPTIONS = ("account", "max_tokens", "temperature", "effort", "stall_timeout", "max_retries", "retry_for")


def request_from(
    question: str, given: Mapping[str, Any], *, files: tuple[str, ...] = (), is_chat: bool = False
) -> RunRequest:
    """Raises `InvalidRequest` for what cannot be done. The budget of a chat is that of its session."""
    cwd = folder_from(given["cwd"])
    added = tuple(folder_from(folder) for folder in given["add_dir"])
    options = options_from(given.get("json_schema"), {name: given[name] for name in _MODEL_OPTIONS})
    if (output := given.get("output_last_message")) is not None:
        from makai.cli.session_export import check_writable  # most runs write no file

        check_writable(output)
    return RunRequest(
        question=question,
        model=given["model"],
        agent=given["agent"],
        cwd=cwd,
        roots=(cwd, *added) if added else (),
        resume=given["resume"],
        continue_newest=given["continue_newest"],
        keep=not given.get("no_session"),
        mode=given["mode"],
        sandbox=given["sandbox"],
        session_usd=given["max_budget_usd"] if is_chat else None,
        system_prompt=given["system_prompt"],
        append_system_prompt=given["append_system_prompt"],
        title=given["name"] or "",
        fork=given["fork"],
        files=files,
        last_message_file=output,
        is_quiet=given.get("quiet", False),
        tools=not given["no_tools"],
        tool_servers=tuple(given["tool_servers"]),
        terms=RunTerms(
            options=options,
            max_turns=given["max_turns"],
            max_usd=None if is_chat else given["max_budget_usd"],
            allow_unknown_price=given["allow_unknown_price"],
            max_seconds=given.get("max_seconds"),
            mcp_wait_s=given["mcp_wait"],
            allow=rules_from(given["allowed_tools"], "--allowed-tools"),
            deny=rules_from(given["disallowed_tools"], "--disallowed-tools"),
        ),
    )


def demo_request() -> RunRequest:
    return RunRequest(question="", cwd=folder_from(None), demo=True)


def options_from(json_schema: str | None, settings: Mapping[str, object]) -> StreamOptions:
    """Options that were not given on the command line keep their default."""
    known = {name: value for name, value in settings.items() if value is not None}
    given: dict[str, Any] = {_OPTION_NAMES.get(name, name): value for name, value in known.items()}
    return StreamOptions(json_schema=None if json_schema is None else read_schema(json_schema), **given)


def read_schema(given: str) -> str:
    """Inline JSON, or the contents of a file."""
    if given.lstrip().startswith("{"):
        return given
    try:
        return Path(given).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidRequest(f"cannot read the schema {given}: {why}") from error


def folder_from(given: str | None) -> str:
    """The real path of an existing folder; sessions are listed by it."""
    try:
        folder = os.path.realpath(given if given is not None else os.getcwd())
    except OSError:
        hint = "Change to another one, or name one with --cwd."
        raise InvalidRequest("the current folder no longer exists.", hint=hint) from None
    if not os.path.isdir(folder):
        raise InvalidRequest(f"{given} is not a folder.", hint="Name an existing folder.")
    if not is_clean(folder):
        raise InvalidRequest("the name of the folder is not valid UTF-8.", hint="Work in another one, or rename it.")
    return folder


def rules_from(given: Iterable[str], option: str) -> tuple[str, ...]:
    """Permission rules: repeated, or several in one word, such as `Read,Bash(git log:*)`."""
    rules = tuple(rule for words in given for rule in split_rules(words))
    if not rules:
        return ()
    from makai.tools.permissions.rules import parse_rule  # loads a shell parser, which most runs do not need

    for rule in rules:
        try:
            parse_rule(rule)
        except InvalidRequest as error:
            examples = "Rules look like Bash(git log:*), Read(src/**), WebFetch(domain:example.com), mcp__x__*."
            raise InvalidRequest(f"{option}: {error.message}", hint=error.hint or examples) from None
    return rules


def split_rules(words: str) -> list[str]:
    """Split at commas and spaces that are not inside parentheses."""
    rules = [""]
    depth = 0
    for character in words:
        if depth == 0 and (character == "," or character.isspace()):
            rules.append("")
            continue
        depth += {"(": 1, ")": -1}.get(character, 0)
        depth = max(depth, 0)
        rules[-1] += character
    return [rule for rule in rules if rule]
