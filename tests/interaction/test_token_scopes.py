"""Every scope against every operation, over real connections to a real server. What is expected follows from the table
of `server.scopes`: an operation is refused exactly when the token's scope does not include the one it needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from support.agents import REF, AgentPeer, words
from support.live_sessions import Desk, decoded
from support.minicodex_client import BOTH, Ended
from support.peers import Peer
from support.sdk import served
from support.serving import BEARER, Site, serving
from support.tokens import bearer, make_token
from support.wire import JSON, ask, envelope

from makai.core.access import SCOPES, TokenScope
from makai.core.secret import Secret
from makai.core.session_events import ApprovalDecided, ModeChanged
from makai.protocols.makai.agent_payloads import AGENT_CLIENT_PAYLOADS
from makai.protocols.makai.auth import AUTH_CLIENT_PAYLOADS
from makai.protocols.makai.payloads import CLIENT_PAYLOADS
from makai.protocols.minicodex import commands as minicodex
from makai.server import scopes
from makai.server.route_scopes import ROUTES
from makai.server.token_book import TokenBook
from makai.sessions import requests as req
from makai.transports.grpc import connect_grpc
from makai.transports.sse import connect_sse
from makai.transports.websocket import connect_websocket

ASKS = 'tool: shell {"command": "echo done >> made"}\n---\nsay: It is written.'
DEADLINE_S = 60.0
BOTH_SIDES: tuple[TokenScope, TokenScope] = ("prompt", "approve")
BODIES: dict[tuple[str, str], object] = {
    ("POST", "/api/sessions"): {},
    ("POST", "/api/sessions/{id}/fork"): {},
    ("POST", "/api/sessions/{id}/archive"): {"archived": True},
    ("POST", "/api/sessions/{id}/title"): {"title": "t"},
    ("POST", "/api/sessions/{id}/effort"): {"effort": "low"},
    ("POST", "/api/auth/login"): {"provider_id": "no-such-provider"},
    ("POST", "/api/auth/flows/{flow_id}/answer"): {"prompt_id": "p", "answer": "a"},
    ("POST", "/api/auth/logout"): {"provider_id": "no-such-provider"},
    ("PATCH", "/api/settings"): {},
    ("POST", "/api/grants/revoke"): {"folder": "/none", "rule": "Bash(ls)"},
    ("POST", "/api/trust"): {"folder": "/none", "trusted": False},
    ("POST", "/api/tokens"): {"name": "", "scope": "observe", "lasts_s": 60},
    ("POST", "/api/mcp"): {"name": ""},
    ("POST", "/api/mcp/remove"): {"name": "none"},
    ("POST", "/api/mcp/test"): {"name": "none"},
}


@pytest.fixture(autouse=True)
def server_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the server was started: the one folder that a prompt token may use without more ado."""
    monkeypatch.chdir(project)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def expected(scope: TokenScope, needed: TokenScope | None) -> bool:
    return needed is None or SCOPES.index(scope) >= SCOPES.index(needed)


@pytest.mark.proof("L1")
@pytest.mark.parametrize("scope", SCOPES)
async def test_every_route_refuses_exactly_the_scopes_below_its_own(tmp_path: Path, scope: TokenScope) -> None:
    async with serving(tmp_path, "say: Hi.") as site:
        headers = {**bearer((await make_token(site.sessions, scope))[1]), "Content-Type": "application/json"}
        allowed: dict[tuple[str, str], bool] = {}
        for method, path in ROUTES:
            if (method, path) in (("GET", "/v1/makai"), ("GET", "/ws"), ("POST", "/v1/makai")):
                continue  # connections, below
            if (method, path, scope) == ("POST", "/api/models/pull", "admin"):
                continue  # it would download
            session_id = await site.session()
            there = (
                path.replace("{id}", session_id)
                .replace("{flow_id}", "f")
                .replace("{name}", "n")
                .replace("{token_id}", "t")
            )
            status, said = await site.ask(method, there, BODIES.get((method, path)), headers=headers)
            allowed[method, path] = status != 403
            assert status not in (401, 405, 500), (method, path, said)
            if status == 403:
                needed = ROUTES[method, path]
                assert said["error"]["code"] == "forbidden"
                assert said["error"]["message"].endswith(f"has the scope {scope}; {method} {path} needs {needed}.")
                assert "makai tokens create --scope" in said["error"]["hint"]

        assert allowed == {route: expected(scope, ROUTES[route]) for route in allowed}


