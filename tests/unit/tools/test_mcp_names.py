"""Names of servers and tools: always usable, never two meanings."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makai.tools.mcp.config import MAX_NAME, server_names, tool_name

NAMES = st.one_of(st.text(max_size=80), st.from_regex(r"[a_.-]{1,6}", fullmatch=True))
USABLE = re.compile(r"[A-Za-z0-9_-]+")


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("github", "github"),
        ("My Server", "My_Server"),
        ("a__b", "a_b"),
        ("_a_", "a"),
        ("日本", "server_cf2abf0c"),
        ("", "server_e3b0c442"),
        ("x" * 40, "x" * 23 + "_bd913ff6"),
    ],
)
def test_a_server_keeps_as_much_of_its_name_as_it_can(written: str, name: str) -> None:
    assert server_names([written]) == {written: name}


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("create_issue", "mcp__gh__create_issue"),
        ("a__b", "mcp__gh__a__b"),
        ("_a", "mcp__gh___a"),
        ("get.user", "mcp__gh__get_user_9c0265de"),
        ("get/user", "mcp__gh__get_user_83c73368"),
        ("", "mcp__gh__e3b0c442"),
    ],
)
def test_a_tool_whose_name_had_to_be_changed_carries_a_hash(tool: str, name: str) -> None:
    assert tool_name("gh", tool) == name


@given(st.lists(NAMES, unique=True, max_size=6))
def test_servers_have_different_usable_names_without_double_underscores(written: list[str]) -> None:
    names = list(server_names(written).values())

    assert len(set(names)) == len(names)
    assert all(USABLE.fullmatch(name) and "__" not in name and len(name) <= 32 for name in names)
    assert all(not name.startswith("_") and not name.endswith("_") for name in names)


@given(st.lists(NAMES, unique=True, max_size=6))
def test_the_order_of_servers_does_not_change_their_names(written: list[str]) -> None:
    assert server_names(written) == server_names(written[::-1])


@given(NAMES, NAMES, NAMES, NAMES)
def test_different_tools_never_share_a_name(server: str, tool: str, other_server: str, other_tool: str) -> None:
    names = server_names([server, other_server] if server != other_server else [server])
    first, second = tool_name(names[server], tool), tool_name(names[other_server], other_tool)

    assert (first == second) == ((server, tool) == (other_server, other_tool))
    assert len(first) <= MAX_NAME
    assert USABLE.fullmatch(first)
    # The rule `mcp__server__*` matches the tools of that server and of no other.
    assert first.startswith(f"mcp__{names[server]}__")
    assert second.startswith(f"mcp__{names[server]}__") == (server == other_server)
