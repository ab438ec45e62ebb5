"""MCP servers whose names, descriptions, prompts and results have NUL, lone surrogates or invalid UTF-8: each message
is read, with U+FFFD in place of what cannot be carried, and no later call suffers. An answer that is nested too deeply
is one failed call. A tool or a block that the protocol does not allow costs nothing but itself."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.orphan_trials import Silent, confining, text_of

from makai.core.sanitize import REPLACED, is_clean
from makai.tools.mcp.config import HttpServer, Launch, McpConfig, McpServer, StdioServer, Timing
from makai.tools.mcp.manager import McpManager

WITHIN_S = 60.0
TRANSPORTS = ("stdio", "json", "stream", "sse")
QUICK = Timing(first_retry_s=0.05, longest_retry_s=0.2)
BAD = rb"a\u0000b\ud800c\udfff"
SEEN = "a\ufffdb\ufffdc\ufffd"
RAW = b"\xff\xed\xa0\x80"
TEXT = b'{"type":"text","text":"%b"}'
RESULTS: dict[bytes, bytes] = {
    b"initialize": b'{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"prompts":{},"resources":{}},'
    b'"serverInfo":{"name":"%b","version":"%b"}}' % (BAD, RAW),
    b"tools/list": b'{"tools":[{"name":"say","title":"%b","description":"%b%b","inputSchema":{"type":"object",'
    b'"properties":{"x":{"description":"%b"}}}},{"name":"n%b","inputSchema":{"type":"object"}}]}'
    % (BAD, BAD, RAW, BAD, BAD),
    b"tools/call": b'{"content":[%b,{"type":"resource","resource":{"uri":"x:%b","text":"%b"}}],'
    b'"structuredContent":{"%b":"%b"}}' % (TEXT % (BAD + RAW), BAD, BAD, BAD, BAD),
    b"prompts/list": b'{"prompts":[{"name":"p%b","description":"%b","arguments":[{"name":"%b"}]}]}' % (BAD, BAD, BAD),
    b"prompts/get": b'{"messages":[{"role":"user","content":%b}]}' % (TEXT % BAD),
    b"resources/list": b'{"resources":[{"uri":"x:%b","name":"%b"}]}' % (BAD, BAD),
    b"resources/templates/list": b'{"resourceTemplates":[]}',
    b"resources/read": b'{"contents":[{"uri":"x:y","text":"%b"}]}' % BAD,
}


def answer_to(request: dict[str, Any], results: dict[bytes, bytes]) -> bytes:
    """The fixed result of a method; a call that names `levels` gets JSON that is nested so deeply, and one
    that names `error` this JSON as its error."""
    levels = request.get("params", {}).get("arguments", {}).get("levels", 0)
    deep = b'{"content":[],"structuredContent":%b1%b}' % (b'{"a":' * levels, b"}" * levels)
    result = deep if levels else results[request["method"].encode()]
    error = request.get("params", {}).get("arguments", {}).get("error")
    answer = b'"result":' + result if error is None else b'"error":' + error.encode()
    return b'{"jsonrpc":"2.0","id":%d,%b}' % (request["id"], answer)


PROGRAM = f"""
from __future__ import annotations
import json, sys
{inspect.getsource(answer_to)}
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        sys.stdout.buffer.write(answer_to(request, eval(sys.argv[1])) + b"\\n")
        sys.stdout.flush()