async def test_an_admin_token_of_one_session_changes_nothing_that_all_sessions_share(tmp_path: Path) -> None:
    shared = [route for route, scope in ROUTES.items() if scope == "admin" and "/api/sessions/" not in route[1]]
    async with serving(tmp_path, "say: Hi.") as site:
        session_id = await site.session()
        headers = bearer((await make_token(site.sessions, "admin", session_id=session_id))[1])
        for method, path in shared:
            body = None if method == "GET" else BODIES.get((method, path), {})
            there = path.replace("{flow_id}", "f").replace("{token_id}", "t")
            status, said = await site.ask(method, there, body, headers=headers)
            assert (status, "opens one session only" in said["error"]["message"]) == (403, True), (method, path)
        assert (await site.ask("DELETE", f"/api/sessions/{session_id}", headers=headers))[0] == 204


MINICODEX: dict[str, JSON] = {
    "ping": {},
    "get_snapshot": {},
    "set_title": {"title": "t"},
    "set_model": {"model_ref": "scripted/scripted@echo"},
    "set_mode": {"mode": "plan"},
    "set_agent": {"agent": "native"},
    "compact": {},
    "undo": {},
    "redo": {},
    "withdraw": {"input_id": "none"},
    "retry": {"run_id": "none"},
    "send": {"text": "Hi", "delivery": "queue"},
    "approve": {"call_id": "none"},
    "deny": {"call_id": "none"},
    "abort": {},
}


@pytest.mark.parametrize("scope", SCOPES)
async def test_every_command_of_minicodex_is_refused_below_its_scope_and_the_connection_stays(
    tmp_path: Path, scope: TokenScope
) -> None:
    kinds = {str(kind.__struct_config__.tag): kind for kind in get_args(minicodex.ClientMessage)}
    assert set(MINICODEX) == set(kinds) - {"hello", "resume"}
    async with serving(tmp_path, "say: Hi.") as site:
        session_id = await site.session()
        client = await site.connect(session_id, *BOTH, headers=bearer((await make_token(site.sessions, scope))[1]))
        await client.hello()
        refused = {kind: await client.ask(kind, **fields) == "FORBIDDEN" for kind, fields in MINICODEX.items()}

        engine = minicodex._ENGINE_COMMANDS
        needed = {kind: scopes.COMMANDS[engine[kinds[kind]]] if kinds[kind] in engine else None for kind in MINICODEX}
        assert refused == {kind: not expected(scope, need) for kind, need in needed.items()}
        assert await client.ask("ping") == "accepted"
        await client.close()


@pytest.mark.parametrize("scope", SCOPES)
async def test_hello_without_a_session_begins_one_only_with_prompt(tmp_path: Path, scope: TokenScope) -> None:
    async with serving(tmp_path, "say: Hi.") as site:
        client = await site.connect(None, *BOTH, headers=bearer((await make_token(site.sessions, scope))[1]))
        heard = await client.ask("hello", v="1.0.0", client_capabilities=list(BOTH))

        assert heard == ("accepted" if expected(scope, "prompt") else "FORBIDDEN")
        await client.close()


@asynccontextmanager
async def peer_of(site: Site, kind: str, token: Secret) -> AsyncIterator[Peer]:
    """A connection of the Makai protocol with this token."""
    if kind == "websocket":
        channel = await connect_websocket(f"{site.url}/v1/makai", token)
        try:
            yield Peer(channel)
        finally:
            await channel.close()
    elif kind == "sse":
        stream = await connect_sse(f"{site.url}/v1/makai", token)
        try:
            yield Peer(stream)
        finally:
            await stream.close()
    else:
        assert site.makai.sessions is not None
        book = TokenBook(site.makai.sessions, site.clock)
        async with served("grpc", site.makai, book) as url:
            call = await connect_grpc(url, token)
            try:
                yield Peer(call)
            finally:
                await call.close()
        await book.close()


