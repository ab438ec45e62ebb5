"""The early answer to `initialize` is the one that the connection gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.acp_client import connected

from makai.server.acp_connection import AcpServer
from makai.server.acp_handshake import BUILTIN_LOGINS, early_answer, plain_initialize
from makai.sessions.service import Sessions
from makai.wire.acp.connecting import InitializeRequest

ZED: dict[str, Any] = {
    "protocolVersion": 1,
    "clientCapabilities": {
        "fs": {"readTextFile": True, "writeTextFile": True},
        "terminal": True,
        "auth": {"terminal": True},
        "session": {"configOptions": {"boolean": {}}, "notices": {}, "compaction": None},
        "elicitation": {"form": {}, "url": {}},
        "_meta": {"terminal_output": True, "terminal-auth": True},
    },
    "clientInfo": {"name": "zed", "title": None, "version": "0.300.0"},
}


def line(params: Any, **fields: Any) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params, **fields})


async def no_sessions() -> Sessions:
    raise AssertionError("a handshake needs no sessions")


@pytest.mark.req("ACP-INIT-004", "ACP-INIT-005", "ACP-INIT-006")
@pytest.mark.parametrize("unstable", [False, True])
@pytest.mark.parametrize(
    "params", [ZED, {"protocolVersion": 0}, {"protocolVersion": 65535, "clientInfo": None, "newer": [1]}]
)
async def test_an_early_answer_is_the_ordinary_one(tmp_path: Path, params: Any, unstable: bool) -> None:
    early = early_answer(line(params, id="a"), {"MAKAI_HOME": str(tmp_path)}, unstable=unstable)
    server = AcpServer(no_sessions, None, logins=lambda: BUILTIN_LOGINS, unstable=unstable)  # type: ignore[arg-type]
    async with connected(server) as client:
        await client.ask("initialize", params, request_id="a")
        assert early is not None
        assert client.frames == [msgspec.json.decode(early)]
        assert early.count(b"\n") == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{",
        b'{"jsonrpc":"2.0","id":1,"method":"initialize"}',
        line(ZED, jsonrpc="1.0"),
        line(ZED, method="session/new"),
        line(ZED, id=None),
        line(ZED, id=True),
        line(ZED, id=-1),
        line(ZED, id=0),  # may be written as -0, which has to be repeated so
        line(ZED, id=2**60),
        line(ZED, id="x" * 2000),
        line({}),
        line([1]),
        line({"protocolVersion": "1"}),
        line({"protocolVersion": True}),
        line({"protocolVersion": -1}),
        line({"protocolVersion": 65536}),
        line({"protocolVersion": 1.0}),
        line({**ZED, "clientCapabilities": None}),
        line({**ZED, "clientCapabilities": {"fs": None}}),
        line({**ZED, "clientCapabilities": {"terminal": 1}}),
        line({**ZED, "clientCapabilities": {"auth": {"terminal": None}}}),
        line({**ZED, "clientCapabilities": {"session": {"notices": True}}}),
        line({**ZED, "clientInfo": {"name": "zed"}}),
        line({**ZED, "clientInfo": {"name": "a\nb", "version": "1"}}),
        line({**ZED, "_meta": []}),
        line({**ZED, "x": "é"}),
        line({**ZED, "x": 1.5}),
        line({**ZED, "x": [[]] * 100}),
        line({**ZED, "x": "y" * 70_000}),
        line(ZED).replace(b'"fs"', b"NaN"),
        line(ZED)[:-1],
        line(ZED) + b"}",
    ],
)
def test_everything_unusual_is_left_to_the_connection(raw: bytes) -> None:
    assert plain_initialize(raw) is None


def test_what_is_answered_early_can_be_read_later() -> None:
    found = plain_initialize(line(ZED))
    assert found is not None
    assert msgspec.convert(found["params"], InitializeRequest).client_capabilities.auth.terminal