"""


@asynccontextmanager
async def server(transport: str, results: dict[bytes, bytes]) -> AsyncIterator[McpServer]:
    if transport == "stdio":
        yield StdioServer(name="t", command=sys.executable, args=("-c", PROGRAM, repr(results)))
        return

    waiting: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle(request: web.Request) -> web.StreamResponse:
        message = await request.json() if request.method == "POST" else {}
        if transport == "sse":
            return await handle_sse(request, message)
        if "id" not in message:
            return web.Response(status=202 if message else 405)
        body = answer_to(message, results)
        if transport == "json":
            return web.Response(body=body, content_type="application/json")
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        for byte in range(0, len(body), 50):  # escapes are cut anywhere
            await stream.write((b"event: message\ndata: " if byte == 0 else b"") + body[byte : byte + 50])
        await stream.write(b"\n\n")
        return stream

    async def handle_sse(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        if "id" in message:
            waiting.put_nowait(answer_to(message, results))
        if message:
            return web.Response(status=202)
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        await stream.write(b"event: endpoint\ndata: /mcp\n\n")
        while True:
            await stream.write(b"event: message\ndata: %b\n\n" % await waiting.get())

    app = web.Application()
    app.router.add_route("*", "/mcp", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
        yield HttpServer(name="t", url=url, transport="sse" if transport == "sse" else "http")
    finally:
        await runner.cleanup()


@asynccontextmanager
async def managed(folder: Path, transport: str, results: dict[bytes, bytes] = RESULTS) -> AsyncIterator[McpManager]:
    launch = Launch(environ=os.environ, cwd=str(folder), confined=confining(), spill_directory=folder)
    async with (
        asyncio.timeout(WITHIN_S),
        server(transport, results) as entry,
        McpManager(McpConfig(servers=(entry,)), launch, timing=QUICK) as manager,
    ):
        assert await manager.settled(WITHIN_S)
        yield manager


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_what_a_server_says_is_read_whatever_its_strings_hold(tmp_path: Path, transport: str) -> None:
    async with managed(tmp_path, transport) as manager:
        tools = {tool.listing.name: tool for tool in manager.tools()}
        assert set(tools) == {"say", f"n{SEEN}", "list_resources", "read_resource"}
        say = tools["say"]
        assert say.definition.description == SEEN + "\ufffd\ufffd\ufffd\ufffd"
        for tool in tools.values():
            for text in (tool.definition.name, tool.definition.description, tool.definition.parameters_schema_json):
                assert is_clean(text)
                assert r"\u0000" not in text
        for _ in range(2):
            outcome = await say.run({}, Silent())
            assert not outcome.is_error
            assert text_of(outcome).startswith(SEEN)
            assert is_clean(text_of(outcome))
            assert text_of(outcome).endswith(f"\n{REPLACED}")
        assert text_of(await tools["read_resource"].run({"uri": "x:y"}, Silent())) == f"{SEEN}\n{REPLACED}"
        assert is_clean(text_of(await tools["list_resources"].run({}, Silent())))
        (prompt,) = await manager.prompts()
        assert (prompt.name, prompt.description, prompt.arguments[0].name) == (f"p{SEEN}", SEEN, SEEN)
        assert await manager.prompt("t", prompt.name, {}) == SEEN
        assert is_clean(manager.statuses()[0].server_version)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_an_answer_that_is_nested_too_deeply_is_one_failed_call(tmp_path: Path, transport: str) -> None:
    async with managed(tmp_path, transport) as manager:
        say = next(tool for tool in manager.tools() if tool.listing.name == "say")
        for levels in (129, 500, 5_000):
            outcome = await say.run({"levels": levels}, Silent())
            nested = '{"a":' * levels + "1" + "}" * levels
            assert outcome.is_error or text_of(outcome) == nested
            assert outcome.is_error == (levels > 129), text_of(outcome)
            assert text_of(await say.run({}, Silent())).startswith(SEEN)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_words_of_an_error_reach_the_model_whatever_its_shape(tmp_path: Path, transport: str) -> None:
    async with managed(tmp_path, transport) as manager:
        say = next(tool for tool in manager.tools() if tool.listing.name == "say")
        for error in ('"no such row"', '{"message":"no such row"}', '{"code":"E7","message":"no such row"}'):
            outcome = await say.run({"error": error}, Silent())
            assert (outcome.is_error, "no such row" in text_of(outcome)) == (True, True), text_of(outcome)
        assert text_of(await say.run({}, Silent())).startswith(SEEN)


OBJECT = '{"type":"object","properties":{}}'
ODD_TOOLS = (
    '{"name":"good","inputSchema":' + OBJECT + ',"outputSchema":{"type":"object"}}',
    '{"name":"no_schema"}',
    '{"name":"null_schema","inputSchema":null}',
    '{"name":"empty_schema","inputSchema":{}}',
    '{"name":"text_schema","inputSchema":{"type":"string"}}',
    '{"name":"odd_schema","inputSchema":{"type":["object","null"],"properties":[],"required":"a"}}',
    '{"name":"null_fields","inputSchema":{"type":"object","properties":null,"required":null}}',
    '{"name":"odd_fields","description":7,"annotations":7,"outputSchema":[],"inputSchema":' + OBJECT + "}",
)
UNUSABLE_TOOLS = ('{"name":7,"inputSchema":{}}', '{"inputSchema":{}}', '"text"', "null", "[]")
SMALL = {**RESULTS, b"initialize": RESULTS[b"initialize"].replace(b',"prompts":{},"resources":{}', b"")}


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_tool_that_the_protocol_does_not_allow_costs_no_other_tool(tmp_path: Path, transport: str) -> None:
    listed = ",".join((*ODD_TOOLS, *UNUSABLE_TOOLS)).encode()
    async with managed(tmp_path, transport, {**SMALL, b"tools/list": b'{"tools":[%b]}' % listed}) as manager:
        found = {tool.listing.name: tool.definition.parameters_schema_json for tool in manager.tools()}

    assert found == {json.loads(tool)["name"]: OBJECT for tool in ODD_TOOLS}


@pytest.mark.parametrize(
    ("result", "shown", "is_error"),
    [
        (b'{"content":null,"structuredContent":{"a":1}}', '{"a":1}', False),
        (b'{"structuredContent":{"a":1}}', '{"a":1}', False),
        (b'{"content":null}', "[no output]", False),
        (b'{"content":"plain","isError":null}', "plain", False),
        (b'{"content":{"type":"text","text":"one"},"isError":1}', "one", True),
        (b'{"content":["a",null,7,{"type":"text","text":"b"}]}', "a\nnull\n7\nb", False),
        (
            b'{"content":[{"type":"new","x":1},{"type":"text","text":null}]}',
            '{"type":"new","x":1}\n{"type":"text","text":null}',
            False,
        ),
        (b'{"content":[{"type":"text","text":"[1]"}],"structuredContent":[1]}', "[1]", False),
        (b'{"content":[{"type":"text","text":"a"}],"structuredContent":null}', "a", False),
    ],
    ids=lambda value: value.decode() if isinstance(value, bytes) else "",
)
@pytest.mark.parametrize("transport", ["stdio", "json"])
async def test_a_block_that_the_protocol_does_not_allow_is_shown_and_costs_no_other(
    tmp_path: Path, transport: str, result: bytes, shown: str, is_error: bool
) -> None:
    results = {**SMALL, b"tools/list": b'{"tools":[%b]}' % ODD_TOOLS[0].encode(), b"tools/call": result}
    async with managed(tmp_path, transport, results) as manager:
        (tool,) = manager.tools()
        outcome = await tool.run({}, Silent())

    assert (text_of(outcome), outcome.is_error) == (shown, is_error)
