"""The remote transport of ACP: what a client over HTTP and over WebSocket gets, with a small agent behind it, and what
strangers, clients that do not read and clients that vanish do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from support.live_sessions import owned_sessions
from support.serving import BEARER, http_session
from support.tokens import bearer, make_token
from support.transports import TOKEN, loopback

from makai.aio.json_rpc_calls import JsonRpcCalls
from makai.core.access import Caller
from makai.core.errors import ChannelClosed
from makai.server import acp_routes
from makai.server.acp_routes import AcpHttpDeadlines, AcpRoutes
from makai.server.token_book import TokenBook
from makai.sessions.requests import RevokeToken
from makai.transports.channel import Channel, Oversized
from makai.transports.connection import FrameWriter, Outbox
from makai.transports.guard import Guard, GuardConfig
from makai.transports.http_guard import guard_middleware
from makai.wire.sse import SSEDecoder

JSON: Mapping[str, str] = {"Content-Type": "application/json"}
STREAM: Mapping[str, str] = {"Accept": "text/event-stream"}
INITIALIZE = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
NEW = {"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}}
PROMPT = {"jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": {"sessionId": "s1", "prompt": []}}


class Agent:
    """Answers like an agent: a prompt says something, asks for a permission and ends."""

    def __init__(self, channel: Channel) -> None:
        self._outbox = Outbox()
        self._writer = FrameWriter(channel, self._outbox, lambda error: None)
        self._calls = JsonRpcCalls(self._write, self)
        self._channel = channel

    async def serve(self) -> None:
        try:
            while (frame := await self._channel.receive()) is not None:
                assert not isinstance(frame, Oversized)
                self._calls.receive(frame)
        finally:
            await self._calls.close(ChannelClosed("gone"))
            await self._writer.close(1.0)

    def _write(self, line: bytes) -> None:
        self._outbox.put(line)
        self._writer.wake()

    async def on_request(self, method: str, params: msgspec.Raw | None) -> Any:
        given = msgspec.json.decode(params or b"{}")
        match method:
            case "initialize":
                return {"protocolVersion": 1}
            case "session/new":
                return {"sessionId": "s1"}
            case "session/prompt":
                self._calls.notify("session/update", {"sessionId": given["sessionId"], "update": {"n": 1}})
                answer = await self._calls.request("session/request_permission", {"sessionId": given["sessionId"]})
                return {"stopReason": msgspec.json.decode(answer)["outcome"]}
            case "flood":
                for _ in range(100):
                    self._calls.notify("session/update", {"sessionId": "s1", "update": "x" * 100_000})
                    await self._writer.room()
                return {}
            case _:
                return {"echo": method}

    def on_notification(self, method: str, params: msgspec.Raw | None) -> None:
        pass


class Served:
    """A listener with the route, and everything that its agents saw."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.http = http
        self.url = ""
        self.callers: list[Caller] = []
        self.ended = 0
        self.last_ended = asyncio.Event()

    async def serve(self, channel: Channel, caller: Caller) -> None:
        self.callers.append(caller)
        try:
            await Agent(channel).serve()
        finally:
            self.ended += 1
            self.last_ended.set()

    async def post(self, message: object, **headers: str) -> tuple[int, str, Any]:
        """The status, the connection that the answer names, and the body. Bytes are sent as they are."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = message if isinstance(message, bytes) else msgspec.json.encode(message)
        async with self.http.post(self.url, data=data, headers={**BEARER, **JSON, **named}) as response:
            body = await response.read()
            return response.status, response.headers.get("Acp-Connection-Id", ""), body and msgspec.json.decode(body)

    async def connected(self) -> str:
        status, connection, answer = await self.post(INITIALIZE)
        assert (status, answer) == (200, {"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": 1}})
        return connection

    @asynccontextmanager
    async def stream(self, connection: str, session: str | None = None) -> AsyncIterator[AsyncIterator[Any]]:
        named = {"Acp-Connection-Id": connection} | ({"Acp-Session-Id": session} if session else {})
        async with self.http.get(self.url, headers={**BEARER, **STREAM, **named}) as response:
            assert response.status == 200
            yield events(response)


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[Any]:
    decoder = SSEDecoder(1024 * 1024)
    while data := await response.content.readany():
        for event in decoder.feed_data(data):
            yield msgspec.json.decode(event)


@asynccontextmanager
async def listening(
    deadlines: AcpHttpDeadlines | None = None, *, tokens: TokenBook | None = None, max_connections: int = 8
) -> AsyncIterator[Served]:
    async with asyncio.timeout(30), http_session() as http:
        served = Served(http)

        def app(guard: Guard) -> web.Application:
            guard.tokens = tokens
            made = web.Application(middlewares=[guard_middleware(guard)])
            routes = AcpRoutes(served.serve, tokens, deadlines=deadlines, max_connections=max_connections)
            routes.add_to(made)
            return made

        async with loopback(app, GuardConfig(TOKEN, port=0)) as port:
            served.url = f"http://127.0.0.1:{port}/acp"
            yield served


async def test_a_turn_over_http_has_answers_updates_and_questions_on_their_streams() -> None:
    async with listening() as served:
        connection = await served.connected()
        async with served.stream(connection) as on_connection:
            assert (await served.post(NEW, Acp_Connection_Id=connection))[0] == 202
            assert (await anext(on_connection))["result"] == {"sessionId": "s1"}
            async with served.stream(connection, "s1") as on_session:
                named = {"Acp_Connection_Id": connection, "Acp_Session_Id": "s1"}
                assert (await served.post(PROMPT, **named))[0] == 202
                assert (await anext(on_session))["params"] == {"sessionId": "s1", "update": {"n": 1}}
                asked = await anext(on_session)
                assert asked["method"] == "session/request_permission"
                answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"outcome": "end_turn"}}
                assert (await served.post(answer, Acp_Connection_Id=connection))[0] == 400
                assert (await served.post(answer, **named))[0] == 202
                assert await anext(on_session) == {"jsonrpc": "2.0", "id": 2, "result": {"stopReason": "end_turn"}}
        headers = {**BEARER, "Acp-Connection-Id": connection}
        async with served.http.delete(served.url, headers=headers) as response:
            assert response.status == 202
        await served.last_ended.wait()
        assert (await served.post(NEW, Acp_Connection_Id=connection))[0] == 404


async def test_what_is_said_before_a_stream_is_opened_waits_for_it() -> None:
    async with listening() as served:
        connection = await served.connected()
        await served.post(NEW, Acp_Connection_Id=connection)
        await served.post(PROMPT, Acp_Connection_Id=connection, Acp_Session_Id="s1")
        async with served.stream(connection, "s1") as on_session:
            assert (await anext(on_session))["params"]["update"] == {"n": 1}
        async with served.stream(connection) as on_connection:
            assert (await anext(on_connection))["id"] == 1


async def test_the_answer_to_a_load_is_on_the_stream_of_the_connection() -> None:
    load = {"jsonrpc": "2.0", "id": 5, "method": "session/load", "params": {"sessionId": "old"}}
    async with listening() as served:
        connection = await served.connected()
        await served.post(load, Acp_Connection_Id=connection, Acp_Session_Id="old")
        async with served.stream(connection) as on_connection:
            assert (await anext(on_connection))["id"] == 5


async def test_a_websocket_carries_the_same_messages_in_one_stream() -> None:
    async with listening() as served:
        async with served.http.ws_connect(served.url, headers=BEARER) as socket:
            assert len(socket._response.headers["Acp-Connection-Id"]) == 32
            for message in (INITIALIZE, NEW, PROMPT):
                await socket.send_str(msgspec.json.encode(message).decode())
            said = [msgspec.json.decode((await socket.receive()).data) for _ in range(4)]
            assert [(one.get("method"), one.get("id")) for one in said] == [
                (None, 0), (None, 1), ("session/update", None), ("session/request_permission", 1),
            ]  # fmt: skip
        await served.last_ended.wait()
        assert [caller.name for caller in served.callers] == ["server"]


REFUSED: list[tuple[int, dict[str, Any]]] = [
    (400, {"message": NEW}),  # no connection
    (404, {"message": NEW, "Acp_Connection_Id": "f" * 32}),
    (400, {"message": {**INITIALIZE, "id": None}}),
    (400, {"message": {"jsonrpc": "2.0", "method": "initialize"}}),
    (400, {"message": b"{"}),
    (400, {"message": b"7"}),
    (400, {"message": b'"\xff"'}),
    (415, {"message": INITIALIZE, "Content_Type": "text/plain"}),
    (401, {"message": INITIALIZE, "Authorization": "Bearer wrong"}),
    (403, {"message": INITIALIZE, "Origin": "https://evil.example"}),
    (421, {"message": INITIALIZE, "Host": "evil.example"}),
]


@pytest.mark.parametrize(("status", "asked"), REFUSED, ids=str)
async def test_a_post_that_opens_nothing_is_refused(status: int, asked: dict[str, Any]) -> None:
    async with listening() as served:
        assert (await served.post(**asked))[0] == status
        assert served.callers == []


async def test_a_batch_is_answered_with_the_error_of_json_rpc() -> None:
    async with listening() as served:
        status, _, body = await served.post([INITIALIZE])
        assert (status, body["id"], body["error"]["code"]) == (400, None, -32600)


async def test_messages_in_the_wrong_place_are_refused_and_the_connection_stays() -> None:
    async with listening() as served:
        connection = await served.connected()
        named = {"Acp_Connection_Id": connection}
        assert (await served.post(INITIALIZE, **named))[0] == 400
        assert (await served.post(PROMPT, **named))[0] == 400
        assert (await served.post(PROMPT, **named, Acp_Session_Id="another"))[0] == 400
        for accept, status in (("text/html", 406), ("text/event-stream", 400)):
            async with served.http.get(served.url, headers={**BEARER, "Accept": accept}) as response:
                assert response.status == status
        async with served.stream(connection) as on_connection:
            again = {**BEARER, **STREAM, "Acp-Connection-Id": connection}
            async with served.http.get(served.url, headers=again) as second:
                assert second.status == 409
            await served.post(NEW, **named)
            assert (await anext(on_connection))["id"] == 1


async def test_a_connection_is_of_one_token_and_ends_with_it(tmp_path: Path) -> None:
    async with owned_sessions(tmp_path, "say: Hi.") as sessions:

        async def opened() -> Any:
            return sessions

        book = TokenBook(opened)
        try:
            token_id, token = await make_token(sessions, "prompt")
            _, other = await make_token(sessions, "prompt")
            async with listening(tokens=book) as served:
                status, connection, _ = await served.post(INITIALIZE, **bearer(token))
                assert status == 200
                for stranger in (bearer(other), BEARER):
                    assert (await served.post(NEW, Acp_Connection_Id=connection, **stranger))[0] == 404
                    headers = {**stranger, "Acp-Connection-Id": connection}
                    async with served.http.delete(served.url, headers=headers) as response:
                        assert response.status == 404
                assert served.ended == 0
                await sessions.dispatch(RevokeToken(token_id))
                await served.last_ended.wait()
                assert [caller.token_id for caller in served.callers] == [token_id]
        finally:
            await book.close()


async def test_connections_are_bounded_and_one_that_vanished_makes_room() -> None:
    async with listening(AcpHttpDeadlines(idle_s=0.05), max_connections=1) as served:
        await served.connected()
        await served.last_ended.wait()  # it had neither a request nor a stream
        connection = await served.connected()
        async with served.stream(connection):
            assert (await served.post(INITIALIZE))[0] == 503
            with pytest.raises(aiohttp.WSServerHandshakeError) as full:
                await served.http.ws_connect(served.url, headers=BEARER)
            assert full.value.status == 503


async def test_a_client_that_does_not_read_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acp_routes, "MAX_BUFFERED_BYTES", 200_000)
    async with listening(AcpHttpDeadlines(stall_s=0.05)) as served:
        connection = await served.connected()
        flood = {"jsonrpc": "2.0", "id": 9, "method": "flood"}
        assert (await served.post(flood, Acp_Connection_Id=connection))[0] == 202
        await served.last_ended.wait()
        assert (await served.post(NEW, Acp_Connection_Id=connection))[0] == 404


async def test_sessions_that_a_client_invents_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acp_routes, "MAX_STREAMS", 4)
    async with listening() as served:
        connection = await served.connected()
        for number in range(5):
            await served.post({**NEW, "id": number}, Acp_Connection_Id=connection, Acp_Session_Id=f"s{number}")
        await served.last_ended.wait()


async def test_the_end_of_the_server_ends_its_connections() -> None:
    async with listening() as served:
        await served.connected()
        await served.connected()
    assert served.ended == 2