PAYLOADS: dict[str, tuple[JSON, TokenScope]] = {
    "ping": ({}, "observe"),
    "goodbye": ({}, "observe"),
    "models_request": ({}, "observe"),
    "stream_request": (ask()["payload"], "prompt"),
    "complete_request": (ask()["payload"], "prompt"),
    "abort_request": ({"target_stream_id": "s"}, "observe"),
    "auth_providers_request": ({}, "observe"),
    "auth_login_start": ({"provider_id": "no-such-provider"}, "admin"),
    "auth_prompt_response": ({"flow_id": "f", "prompt_id": "p", "answer": "a"}, "admin"),
    "auth_cancel": ({"flow_id": "f"}, "admin"),
}
AGENT: dict[str, tuple[JSON, TokenScope]] = {
    "agent_start": ({"resume": True}, "observe"),
    "agent_status": ({}, "observe"),
    "tool_list": ({}, "observe"),
    "agent_restore": ({"preview": True}, "observe"),
    "agent_diff": ({}, "observe"),
    "agent_message": (words("Hi"), "prompt"),
    "permission_response": ({"tool_call_id": "none", "decision": "approve"}, "approve"),
    "tool_result": ({"tool_call_id": "none", "content": "x"}, "prompt"),
    "agent_stop": ({"detach": True}, "observe"),
}


LAST = ("nack", "result", "stream_error", "models_response", "auth_login_result", "auth_providers_response")


def test_the_lists_of_these_tests_are_whole() -> None:
    assert set(AGENT) == set(AGENT_CLIENT_PAYLOADS)
    assert set(PAYLOADS) == set(CLIENT_PAYLOADS) | set(AUTH_CLIENT_PAYLOADS)


@pytest.mark.parametrize("kind", ["websocket", "sse", "grpc"])
@pytest.mark.parametrize("scope", SCOPES)
async def test_every_request_of_the_makai_protocol_is_refused_below_its_scope(
    tmp_path: Path, scope: TokenScope, kind: str
) -> None:
    async with asyncio.timeout(DEADLINE_S), serving(tmp_path, "say: Hi.") as site:
        session_id = await site.session()
        _, token = await make_token(site.sessions, scope)
        async with peer_of(site, kind, token) as peer:
            refused: dict[str, bool] = {}
            agent = AgentPeer(peer, session_id)
            for name, (payload, _) in AGENT.items():
                if name == "tool_result":
                    continue  # answered by an ack in any case; what it does needs a registered executor
                message_id = await agent.say(name, payload)
                while (reply := await peer.hear()).get("in_reply_to") != message_id:
                    pass
                refused[name] = is_forbidden(reply)
            for name in ("models_request", "complete_request", "auth_login_start", "auth_providers_request"):
                request = envelope(name, PAYLOADS[name][0])
                await peer.say(request)
                frames = [await peer.hear()]
                while (frames[-1].get("stream_id"), frames[-1]["type"]) not in [
                    (request["stream_id"], last) for last in LAST
                ]:
                    frames.append(await peer.hear())
                refused[name] = any(is_forbidden(one) for one in frames if one.get("stream_id") == request["stream_id"])
            needs = {name: (AGENT | PAYLOADS)[name][1] for name in refused}
            assert refused == {name: not expected(scope, need) for name, need in needs.items()}
            assert (await peer.ask(envelope("ping"), "pong"))[-1]["type"] == "pong"


def is_forbidden(frame: JSON) -> bool:
    payload = frame["payload"]
    if frame["type"] == "auth_event":
        return bool(payload.get("error", {}).get("code") == "forbidden")
    return bool(frame["type"] == "nack" and payload["error_code"] == "forbidden")


WRITES = 'tool: write {"path": "a.txt", "content": "A"}\n---\nsay: Done.'


