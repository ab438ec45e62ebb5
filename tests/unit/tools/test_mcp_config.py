"""`mcpServers` files: what is understood, and what is said about the rest."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makai.core.errors import InvalidRequest
from makai.core.secret import Secret
from makai.tools.mcp import config as mcp_config
from makai.tools.mcp.config import HttpServer, McpConfig, StdioServer, parse_mcp_config, server_names, tool_name

ENVIRON = {"TOKEN": "s3cret", "EMPTY": "", "HOST": "mcp.example"}


def parsed(servers: dict[str, Any]) -> McpConfig:
    return parse_mcp_config(json.dumps({"mcpServers": servers}), ENVIRON)


def problem(entry: dict[str, Any]) -> str:
    config = parsed({"x": entry})
    assert config.servers == ()
    return config.problems["x"].removeprefix("mcp.json: 'x': ")


def test_a_program_is_a_stdio_server() -> None:
    entry = {"command": "npx", "args": ["-y", "thing", "--key=${TOKEN}"], "env": {"A": "b-${TOKEN}"}, "cwd": "/srv"}

    assert parsed({"files": entry}).servers == (
        StdioServer(
            name="files", command="npx", args=("-y", "thing", "--key=s3cret"), env={"A": Secret("b-s3cret")}, cwd="/srv"
        ),
    )


@pytest.mark.parametrize("kind", [{}, {"type": "http"}, {"type": "streamable-http"}, {"type": "streamableHttp"}])
def test_a_url_is_a_streamable_http_server(kind: dict[str, str]) -> None:
    entry = {"url": "https://${HOST}/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}, **kind}

    assert parsed({"web": entry}).servers == (
        HttpServer(name="web", url="https://mcp.example/mcp", headers={"Authorization": Secret("Bearer s3cret")}),
    )


def test_sse_is_asked_for_by_its_type() -> None:
    assert parsed({"old": {"type": "sse", "url": "http://127.0.0.1:1/sse"}}).servers == (
        HttpServer(name="old", transport="sse", url="http://127.0.0.1:1/sse"),
    )


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("${TOKEN}", "s3cret"), ("${env:TOKEN}", "s3cret"), ("${MISSING:-fallback}", "fallback"),
        ("${EMPTY:-fallback}", "fallback"), ("${MISSING:-}", ""), ("${EMPTY}", ""),
        ("a${TOKEN}b${TOKEN}", "as3cretbs3cret"), ("$TOKEN", "$TOKEN"), ("${NOT A NAME}", "${NOT A NAME}"),
    ],
)  # fmt: skip
def test_variables_come_from_the_environment_that_was_given(written: str, meant: str) -> None:
    (server,) = parsed({"x": {"command": written + "!"}}).servers

    assert server == StdioServer(name="x", command=meant + "!")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, 'It has neither "command" nor "url".'),
        ({"type": "stdio"}, 'It has no "command".'),
        ({"type": "http", "command": "x"}, 'It has no "url".'),
        ({"type": "ws", "url": "ws://x"}, '"type" is \'ws\'; "stdio", "http" and "sse" are known.'),
        ({"command": "x", "url": "http://x"}, 'It has both "command" and "url"; only one of them can be meant.'),
        ({"command": ""}, "Expected `str` of length >= 1 - at `$.command`."),
        ({"command": "x", "args": "y"}, "Expected `array`, got `str` - at `$.args`."),
        ({"command": "x", "env": {"A": 1}}, "Expected `str`, got `int` - at `$.env[...]`."),
        ({"command": "x", "args": ["a", "${NOPE}"]}, "args[1] needs the environment variable NOPE, which is not set."),
        ({"command": "x\0y"}, "A NUL character is in it."),
        ({"command": "x", "env": {"A=B": "c"}}, "'A=B' cannot be the name of an environment variable."),
        ({"command": "x", "env": {"": "c"}}, "'' cannot be the name of an environment variable."),
        ({"url": "file:///etc/passwd"}, "\"url\" is 'file:///etc/passwd', which is no http or https URL."),
        ({"url": "http://[::1"}, "\"url\" is 'http://[::1', which is no http or https URL."),
        ({"url": "ftp://${TOKEN}"}, "\"url\" is 'ftp://${TOKEN}', which is no http or https URL."),
        ({"url": "http://x", "headers": {"A b": "c"}}, "'A b' is no header that can be sent."),
        ({"url": "http://x", "headers": {"A": "b\r\nC: d"}}, "'A' is no header that can be sent."),
    ],
)
def test_an_entry_that_cannot_be_used_is_told_why(entry: dict[str, Any], said: str) -> None:
    assert problem(entry) == said


def test_one_mistake_does_not_cost_the_other_servers() -> None:
    config = parsed({"bad": {"command": "${NOPE}"}, "good": {"command": "x"}})

    assert config == McpConfig(
        servers=(StdioServer(name="good", command="x"),),
        problems={"bad": "mcp.json: 'bad': command needs the environment variable NOPE, which is not set."},
    )


def test_a_disabled_server_is_left_out() -> None:
    assert parsed({"x": {"command": "x", "disabled": True}}) == McpConfig()


def test_keys_of_other_programs_grant_nothing_and_are_named() -> None:
    (server,) = parsed({"x": {"command": "x", "autoApprove": ["*"], "alwaysAllow": ["rm"]}}).servers

    assert server == StdioServer(name="x", command="x", ignored_keys=("alwaysAllow", "autoApprove"))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"mcpServers": []}', '{"mcpServers": {"x": {}', b"\xff\xfe{}"])
def test_a_file_that_is_none_is_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidRequest, match=r"my\.json is not usable"):
        parse_mcp_config(text, {}, "my.json")


def test_a_mark_of_utf_8_before_the_first_line_is_no_mistake() -> None:
    text = '\ufeff{"mcpServers": {"x": {"command": "npx"}}}'
    expected = parsed({"x": {"command": "npx"}})

    assert [parse_mcp_config(given, ENVIRON) for given in (text, text.encode())] == [expected, expected]


def test_names_are_normalised_and_do_not_meet() -> None:
    config = parsed({"my server": {"command": "a"}, "my_server": {"command": "b"}, "my.server": {"command": "c"}})

    assert [server.name for server in config.servers] == ["my_server_b129874b", "my_server", "my_server_9661c51a"]


def test_no_secret_is_printed() -> None:
    config = parsed(
        {
            "a": {"command": "x", "env": {"A": "${TOKEN}"}},
            "b": {"url": "https://u:${TOKEN}@h/p?key=${TOKEN}", "headers": {"A": "${TOKEN}"}},
        }
    )
    first, second = config.servers

    assert "s3cret" not in f"{first}{first.address}{second.address}"
    assert second.address == "https://h/p"


@pytest.mark.parametrize(
    ("command", "args", "address"),
    [
        ("npx", ("-y", "@scope/files", "."), "npx @scope/files"),
        ("uvx", ("--from", "git+https://t0ken@host/x", "x-server"), "uvx x-server"),
        ("/usr/bin/python3", ("-m", "calc", "--key", "k"), "/usr/bin/python3 calc"),
        ("python3", ("-c", "import calc"), "python3"),
        ("own-server", ("--key", "k"), "own-server"),
    ],
)
def test_what_a_launcher_starts_is_told_and_other_arguments_are_not(
    command: str, args: tuple[str, ...], address: str
) -> None:
    assert StdioServer(name="a", command=command, args=args).address == address


def test_the_identity_follows_what_would_be_run_or_asked() -> None:
    plain = StdioServer(name="x", command="a", args=("b",))
    same = StdioServer(name="y", command="a", args=("b",), env={"K": Secret("v")})
    others: list[mcp_config.McpServer] = [
        StdioServer(name="x", command="a", args=("c",)),
        StdioServer(name="x", command="a b"),
        HttpServer(name="x", url="http://a/b"),
        HttpServer(name="x", url="http://a/b", transport="sse"),
    ]

    assert plain.identity == same.identity
    assert len({plain.identity, *(other.identity for other in others)}) == 5


NAMES = st.one_of(st.text(max_size=80), st.from_regex(r"[a_.-]{1,6}", fullmatch=True))
USABLE = re.compile(r"[A-Za-z0-9_-]+")


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("github", "github"), ("My Server", "My_Server"), ("a__b", "a_b"), ("_a_", "a"), ("日本", "server_cf2abf0c"),
        ("", "server_e3b0c442"), ("x" * 40, "x" * 23 + "_bd913ff6"),
    ],
)  # fmt: skip
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
    assert server_names(written) == server_names(written[::-1])


@given(NAMES, NAMES, NAMES, NAMES)
def test_different_tools_never_share_a_name(server: str, tool: str, other_server: str, other_tool: str) -> None:
    names = server_names([server, other_server] if server != other_server else [server])
    first, second = tool_name(names[server], tool), tool_name(names[other_server], other_tool)

    assert (first == second) == ((server, tool) == (other_server, other_tool))
    assert len(first) <= mcp_config.MAX_NAME
    assert USABLE.fullmatch(first)
    # The rule `mcp__server__*` matches the tools of that server and of no other.
    assert first.startswith(f"mcp__{names[server]}__")
    assert second.startswith(f"mcp__{names[server]}__") == (server == other_server)
