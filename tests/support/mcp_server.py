"""A real MCP server, by the SDK's server side, with tools that behave and tools that do not.

Run as a file: `mcp_server.py [stdio|http|sse] [options]`. Over HTTP it prints its port first. Nothing of makai is used.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

Context = ServerRequestContext[Any, Any]
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n not really").decode()
NO_ARGUMENTS: dict[str, Any] = {"type": "object"}


def tool(name: str, description: str, **more: Any) -> types.Tool:
    return types.Tool(name=name, description=description, input_schema=more.pop("schema", NO_ARGUMENTS), **more)


TOOLS = [
    tool(
        "echo",
        "Say it again.",
        title="Echo",
        schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        annotations=types.ToolAnnotations(read_only_hint=True),
    ),
    tool("add", "Add two numbers.", annotations=types.ToolAnnotations(destructive_hint=False)),
    tool("picture", "A picture, a text and a file."),
    tool("fail", "Fails."),
    tool("refuse", "Refuses."),
    tool("hang", "Never answers, and notes in a file that it was told to stop."),
    tool("steps", "Reports progress."),
    tool("die", "Ends the server."),
    tool("huge", "A long text."),
    tool("change", "Changes the list of tools."),
    tool("spawn", "Starts a process that outlives it."),
    tool("environment", "What it sees."),
    tool("garbage", "Prints to its output what is not MCP."),
]


class TestServer:
    __test__ = False

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.tools = list(TOOLS)
        self.bus = InMemorySubscriptionBus()
        self.server = Server(
            "makai-test-server",
            version="1.2.3",
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_subscriptions_listen=ListenHandler(self.bus),
            **(self.resources() if options.resources else {}),
        )
        if options.modern_only:
            self.server.middleware.append(refuse_initialize)

    def resources(self) -> dict[str, Any]:
        return {
            "on_list_resources": self.list_resources,
            "on_read_resource": self.read_resource,
            "on_list_resource_templates": self.list_templates,
        }

    async def list_resources(self, _: Context, params: Any) -> types.ListResourcesResult:
        start = int(params.cursor) if params and params.cursor else 0
        end = min(start + 400, self.options.resources)
        found = [types.Resource(uri=f"note://{number}", name=f"note {number}") for number in range(start, end)]
        found[0].description = "The first\x1b[2J\none"
        more = str(end) if end < self.options.resources else None
        return types.ListResourcesResult(resources=found, next_cursor=more)

    async def list_templates(self, *_: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(uri_template="note://{id}", name="any note", mime_type="text/plain")
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(self, _: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        match uri.partition("://")[2]:
            case "binary":
                blob = base64.b64encode(b"\0" * 10).decode()
                return types.ReadResourceResult(contents=[types.BlobResourceContents(uri=uri, blob=blob)])
            case "long":
                return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, text="x" * 1_000_000)])
            case "missing":
                raise MCPError(types.INVALID_PARAMS, "there is no such note")
            case name:
                return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, text=f"This is {name}.")])

    async def list_tools(self, _: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        start = int(params.cursor) if params and params.cursor else 0
        end = start + self.options.page
        more = str(end) if end < len(self.tools) else None
        return types.ListToolsResult(tools=self.tools[start:end], next_cursor=more)

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        result = await getattr(self, params.name)(context, params.arguments or {})
        return result if isinstance(result, types.CallToolResult) else said(result)

    async def echo(self, _: Context, arguments: dict[str, Any]) -> str:
        return str(arguments["text"])

    async def add(self, _: Context, arguments: dict[str, Any]) -> types.CallToolResult:
        return types.CallToolResult(content=[], structured_content={"sum": arguments["a"] + arguments["b"]})

    async def picture(self, *_: Any) -> types.CallToolResult:
        contents = types.TextResourceContents(uri="file:///notes.txt", text="the notes")
        return types.CallToolResult(
            content=[
                types.ImageContent(type="image", data=PIXEL, mime_type="image/png"),
                types.TextContent(type="text", text="a pixel"),
                types.EmbeddedResource(type="resource", resource=contents),
            ]
        )

    async def fail(self, *_: Any) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text="no such file")], is_error=True)

    async def refuse(self, _: Context, arguments: dict[str, Any]) -> str:
        raise MCPError(arguments.get("code", types.INVALID_PARAMS), "not with these arguments")

    async def hang(self, _: Context, arguments: dict[str, Any]) -> str:
        note(arguments["note"], "begun")
        try:
            await asyncio.Event().wait()
        finally:
            note(arguments["note"], "told to stop")
        return "never"

    async def steps(self, context: Context, arguments: dict[str, Any]) -> str:
        for step in range(1, arguments["count"] + 1):
            await context.session.report_progress(step, arguments["count"], f"step {step}")
            await asyncio.sleep(arguments.get("pause", 0.15))
        return "done"

    async def die(self, *_: Any) -> str:
        os.write(2, b"I was asked to die\n")
        os._exit(3)

    async def huge(self, _: Context, arguments: dict[str, Any]) -> str:
        return "x" * int(arguments["size"])

    async def change(self, context: Context, arguments: dict[str, Any]) -> str:
        self.tools[:] = [one for one in self.tools if one.name != "echo"]
        self.tools.append(tool("echo", arguments["description"]))
        await context.session.send_tool_list_changed()
        await self.bus.publish(ToolsListChanged())
        return "changed"

    async def spawn(self, *_: Any) -> str:
        return str(stubborn_process())

    async def environment(self, *_: Any) -> str:
        return json.dumps({"environ": dict(os.environ), "cwd": os.getcwd(), "pid": os.getpid()})

    async def garbage(self, _: Context, arguments: dict[str, Any]) -> str:
        for _line in range(arguments["lines"]):
            # The SDK has moved the real output away from descriptor 1.
            os.write(self.options.real_stdout, b"Listening on port 3000 {not json}\n")
        return "tidy again"


async def refuse_initialize(ctx: Context, call_next: CallNext) -> HandlerResult:
    if ctx.method == "initialize":
        raise MCPError(types.METHOD_NOT_FOUND, "this server is too modern for that")
    return await call_next(ctx)


def note(path: str, text: str) -> None:
    Path(path).write_text(text)


def stubborn_process() -> int:
    return subprocess.Popen(
        ["sh", "-c", "trap '' TERM HUP; sleep 600 & sleep 601"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ).pid


def said(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def over_stdio(test: TestServer) -> None:
    test.options.real_stdout = os.dup(1)
    async with stdio_server() as (messages, outbound):
        options = test.server.create_initialization_options(NotificationOptions(tools_changed=True))
        await test.server.run(messages, outbound, options)


async def over_http(test: TestServer) -> None:
    app = (
        test.server.streamable_http_app(json_response=test.options.json)
        if test.options.transport == "http"
        else sse(test)
    )
    if test.options.token:
        app = guarded(app, f"Bearer {test.options.token}")
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", test.options.port))
    os.write(1, b"%d\n" % listener.getsockname()[1])
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
    await uvicorn.Server(config).serve(sockets=[listener])


def sse(test: TestServer) -> Starlette:
    transport = SseServerTransport("/messages/")

    async def connect(request: Request) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as (messages, outbound):
            await test.server.run(messages, outbound, test.server.create_initialization_options())
        return Response()

    return Starlette(routes=[Route("/sse", connect), Mount("/messages/", app=transport.handle_post_message)])


def guarded(app: Any, wanted: str) -> Any:
    async def guard(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and dict(scope["headers"]).get(b"authorization", b"").decode() != wanted:
            await Response("who are you?", status_code=401)(scope, receive, send)
            return
        await app(scope, receive, send)

    return guard


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("transport", choices=["stdio", "http", "sse"], nargs="?", default="stdio")
    parser.add_argument("--page", type=int, default=1000, help="tools on a page of the list")
    parser.add_argument("--modern-only", action="store_true", help="refuse `initialize`")
    parser.add_argument("--token", default="", help="the bearer token that is wanted")
    parser.add_argument("--json", action="store_true", help="answer in one piece instead of a stream")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--resources", type=int, default=0, help="how many resources it lists; 0: it has none")
    options = parser.parse_args()
    test = TestServer(options)
    asyncio.run(over_stdio(test) if options.transport == "stdio" else over_http(test))


if __name__ == "__main__":
    # The folder of this file holds modules that must not hide the real ones.
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).parent.resolve()]
    main()