@pytest.mark.parametrize("scope", BOTH_SIDES)
async def test_a_token_that_may_not_approve_only_sees_what_an_undo_would_do(
    tmp_path: Path, project: Path, scope: TokenScope
) -> None:
    async with asyncio.timeout(DEADLINE_S), serving(tmp_path, WRITES) as site:
        session_id = await site.session(mode="accept_edits", cwd=project)
        await Desk(site.sessions, session_id).run("Write it")
        _, token = await make_token(site.sessions, scope)
        async with peer_of(site, "websocket", token) as peer:
            agent = AgentPeer(peer, session_id)
            await agent.ask("agent_start", {"resume": True}, "agent_started")
            preview = (await agent.ask("agent_restore", {"preview": True}, "restore_result"))[-1]["payload"]
            diff = (await agent.ask("agent_diff", {}, "diff_result"))[-1]["payload"]
            asked = (await agent.ask("agent_restore", {"plan_id": preview["plan_id"]}, "restore_result"))[-1]

    assert diff == {"files": [{"path": f"{project}/a.txt", "new_text": "A"}]}
    assert preview["files"] == [{"path": f"{project}/a.txt", "kind": "remove", "removed": 1}]
    assert is_forbidden(asked) == (scope == "prompt")
    assert (project / "a.txt").exists() == (scope == "prompt")


WIDE_BODIES: list[JSON] = [
    {"mode": "never_ask"},
    {"mode": "full_access"},
    {"mode": "accept_edits"},
    {"harness": "other"},
    {"sandbox": "full-access"},
    {"cwd": "/"},
]


@pytest.mark.parametrize("body", WIDE_BODIES, ids=str)
async def test_a_prompt_token_creates_no_wide_session_by_rest(tmp_path: Path, body: JSON) -> None:
    async with serving(tmp_path, "say: Hi.") as site:
        for scope, status in zip(BOTH_SIDES, (403, 201), strict=True):
            headers = bearer((await make_token(site.sessions, scope))[1])
            if scope == "approve" and "harness" in body:
                continue  # there is no other harness here
            assert (await site.ask("POST", "/api/sessions", {**body}, headers=headers))[0] == status, scope
        before = len(await site.sessions.dispatch(req.ListSessions()))
        assert before == (0 if "harness" in body else 1)


@pytest.mark.parametrize("mode", ["accept_edits", "never_ask", "full_access"])
async def test_a_prompt_token_sets_no_mode_that_asks_less(tmp_path: Path, mode: str) -> None:
    async with serving(tmp_path, "say: Hi.") as site:
        session_id = await site.session()
        for scope, heard in zip(BOTH_SIDES, ("FORBIDDEN", "accepted"), strict=True):
            client = await site.connect(session_id, *BOTH, headers=bearer((await make_token(site.sessions, scope))[1]))
            await client.hello()
            assert await client.ask("set_mode", mode=mode) == heard
            await client.close()


@pytest.mark.parametrize(
    "payload",
    [
        {"mode": "never_ask"},
        {"mode": "accept_edits"},
        {"sandbox": "full-access"},
        {"cwd": "/", "builtin_tools": True},
        {"resume": True, "mode": "full_access"},
        {"resume": True, "sandbox": "full-access"},
    ],
    ids=str,
)
async def test_a_prompt_token_starts_and_resumes_no_wide_agent(tmp_path: Path, payload: JSON) -> None:
    async with asyncio.timeout(DEADLINE_S), serving(tmp_path, "say: Hi.") as site:
        for scope, refused in zip(BOTH_SIDES, (True, False), strict=True):
            _, token = await make_token(site.sessions, scope)
            async with peer_of(site, "websocket", token) as peer:
                agent = AgentPeer(peer, await site.session() if "resume" in payload else None)
                frames = await agent.ask("agent_start", {"model_ref": REF} | payload, "agent_started")
                assert is_forbidden(frames[-1]) == refused


async def test_a_prompt_token_brings_no_rules_of_its_own(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE_S), serving(tmp_path, "say: Hi.") as site:
        _, token = await make_token(site.sessions, "prompt")
        async with peer_of(site, "websocket", token) as peer:
            agent = AgentPeer(peer)
            await agent.start(options={"allow": ["Bash(*)"]})  # nothing is run by them yet
            assert is_forbidden((await agent.ask("agent_message", words("Hi"), "ack"))[-1])
            narrow = words("Hi") | {"options": {"allow": ["Bash(*)"]}}
            assert is_forbidden((await agent.ask("agent_message", narrow, "ack"))[-1])
            assert (await agent.run("", **words("Hi"), options={"deny": ["Bash(*)"]}))[-1]["type"] == "agent_result"


