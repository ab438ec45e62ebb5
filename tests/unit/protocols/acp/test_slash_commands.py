"""Slash commands of an editor: what is offered, and what is typed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.acp_updates import wire

from makai.core import session_events as ev
from makai.core.server_prompts import ServerPrompt, ServerPromptArgument
from makai.protocols.acp.slash_commands import (
    PromptCommand,
    available_commands,
    parsed_command,
    requested_prompt,
)
from makai.sessions.requests import CommandSummary
from makai.wire.acp.updates import AvailableCommand, AvailableCommandsUpdate
from makai.wire.json_rpc_errors import RpcError

ONE = ServerPrompt(
    server="docs", name="sum up", description="Sums\nup", arguments=(ServerPromptArgument(name="topic", required=True),)
)
TWO = ServerPrompt(
    server="docs",
    name="compare",
    arguments=(ServerPromptArgument(name="a", required=True), ServerPromptArgument(name="b")),
)
BARE = ServerPrompt(server="docs", name="greet")


RESTORING = [
    {
        "name": "undo",
        "description": "Restore files to before your last message",
        "input": {"hint": "how many messages, files, and yes to confirm (optional)"},
    },
    {
        "name": "redo",
        "description": "Bring back file changes that were undone",
        "input": {"hint": "how many messages, files, and yes to confirm (optional)"},
    },
    {"name": "diff", "description": "Show the files that this session changed"},
]


def offered(
    prompts: list[ServerPrompt], agent: ev.AgentSession | None, can_compact: bool = True
) -> list[dict[str, Any]]:
    return wire_of(available_commands(prompts, agent, can_compact=can_compact))


def wire_of(commands: tuple[AvailableCommand, ...]) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = wire(AvailableCommandsUpdate(available_commands=commands))["availableCommands"]
    return written


@pytest.mark.req("ACP-UPD-010")
def test_compact_and_the_prompts_of_mcp_servers_are_offered() -> None:
    assert offered([ONE, TWO, BARE], None) == [
        {
            "name": "compact",
            "description": "Replace the conversation so far by a summary",
            "input": {"hint": "what to keep (optional)"},
        },
        *RESTORING,
        {"name": "docs:sum_up", "description": "Sums up", "input": {"hint": "topic"}},
        {"name": "docs:compare", "description": "Prompt of the MCP server docs", "input": {"hint": "a=… [b=…]"}},
        {"name": "docs:greet", "description": "Prompt of the MCP server docs"},
    ]


def test_commands_that_were_written_as_files_are_offered_after_the_built_in_ones() -> None:
    files = [
        CommandSummary(name="fix", description="Fix an issue", argument_hint="NUMBER"),
        CommandSummary(name="undo"),
    ]
    fix = {"name": "fix", "description": "Fix an issue", "input": {"hint": "NUMBER"}}
    own = ev.AgentSession(agent_session_id="own", commands=(ev.AgentOption(id="/fix", description="Its own"),))

    assert wire_of(available_commands([], None, custom=files, can_compact=False)) == [*RESTORING, fix]
    assert [each.description for each in available_commands([], own, custom=files) if each.name == "fix"] == ["Its own"]


def test_commands_of_an_external_agent_are_offered_as_it_names_them() -> None:
    commands = (ev.AgentOption(id="/review", description="Review it"), ev.AgentOption(id="compact"))
    agent = ev.AgentSession(agent_session_id="own", commands=commands)

    assert [each["name"] for each in offered([], agent, can_compact=False)][3:] == ["review", "compact"]
    assert [each["description"] for each in offered([], agent)][::4] == [
        "Replace the conversation so far by a summary",
        "Review it",
    ]
    assert offered([], None, can_compact=False) == RESTORING
    own = ev.AgentSession(agent_session_id="own", commands=(ev.AgentOption(id="undo", description="Its own"),))
    assert [(each["name"], each["description"]) for each in offered([], own) if each["name"] == "undo"] == [
        ("undo", "Its own")
    ]


@pytest.mark.req("ACP-UPD-010")
@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/compact", PromptCommand("compact")),
        ("/compact keep the names\nand dates ", PromptCommand("compact", "keep the names\nand dates")),
        (" /docs:greet\n", PromptCommand("docs:greet")),
        ("/compact\nkeep", PromptCommand("compact", "keep")),
        ("compact", None),
        ("/", None),
        ("/ compact", None),
        ("/usr/bin/env is missing", None),
        ("// a comment", None),
        ("", None),
        ("Write /compact", None),
    ],
)
def test_the_text_after_a_name_is_its_input(text: str, command: PromptCommand | None) -> None:
    assert parsed_command(text) == command


@pytest.mark.req("ACP-UPD-010")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/docs:sum_up the sea, in = two words", (ONE, {"topic": "the sea, in = two words"})),
        ("/docs:sum_up topic=the sea", (ONE, {"topic": "the sea"})),
        ("/docs:compare a=x b='y z'", (TWO, {"a": "x", "b": "y z"})),
        ("/docs:greet", (BARE, {})),
        ("/docs:unknown", None),
    ],
)
def test_a_command_names_a_prompt_and_its_arguments(text: str, expected: Any) -> None:
    command = parsed_command(text)

    assert command is not None
    assert requested_prompt(command, [ONE, TWO, BARE]) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/docs:sum_up", "/docs:sum_up: topic is missing. Write /docs:sum_up topic"),
        ("/docs:compare b=1", "/docs:compare: a is missing. Write /docs:compare a=… [b=…]"),
        ("/docs:compare a=1 c=2", "/docs:compare: it has no c. Write /docs:compare a=… [b=…]"),
        ("/docs:compare a='1", "A quotation mark is missing in the command."),
        ("/docs:greet you", "/docs:greet: it has no you. Write /docs:greet"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_how_it_is_written(text: str, message: str) -> None:
    command = parsed_command(text)
    assert command is not None

    with pytest.raises(RpcError) as refused:
        requested_prompt(command, [ONE, TWO, BARE])

    assert (refused.value.rpc_code, refused.value.message) == (-32602, message)


def test_what_a_server_says_cannot_leave_its_line_and_the_list_is_bounded() -> None:
    many = [msgspec.structs.replace(BARE, name=f"p{number}", description="x\x1b[2J\n" * 99) for number in range(500)]
    commands = offered(many, None)

    assert len(commands) == 200
    assert all("\n" not in each["description"] and "\x1b" not in each["description"] for each in commands)
    assert max(len(each["description"]) for each in commands) <= 200