async def test_a_model_at_an_address_that_the_client_names_needs_admin(tmp_path: Path) -> None:
    model = {
        "id": "m",
        "name": "m",
        "api": "openai-completions",
        "provider": "custom",
        "base_url": "http://127.0.0.1:9",
    }
    payload = {"model": model, "context": ask()["payload"]["context"]}
    async with asyncio.timeout(DEADLINE_S), serving(tmp_path, "say: Hi.") as site:
        for scope in SCOPES:
            _, token = await make_token(site.sessions, scope)
            async with peer_of(site, "websocket", token) as peer:
                assert is_forbidden((await peer.ask(ask(payload=payload)))[-1]) == (scope != "admin")


async def test_every_decision_names_the_token(tmp_path: Path, project: Path) -> None:
    async with asyncio.timeout(DEADLINE_S), serving(tmp_path, ASKS) as site:
        session_id = await site.session(cwd=project)
        token_id, token = await make_token(site.sessions, "approve", name="ana")
        client = await site.connect(session_id, *BOTH, headers=bearer(token))
        await client.hello()
        assert await client.ask("set_mode", mode="plan") == "accepted"
        assert await client.ask("set_mode", mode="ask") == "accepted"
        await client.ask("send", text="write")
        asked = (await client.until("approval_pending"))[-1]
        assert await client.ask("approve", call_id=asked["call_id"]) == "accepted"
        await client.until_over()
        await client.close()
        events = [one.event for one in decoded(await site.sessions.dispatch(req.ReadEvents(session_id)))]

    said = [event.token for event in events if isinstance(event, ApprovalDecided | ModeChanged)]
    assert said == [f"ana/{token_id}"] * 3


async def test_a_stranger_to_an_event_stream_cannot_speak_on_it(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE_S), serving(tmp_path, "say: One.\npace: 5ms\nrepeat: 100000 word") as site:
        admin, json_type = dict(BEARER), {"Content-Type": "application/json"}
        _, token = await make_token(site.sessions, "prompt")
        opening = msgspec.json.encode(ask())
        async with site.http.post(f"{site.url}/v1/makai", headers=admin | json_type, data=opening) as stream:
            named = {"Makai-Connection": stream.headers["Makai-Connection"]}
            there = f"{site.url}/v1/makai"
            ping = msgspec.json.encode(envelope("ping"))
            async with site.http.post(there, headers={**bearer(token), **named, **json_type}, data=ping) as other:
                assert other.status == 404


@pytest.mark.parametrize("end", ["revoked", "expired"])
@pytest.mark.parametrize("kind", ["websocket", "sse", "grpc"])
async def test_open_connections_end_when_their_token_does(tmp_path: Path, kind: str, end: str) -> None:
    async with asyncio.timeout(DEADLINE_S), serving(tmp_path, "say: One.\npace: 5ms\nrepeat: 100000 word") as site:
        token_id, token = await make_token(site.sessions, "prompt", lasts_s=3600)
        async with peer_of(site, kind, token) as peer:
            await peer.say(ask(payload={**ask()["payload"], "model_ref": REF}))
            await peer.hear_until("text_delta")
            if end == "revoked":
                await site.sessions.dispatch(req.RevokeToken(token_id))
            else:
                site.clock.ahead_s = 3601.0
            while isinstance(await peer.channel.receive(), bytes):
                pass
        assert (await site.ask("GET", "/api/info", headers=bearer(token)))[0] == 401


@pytest.mark.parametrize("end", ["revoked", "expired"])
async def test_a_client_of_minicodex_is_closed_when_its_token_ends(tmp_path: Path, end: str) -> None:
    async with asyncio.timeout(DEADLINE_S), serving(tmp_path, "say: Hi.") as site:
        token_id, token = await make_token(site.sessions, "observe")
        client = await site.connect(await site.session(), *BOTH, headers=bearer(token))
        await client.hello()
        if end == "revoked":
            await site.sessions.dispatch(req.RevokeToken(token_id))
        else:
            site.clock.ahead_s = 3601.0
        with pytest.raises(Ended):
            await client.until("never")
